/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the last \boxed{...} of a response is the label, after what the
 * MATH benchmark's is_equiv (Hendrycks et al., arXiv 2103.03874) ignores:
 * sizes of fractions and brackets, degrees, dollars, per cent, units, a short
 * left side of an equation, braces left out, 0.5 and a/b for fractions.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "run/reward.h"
#include "run/text.h"

static void replace(struct weft_text *t, const char *from, const char *to)
{
    struct weft_text out = {0};
    const char *p = t->data, *hit;
    if (!p || !strstr(p, from))
        return;
    for (; (hit = strstr(p, from)) != NULL; p = hit + strlen(from)) {
        weft_text_add_n(&out, p, (size_t) (hit - p));
        weft_text_add(&out, to);
    }
    weft_text_add(&out, p);
    out.failed = out.failed || t->failed;
    weft_text_release(t);
    *t = out;
}

/* Bytes of the character at p; a stray byte counts as one. */
static size_t character(const char *p)
{
    size_t n = weft_utf8_length(p, strlen(p));
    return n > 0 ? n : *p != 0;
}

/* "\sqrt3" -> "\sqrt{3}". False: nothing follows the root. */
static bool fix_sqrt(struct weft_text *t)
{
    struct weft_text out = {0};
    const char *p = t->data, *hit;
    bool ok = true;
    for (; (hit = strstr(p, "\\sqrt")) != NULL && ok;) {
        weft_text_add_n(&out, p, (size_t) (hit + 5 - p));
        p = hit + 5;
        size_t n = character(p);
        ok = n > 0 && strncmp(p, "\\sqrt", 5) != 0;
        if (ok && *p != '{') {
            weft_text_addf(&out, "{%.*s}", (int) n, p);
            p += n;
        }
    }
    weft_text_add(&out, p);
    out.failed = out.failed || t->failed;
    weft_text_release(t);
    *t = out;
    return ok;
}

/* One \frac's arguments from p: "12" -> "{1}{2}", "1{2}" -> "{1}{2}".
 * Returns what follows, or NULL when there are less than two. */
static const char *fix_frac(const char *p, struct weft_text *out)
{
    size_t a = character(p), b = a > 0 ? character(p + a) : 0;
    const char *next = strstr(p, "\\frac");
    if (b == 0 || (next && next < p + a + b))
        return NULL;
    weft_text_addf(out, "{%.*s}", (int) a, p);
    if (p[a] != '{')
        weft_text_addf(out, "{%.*s}", (int) b, p + a);
    else
        weft_text_add(out, "{");
    return p + a + b;
}

/* False: nothing at all follows a \frac. */
static bool fix_fracs(struct weft_text *t)
{
    struct weft_text out = {0};
    const char *p = t->data, *hit;
    while ((hit = strstr(p, "\\frac")) != NULL) {
        weft_text_add_n(&out, p, (size_t) (hit + 5 - p));
        p = hit + 5;
        if (*p == 0 || strncmp(p, "\\frac", 5) == 0) {
            weft_text_release(&out);
            return false;
        }
        if (*p != '{' && !(p = fix_frac(p, &out))) {
            weft_text_release(&out); /* the text stays as it was */
            return true;
        }
    }
    weft_text_add(&out, p);
    out.failed = out.failed || t->failed;
    weft_text_release(t);
    *t = out;
    return true;
}

/* Digits of a whole number without idle zeros; returns its end or NULL. */
static const char *whole(const char *p)
{
    const char *digits = *p == '-' ? p + 1 : p;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || (digits[0] == '0' && (n > 1 || digits != p)))
        return NULL;
    return digits + n;
}

/* "a/b" of whole numbers -> "\frac{a}{b}" */
static void fix_slash(struct weft_text *t)
{
    const char *slash = whole(t->data);
    const char *end = slash && *slash == '/' ? whole(slash + 1) : NULL;
    struct weft_text out = {0};
    if (!end || *end)
        return;
    weft_text_addf(&out, "\\frac{%.*s}{%s}", (int) (slash - t->data), t->data,
                   slash + 1);
    out.failed = out.failed || t->failed;
    weft_text_release(t);
    *t = out;
}

/* A left side of at most two characters goes. */
static void drop_left_side(struct weft_text *t)
{
    char *eq = strchr(t->data, '=');
    if (!eq || strchr(eq + 1, '='))
        return;
    size_t n = 0;
    for (const char *p = t->data; p < eq; p += character(p))
        n++;
    if (n <= 2) {
        t->n = strlen(eq + 1);
        memmove(t->data, eq + 1, t->n + 1);
    }
}

/* False: no number of arguments fits; then only equal texts are equal. */
static bool normalise(struct weft_text *t)
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
    char *unit = t->data ? strstr(t->data, "\\text{ ") : NULL;
    if (unit && strstr(unit + 1, "\\text{ "))
        return false;
    if (unit) {
        *unit = 0;
        t->n = (size_t) (unit - t->data);
    }
    replace(t, "\\%", "");
    replace(t, " .", " 0.");
    replace(t, "{.", "{0.");
    if (t->n == 0 || t->failed)
        return true;
    if (t->data[0] == '.') {
        weft_text_add(t, " "); /* room for the zero */
        if (t->failed)
            return true;
        memmove(t->data + 1, t->data, t->n - 1);
        t->data[0] = '0';
    }
    drop_left_side(t);
    if (!fix_sqrt(t))
        return false;
    replace(t, " ", "");
    if (t->n == 0 || t->failed)
        return true;
    if (!fix_fracs(t))
        return false;
    if (!t->failed && strcmp(t->data, "0.5") == 0)
        replace(t, "0.5", "\\frac{1}{2}");
    if (!t->failed)
        fix_slash(t);
    return true;
}

/* The inside of the last \boxed{...}, or what follows a last "\boxed " up to
 * a dollar. False: there is none, or it is not closed. */
static bool last_boxed(const char *s, const char **out, size_t *n_out)
{
    static const char word[] = "\\boxed", open[] = "\\boxed ";
    const char *last = NULL, *bare = NULL;
    for (const char *p = s; (p = strstr(p, word)) != NULL; p++) {
        last = p;
        if (p[sizeof word - 1] == ' ')
            bare = p;
    }
    if (bare) {
        *out = bare + sizeof open - 1;
        *n_out = strcspn(*out, "$");
        return true;
    }
    if (!last || last[sizeof word - 1] != '{')
        return false;
    int depth = 0;
    for (const char *p = last + sizeof word - 1; *p; p++) {
        depth += (*p == '{') - (*p == '}');
        if (depth == 0) {
            *out = last + sizeof word;
            *n_out = (size_t) (p - *out);
            return true;
        }
    }
    return false;
}

int weft_reward_boxed(const char *response, const char *label, bool *out)
{
    const char *answer, *truth = label;
    size_t n, m = strlen(label);
    *out = false;
    if (!last_boxed(response, &answer, &n))
        return 0;
    (void) last_boxed(label, &truth, &m);
    struct weft_text a = {0}, b = {0};
    weft_text_add_n(&a, answer, n);
    weft_text_add_n(&b, truth, m);
    if (normalise(&a) && normalise(&b))
        *out = a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0);
    else
        *out = n == m && memcmp(answer, truth, n) == 0;
    int rc = a.failed || b.failed ? WEFT_ENOMEM : 0;
    weft_text_release(&a);
    weft_text_release(&b);
    return rc;
}
