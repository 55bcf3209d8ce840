/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the last \boxed{...} of a response with the label. It ignores what
 * is_equiv of the MATH benchmark ignores (Hendrycks et al., arXiv 2103.03874):
 * sizes of fractions and brackets, degrees, dollars, per cent, units, a short
 * left side of an equation, missing braces, 0.5 and a/b for fractions.
 */
#include <string.h>

#include "base/str.h"
#include "base/string.h"
#include "base/utf8.h"
#include "reward/reward.h"

static struct weft_str text_of(const struct weft_string *t)
{
    return (struct weft_str){t->data, t->n};
}

static void become(struct weft_string *t, struct weft_string *other)
{
    other->failed = other->failed || t->failed;
    weft_string_release(t);
    *t = *other;
}

static void replace(struct weft_string *t, const char *from, const char *to)
{
    struct weft_string out = {0};
    struct weft_str p = text_of(t);
    size_t at = weft_str_find(p, from);
    if (at == SIZE_MAX)
        return;
    for (; at != SIZE_MAX; at = weft_str_find(p, from)) {
        weft_string_add_n(&out, p.s, at);
        weft_string_add(&out, to);
        p = weft_str_after(p, at + strlen(from));
    }
    weft_string_add_n(&out, p.s, p.n);
    become(t, &out);
}

/* Bytes of the first character; a stray byte counts as one. 0: the end. */
static size_t character(struct weft_str p)
{
    size_t n = weft_utf8_length(p.s, p.n);
    return n > 0 ? n : p.n > 0;
}

static void add_braced(struct weft_string *out, struct weft_str p, size_t n)
{
    weft_string_add(out, "{");
    weft_string_add_n(out, p.s, n);
    weft_string_add(out, "}");
}

/* "\sqrt3" -> "\sqrt{3}". False: nothing follows the root. */
static bool fix_sqrt(struct weft_string *t)
{
    struct weft_string out = {0};
    struct weft_str p = text_of(t);
    size_t at;
    bool ok = true;
    while (ok && (at = weft_str_find(p, "\\sqrt")) != SIZE_MAX) {
        weft_string_add_n(&out, p.s, at + 5);
        p = weft_str_after(p, at + 5);
        ok = p.n > 0 && !weft_str_starts(p, "\\sqrt");
        if (ok && p.s[0] != '{') {
            size_t n = character(p);
            add_braced(&out, p, n);
            p = weft_str_after(p, n);
        }
    }
    weft_string_add_n(&out, p.s, p.n);
    become(t, &out);
    return ok;
}

/* Appends the arguments of a \frac: "12" -> "{1}{2}", "1{2}" -> "{1}{2}"; *p
 * is advanced past them. False: there are fewer than two. */
static bool fix_frac(struct weft_str *p, struct weft_string *out)
{
    size_t a = character(*p);
    struct weft_str second = weft_str_after(*p, a);
    size_t b = character(second);
    if (b == 0 || weft_str_find(*p, "\\frac") < a + b)
        return false;
    add_braced(out, *p, a);
    if (second.s[0] != '{')
        add_braced(out, second, b);
    else
        weft_string_add(out, "{");
    *p = weft_str_after(second, b);
    return true;
}

/* False: nothing at all follows a \frac. */
static bool fix_fracs(struct weft_string *t)
{
    struct weft_string out = {0};
    struct weft_str p = text_of(t);
    size_t at;
    while ((at = weft_str_find(p, "\\frac")) != SIZE_MAX) {
        weft_string_add_n(&out, p.s, at + 5);
        p = weft_str_after(p, at + 5);
        if (p.n == 0 || weft_str_starts(p, "\\frac")) {
            weft_string_release(&out);
            return false;
        }
        if (p.s[0] != '{' && !fix_frac(&p, &out)) {
            weft_string_release(&out); /* the text is not changed */
            return true;
        }
    }
    weft_string_add_n(&out, p.s, p.n);
    become(t, &out);
    return true;
}

/* Bytes of an integer without leading zeros; 0: there is none. */
static size_t whole(struct weft_str p)
{
    size_t sign = p.n > 0 && p.s[0] == '-', n = sign;
    while (n < p.n && p.s[n] >= '0' && p.s[n] <= '9')
        n++;
    if (n == sign || (p.s[sign] == '0' && n > 1))
        return 0;
    return n;
}

/* "a/b" of whole numbers -> "\frac{a}{b}" */
static void fix_slash(struct weft_string *t)
{
    struct weft_str p = text_of(t);
    size_t n = whole(p);
    if (n == 0 || n == p.n || p.s[n] != '/')
        return;
    struct weft_str below = weft_str_after(p, n + 1);
    if (below.n == 0 || whole(below) != below.n)
        return;
    struct weft_string out = {0};
    weft_string_add(&out, "\\frac");
    add_braced(&out, p, n);
    add_braced(&out, below, below.n);
    become(t, &out);
}

