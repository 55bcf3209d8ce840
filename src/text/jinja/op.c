/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on values: arithmetic, `in`, and % on texts. */
#include "text/jinja/impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static WEFT_NORETURN void no_meaning(struct weft_jstate *st, int op,
                                     struct weft_jvalue a,
                                     struct weft_jvalue b)
{
    char name[3] = {(char) (op >= 256 ? op / 256 : op),
                    (char) (op >= 256 ? op % 256 : 0), 0};
    struct weft_jvalue missing = a.kind == WEFT_J_UNDEFINED ? a : b;
    if (missing.kind == WEFT_J_UNDEFINED)
        weft_j_fail(st, WEFT_EINVAL, "%.*s is undefined",
                    (int) missing.text.n, missing.text.s);
    weft_j_fail(st, WEFT_EINVAL, "'%s' has no meaning between %s and %s",
                name, weft_j_type(a), weft_j_type(b));
}

/* ---- Numbers ---------------------------------------------------------- */

static bool add_fits(int64_t a, int64_t b)
{
    return b >= 0 ? a <= INT64_MAX - b : a >= INT64_MIN - b;
}

static bool product_fits(int64_t a, int64_t b)
{
    if (a == 0 || b == 0)
        return true;
    if (a == INT64_MIN || b == INT64_MIN)
        return a == 1 || b == 1;
    return llabs(a) <= INT64_MAX / llabs(b);
}

static WEFT_NORETURN void too_large(struct weft_jstate *st)
{
    weft_j_fail(st, WEFT_EUNSUPPORTED, "an integer of more than 64 bits");
}

static int64_t multiply(struct weft_jstate *st, int64_t a, int64_t b)
{
    if (!product_fits(a, b))
        too_large(st);
    return a * b;
}

