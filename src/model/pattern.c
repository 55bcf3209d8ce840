/* SPDX-License-Identifier: Apache-2.0 */
/* Oniguruma's (Ruby's) regular expressions in PCRE2's words. */
#include "model/pretokenize.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* White_Space; PCRE2's own \s has U+180E as well. */
#define SPACE                                                                \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"             \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                            \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"    \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"              \
    "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* Alphabetic, marks, decimal digits, connectors; PCRE2's \w has no marks. */
#define WORD                                                                 \
    "\\p{L}\\p{M}\\p{Nl}\\p{Nd}\\p{Pc}\\x{24b6}-\\x{24e9}"                   \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

struct translation {
    const char *from; /* next character of the pattern */
    const char *start;
    const char *subject;
    char *out;
    size_t n, capacity;
    int depth;
    struct weft_err *err;
};

static int put_n(struct translation *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->capacity) {
        size_t capacity = 2 * (t->n + n + 1) + 64;
        char *more = weft_realloc(t->out, capacity, 1);
        if (!more)
            return weft_err_nomem(t->err, "a pattern", capacity);
        t->out = more;
        t->capacity = capacity;
    }
    memcpy(t->out + t->n, s, n);
    t->n += n;
    t->out[t->n] = 0;
    return 0;
}

static int put(struct translation *t, const char *s)
{
    return put_n(t, s, strlen(s));
}

/* Takes n characters as they are. */
static int copy(struct translation *t, size_t n)
{
    int rc = put_n(t, t->from, n);
    t->from += n;
    return rc;
}

/* Takes n characters and writes others. */
static int swap(struct translation *t, size_t n, const char *s)
{
    t->from += n;
    return put(t, s);
}