/* Removes the first `from` bytes. */
static void drop(struct weft_string *t, size_t from)
{
    t->n -= from;
    memmove(t->data, t->data + from, t->n + 1);
}

/* Removes the left side of an equation if it has at most two characters. */
static void drop_left_side(struct weft_string *t)
{
    struct weft_str p = text_of(t);
    size_t equals = weft_str_find(p, "="), n = 0;
    if (equals == SIZE_MAX
        || weft_str_find(weft_str_after(p, equals + 1), "=") != SIZE_MAX)
        return;
    for (size_t at = 0; at < equals; at += character(weft_str_after(p, at)))
        n++;
    if (n <= 2)
        drop(t, equals + 1);
}

/* Removes a unit, "\text{ apples}", and all after it. False: there are two
 * units. */
static bool drop_unit(struct weft_string *t)
{
    static const char mark[] = "\\text{ ";
    struct weft_str p = text_of(t);
    size_t unit = weft_str_find(p, mark);
    if (unit == SIZE_MAX)
        return true;
    if (weft_str_find(weft_str_after(p, unit + 1), mark) != SIZE_MAX)
        return false;
    t->n = unit;
    t->data[unit] = 0;
    return true;
}

/* ".5" -> "0.5" */
static void add_zero(struct weft_string *t)
{
    if (t->data[0] != '.')
        return;
    weft_string_add(t, " "); /* room for the zero */
    if (t->failed)
        return;
    memmove(t->data + 1, t->data, t->n - 1);
    t->data[0] = '0';
}

/* Normalises the text. False: a command has too few arguments; such a text
 * only equals the same text. */
static bool normalise(struct weft_string *t)
{
    static const char *const gone[] = {"\\left", "\\right", "^{\\circ}",
                                       "^\\circ", "\\$"};
    replace(t, "\n", "");
    replace(t, "\\!", "");
    replace(t, "\\\\", "\\");
    replace(t, "tfrac", "frac");
    replace(t, "dfrac", "frac");
    for (size_t i = 0; i < WEFT_COUNT(gone); i++)
        replace(t, gone[i], "");
    if (!drop_unit(t))
        return false;
    replace(t, "\\%", "");
    replace(t, " .", " 0.");
    replace(t, "{.", "{0.");
    if (t->n == 0 || t->failed)
        return true;
    add_zero(t);
    drop_left_side(t);
    if (!fix_sqrt(t))
        return false;
    replace(t, " ", "");
    if (t->n == 0 || t->failed)
        return true;
    if (!fix_fracs(t))
        return false;
    if (weft_str_equal(text_of(t), weft_str_of("0.5")))
        replace(t, "0.5", "\\frac{1}{2}");
    if (!t->failed)
        fix_slash(t);
    return true;
}

/* The content of the last \boxed{...}, or what follows the last "\boxed " up
 * to a "$". False: there is none, or it is not closed. */
static bool last_boxed(struct weft_str text, struct weft_str *out)
{
    static const char word[] = "\\boxed";
    struct weft_str last = {0}, bare = {0};
    for (size_t at; (at = weft_str_find(text, word)) != SIZE_MAX;) {
        text = weft_str_after(text, at + sizeof word - 1);
        last = text;
        if (weft_str_starts(text, " "))
            bare = text;
    }
    if (bare.s) {
        *out = weft_str_after(bare, 1);
        const char *dollar = memchr(out->s, '$', out->n);
        if (dollar)
            out->n = (size_t) (dollar - out->s);
        return true;
    }
    int depth = 0;
    if (!last.s || !weft_str_starts(last, "{"))
        return false;
    for (size_t at = 0; at < last.n; at++) {
        depth += (last.s[at] == '{') - (last.s[at] == '}');
        if (depth == 0) {
            *out = (struct weft_str){last.s + 1, at - 1};
            return true;
        }
    }
    return false;
}

int weft_reward_boxed(struct weft_str response, struct weft_str label,
                      bool *out)
{
    struct weft_str answer, truth = label;
    *out = false;
    if (!last_boxed(response, &answer))
        return 0;
    (void) last_boxed(label, &truth);
    struct weft_string a = {0}, b = {0};
    weft_string_add_n(&a, answer.s, answer.n);
    weft_string_add_n(&b, truth.s, truth.n);
    if (normalise(&a) && normalise(&b))
        *out = weft_str_equal(text_of(&a), text_of(&b));
    else
        *out = weft_str_equal(answer, truth);
    int rc = a.failed || b.failed ? WEFT_ENOMEM : 0;
    weft_string_release(&a);
    weft_string_release(&b);
    return rc;
}