/* Rounds to minus infinity, as Python does. */
static int64_t floor_divide(struct weft_jstate *st, int64_t a, int64_t b)
{
    if (b == 0)
        weft_j_fail(st, WEFT_EINVAL, "a division by 0");
    if (a == INT64_MIN && b == -1)
        too_large(st);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t power(struct weft_jstate *st, int64_t a, int64_t b)
{
    int64_t p = 1;
    if (a == 0 || a == 1 || a == -1)
        return b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
    while (b-- > 0) /* ends at 64 bits */
        p = multiply(st, p, a);
    return p;
}

static struct weft_jvalue on_ints(struct weft_jstate *st, int op, int64_t a,
                                  int64_t b)
{
    switch (op) {
    case '+':
        if (!add_fits(a, b))
            too_large(st);
        return weft_j_int(a + b);
    case '-':
        if (b == INT64_MIN || !add_fits(a, -b))
            too_large(st);
        return weft_j_int(a - b);
    case '*':
        return weft_j_int(multiply(st, a, b));
    case WEFT_JOP('/', '/'):
        return weft_j_int(floor_divide(st, a, b));
    case '%':
        return weft_j_int(a - multiply(st, floor_divide(st, a, b), b));
    default:
        return weft_j_int(power(st, a, b));
    }
}

static struct weft_jvalue on_floats(struct weft_jstate *st, int op, double a,
                                    double b)
{
    if (b == 0 && (op == '/' || op == '%' || op == WEFT_JOP('/', '/')))
        weft_j_fail(st, WEFT_EINVAL, "a division by 0");
    switch (op) {
    case '+':
        return weft_j_float(a + b);
    case '-':
        return weft_j_float(a - b);
    case '*':
        return weft_j_float(a * b);
    case '/':
        return weft_j_float(a / b);
    case WEFT_JOP('/', '/'):
        return weft_j_float(floor(a / b));
    case '%': {
        double r = fmod(a, b);
        return weft_j_float(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
    default:
        return weft_j_float(pow(a, b));
    }
}

static struct weft_jvalue on_numbers(struct weft_jstate *st, int op,
                                     struct weft_jvalue a,
                                     struct weft_jvalue b)
{
    bool ints = weft_j_is_int(a) && weft_j_is_int(b) && op != '/';
    if (ints && op == WEFT_JOP('*', '*') && weft_j_as_int(b) < 0)
        ints = false;
    if (ints)
        return on_ints(st, op, weft_j_as_int(a), weft_j_as_int(b));
    return on_floats(st, op, weft_j_as_float(a), weft_j_as_float(b));
}

/* ---- Texts and lists -------------------------------------------------- */

/* A text in HTML, unless it is marked as such already. */
static void add_escaped(struct weft_jstate *st, struct weft_jout *out,
                        struct weft_jvalue v)
{
    static const char from[] = "&<>'\"";
    static const char *const into[] = {"&amp;", "&lt;", "&gt;", "&#39;",
                                       "&#34;"};
    if (v.kind == WEFT_J_MARKUP) {
        weft_j_add_text(st, out, v.text);
        return;
    }
    for (size_t i = 0; i < v.text.n; i++) {
        const char *known = v.text.s[i] ? strchr(from, v.text.s[i]) : NULL;
        if (known)
            weft_j_add(st, out, into[known - from],
                       strlen(into[known - from]));
        else
            weft_j_add(st, out, v.text.s + i, 1);
    }
}

struct weft_jvalue weft_j_escape(struct weft_jstate *st, struct weft_jvalue v)
{
    struct weft_jout out = {0};
    add_escaped(st, &out, v);
    v = weft_j_taken(&out);
    v.kind = WEFT_J_MARKUP;
    return v;
}

static struct weft_jvalue join(struct weft_jstate *st, struct weft_jvalue a,
                               struct weft_jvalue b)
{
    struct weft_jout out = {0};
    bool markup = a.kind == WEFT_J_MARKUP || b.kind == WEFT_J_MARKUP;
    if (markup) {
        add_escaped(st, &out, a);
        add_escaped(st, &out, b);
    } else {
        weft_j_add_text(st, &out, a.text);
        weft_j_add_text(st, &out, b.text);
    }
    struct weft_jvalue v = weft_j_taken(&out);
    v.kind = markup ? WEFT_J_MARKUP : WEFT_J_STRING;
    return v;
}

static struct weft_jvalue join_lists(struct weft_jstate *st,
                                     struct weft_jvalue a,
                                     struct weft_jvalue b)
{
    struct weft_jvalue out = weft_j_list(st, a.kind);
    for (size_t i = 0; i < a.list->n; i++)
        weft_j_push(st, out, a.list->item[i]);
    for (size_t i = 0; i < b.list->n; i++)
        weft_j_push(st, out, b.list->item[i]);
    return out;
}

static struct weft_jvalue repeat(struct weft_jstate *st, struct weft_jvalue v,
                                 int64_t times)
{
    struct weft_jvalue out = weft_j_list(st, v.kind);
    struct weft_jout text = {0};
    bool string = weft_j_is_string(v);
    for (int64_t k = 0; k < times; k++) {
        weft_j_step(st, 1);
        if (string)
            weft_j_add_text(st, &text, v.text);
        for (size_t i = 0; !string && i < v.list->n; i++)
            weft_j_push(st, out, v.list->item[i]);
    }
    return string ? weft_j_taken(&text) : out;
}

static bool is_list(struct weft_jvalue v)
{
    return v.kind == WEFT_J_LIST || v.kind == WEFT_J_TUPLE;
}

struct weft_jvalue weft_j_binary(struct weft_jstate *st, int op,
                                 struct weft_jvalue a, struct weft_jvalue b)
{
    if (weft_j_is_number(a) && weft_j_is_number(b))
        return on_numbers(st, op, a, b);
    if (op == '+' && weft_j_is_string(a) && weft_j_is_string(b))
        return join(st, a, b);
    if (op == '+' && is_list(a) && a.kind == b.kind)
        return join_lists(st, a, b);
    if (op == '*' && weft_j_is_int(a) && (is_list(b) || weft_j_is_string(b)))
        return repeat(st, b, weft_j_as_int(a));
    if (op == '*' && weft_j_is_int(b) && (is_list(a) || weft_j_is_string(a)))
        return repeat(st, a, weft_j_as_int(b));
    if (op == '%' && a.kind == WEFT_J_STRING) {
        if (b.kind == WEFT_J_TUPLE)
            return weft_j_percent(st, a.text, b.list->item, b.list->n);
        return weft_j_percent(st, a.text, &b, 1);
    }
    no_meaning(st, op, a, b);
}

bool weft_j_contains(struct weft_jstate *st, struct weft_jvalue all,
                     struct weft_jvalue item)
{
    if (weft_j_is_string(all)) {
        if (!weft_j_is_string(item))
            weft_j_fail(st, WEFT_EINVAL,
                        "'in' a string must be a string, "
                        "not %s",
                        weft_j_type(item));
        weft_j_step(st, all.text.n / 64);
        return weft_j_search(all.text, item.text, 0) != SIZE_MAX;
    }
    if (all.kind == WEFT_J_DICT)
        return weft_j_find(st, all, item) != NULL;
    struct weft_jlist list = weft_j_items(st, all);
    weft_j_step(st, list.n);
    for (size_t i = 0; i < list.n; i++)
        if (weft_j_equal(st, list.item[i], item))
            return true;
    return false;
}

/* ---- % ---------------------------------------------------------------- */

/* One conversion: "%s", "%r", or of a number "%5d", "%05d", "%.2f". */
static void add_converted(struct weft_jstate *st, struct weft_jout *out,
                          struct weft_str spec, struct weft_jvalue v)
{
    char text[400], kind = spec.s[spec.n - 1];
    int part[2] = {0, 6}, at = 0, n; /* width, precision */
    bool zeros = spec.n > 2 && spec.s[1] == '0', real = kind == 'f';
    if (spec.n == 2 && kind == 's') {
        weft_j_add_value(st, out, v);
        return;
    }
    if (spec.n == 2 && kind == 'r') {
        weft_j_add_repr(st, out, v);
        return;
    }
    bool known = spec.n < 7 && (real || kind == 'd' || kind == 'i');
    for (size_t i = 1; known && i + 1 < spec.n; i++) {
        if (spec.s[i] == '.' && real && at == 0)
            part[at = 1] = 0;
        else if (spec.s[i] >= '0' && spec.s[i] <= '9')
            part[at] = 10 * part[at] + spec.s[i] - '0';
        else
            known = false;
    }
    if (!known || part[0] > 60 || part[1] > 60)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "Weft does not format by '%.*s'",
                    spec.n > 20 ? 20 : (int) spec.n, spec.s);
    if (!weft_j_is_number(v))
        weft_j_fail(st, WEFT_EINVAL, "'%.*s' cannot format %s", (int) spec.n,
                    spec.s, weft_j_type(v));
    if (!real && v.kind == WEFT_J_FLOAT && !(fabs(v.f) < 0x1p62))
        too_large(st);
    long long i = v.kind == WEFT_J_FLOAT ? real ? 0 : (long long) v.f
                                         : (long long) weft_j_as_int(v);
    double f = weft_j_as_float(v);
    if (real && zeros)
        n = snprintf(text, sizeof text, "%0*.*f", part[0], part[1], f);
    else if (real)
        n = snprintf(text, sizeof text, "%*.*f", part[0], part[1], f);
    else if (zeros)
        n = snprintf(text, sizeof text, "%0*lld", part[0], i);
    else
        n = snprintf(text, sizeof text, "%*lld", part[0], i);
    weft_assert(n > 0 && (size_t) n < sizeof text);
    weft_j_add(st, out, text, (size_t) n);
}

struct weft_jvalue weft_j_percent(struct weft_jstate *st,
                                  struct weft_str format,
                                  const struct weft_jvalue *item, size_t n)
{
    struct weft_jout out = {0};
    size_t used = 0;
    for (size_t i = 0; i < format.n; i++) {
        size_t end = i + 1;
        if (format.s[i] != '%') {
            weft_j_add(st, &out, format.s + i, 1);
            continue;
        }
        while (end < format.n && format.s[end]
               && strchr("0123456789.-+ #", format.s[end]))
            end++;
        if (end >= format.n)
            weft_j_fail(st, WEFT_EINVAL, "a format ends in '%%'");
        if (format.s[end] == '%') {
            weft_j_add(st, &out, "%", 1);
        } else {
            if (used == n)
                weft_j_fail(st, WEFT_EINVAL,
                            "a format wants more than %zu values", n);
            add_converted(st, &out,
                          (struct weft_str){format.s + i, end + 1 - i},
                          item[used++]);
        }
        i = end;
    }
    if (used < n)
        weft_j_fail(st, WEFT_EINVAL, "a format uses %zu of %zu values", used,
                    n);
    return weft_j_taken(&out);
}