static int refuse(struct translation *t, const char *what, size_t n)
{
    return weft_err_set(t->err, WEFT_EUNSUPPORTED,
                        "%s: Weft does not know '%.*s' in a regular "
                        "expression (at byte %zu of '%.200s')",
                        t->subject, (int) n, what,
                        (size_t) (t->from - t->start), t->start);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \p{L}, \P{^Nd}: general categories as they are, scripts by name. */
static int property(struct translation *t)
{
    const char *p = t->from + 2;
    if (*p != '{')
        return refuse(t, t->from, 2);
    const char *name = ++p;
    if (*name == '^')
        name++;
    const char *end = strchr(name, '}');
    size_t n = end ? (size_t) (end - name) : 0;
    if (n == 0 || n > 40)
        return refuse(t, t->from, 3);
    for (size_t i = 0; i < n; i++)
        if (!is_letter(name[i]) && name[i] != '_')
            return refuse(t, t->from, 3);
    char text[64];
    snprintf(text, sizeof text, "\\%c{%.*s%s%.*s}", t->from[1],
             (int) (name - p), p, n > 2 ? "sc:" : "", (int) n, name);
    return swap(t, (size_t) (end + 1 - t->from), text);
}

/* \xHH, \x{H..}, \uHHHH: the character itself. */
static int hexadecimal(struct translation *t)
{
    const char *p = t->from + 2;
    size_t most = t->from[1] == 'u' ? 4 : 2, n = 0;
    bool braces = t->from[1] == 'x' && *p == '{';
    char digits[8 + 1] = "", text[16];
    if (braces) {
        p++;
        most = 8;
    }
    while (n < most && is_hex(p[n])) {
        digits[n] = p[n];
        n++;
    }
    p += n;
    if (n == 0 || (t->from[1] == 'u' && n != 4) || (braces && *p++ != '}'))
        return refuse(t, t->from, 2);
    /* \xc3 is a byte of UTF-8 there, a character here. */
    if (t->from[1] == 'x' && !braces && strtoul(digits, NULL, 16) >= 0x80)
        return refuse(t, t->from, 2 + n);
    snprintf(text, sizeof text, "\\x{%s}", digits);
    return swap(t, (size_t) (p - t->from), text);
}

static int escape(struct translation *t, bool in_class)
{
    char c = t->from[1];
    switch (c) {
    case 's':
        return swap(t, 2, in_class ? SPACE : "[" SPACE "]");
    case 'S':
        return swap(t, 2, in_class ? NOT_SPACE : "[^" SPACE "]");
    case 'd':
        return swap(t, 2, "\\p{Nd}");
    case 'D':
        return swap(t, 2, "\\P{Nd}");
    case 'w':
        return swap(t, 2, in_class ? WORD : "[" WORD "]");
    case 'W':
        return in_class ? refuse(t, t->from, 2) : swap(t, 2, "[^" WORD "]");
    case 'v':
        return swap(t, 2, "\\x0b");
    case 'p':
    case 'P':
        return property(t);
    case 'x':
    case 'u':
        return hexadecimal(t);
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e':
        return copy(t, 2);
    case 'A':
    case 'z':
    case 'Z':
        return in_class ? refuse(t, t->from, 2) : copy(t, 2);
    default:
        if (c >= 0x20 && c < 0x7f && !is_digit(c) && !is_letter(c))
            return copy(t, 2); /* punctuation, space */
        return refuse(t, t->from, c ? 2 : 1);
    }
}

/* [...]: nested sets, intersections and POSIX classes are refused. */
static int class(struct translation *t)
{
    int rc = copy(t, 1);
    if (!rc && *t->from == '^')
        rc = copy(t, 1);
    if (!rc && *t->from == ']')
        rc = swap(t, 1, "\\]");
    while (!rc && *t->from && *t->from != ']') {
        if (*t->from == '\\')
            rc = escape(t, true);
        else if (*t->from == '[')
            rc = refuse(t, t->from, 2);
        else if (t->from[0] == '&' && t->from[1] == '&')
            rc = refuse(t, t->from, 2);
        else
            rc = copy(t, 1);
    }
    if (!rc && !*t->from)
        rc = weft_err_set(t->err, WEFT_EFORMAT,
                          "%s: a '[' without its ']' in '%.200s'", t->subject,
                          t->start);
    return rc ? rc : copy(t, 1);
}

/* What may stand between '(' and the group's content. */
static int group(struct translation *t)
{
    static const char *const opening[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (t->from[1] != '?')
        return swap(t, 1, "(?:"); /* captures are not used */
    for (size_t i = 0; i < sizeof opening / sizeof opening[0]; i++) {
        size_t n = strlen(opening[i]);
        if (strncmp(t->from, opening[i], n) == 0)
            return copy(t, n);
    }
    if (t->from == t->start && strncmp(t->from, "(?i)", 4) == 0)
        return copy(t, 4); /* elsewhere its reach differs */
    return refuse(t, t->from, strnlen(t->from, 3));
}

/* {n}, {n,}, {n,m}, Ruby's {,m}; another brace is a character. */
static int braces(struct translation *t)
{
    const char *p = t->from + 1;
    size_t low = strspn(p, "0123456789");
    const char *after = p + low;
    size_t high = 0;
    if (*after == ',') {
        high = strspn(after + 1, "0123456789");
        after += 1 + high;
    }
    if (*after != '}' || low + high == 0 || t->from == t->start)
        return swap(t, 1, "\\{");
    if (after[1] == '+') /* a repeat of the repeat there, possessive here */
        return refuse(t, t->from, (size_t) (after + 2 - t->from));
    if (low == 0) {
        int rc = put(t, "{0");
        t->from++;
        return rc ? rc : copy(t, (size_t) (after + 1 - t->from));
    }
    return copy(t, (size_t) (after + 1 - t->from));
}

static int translate(struct translation *t)
{
    int rc = 0;
    while (!rc && *t->from) {
        switch (*t->from) {
        case '\\':
            rc = escape(t, false);
            break;
        case '[':
            rc = class(t);
            break;
        case '(':
            /* PCRE2 recurses while compiling; nobody nests this deep. */
            rc = ++t->depth > 1000 ? refuse(t, "((((...", 7) : group(t);
            break;
        case '{':
            rc = braces(t);
            break;
        default:
            rc = copy(t, 1);
        }
    }
    return rc;
}

int weft_pattern_translate(const char *pattern, const char *subject,
                           char **out, struct weft_err *err)
{
    struct translation t = {
        .from = pattern, .start = pattern, .subject = subject, .err = err};
    int rc = put(&t, "");
    if (!rc)
        rc = translate(&t);
    if (rc) {
        weft_free(t.out);
        return rc;
    }
    *out = t.out;
    return 0;
}
