/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates Oniguruma's (Ruby's) regular expressions into patterns for PCRE2
 * over an alphabet of at most 256 bytes. Every character, class and property
 * of the pattern becomes a set of characters by Weft's own Unicode tables.
 * Characters that belong to the same sets are one byte of the alphabet; the
 * pattern for PCRE2, and texts that it is matched with, consist of such bytes.
 * So what matches does not depend on the Unicode version of PCRE2.
 */
#include "text/pattern.h"

#include "base/alloc.h"
#include "text/unicode/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits: PCRE2 recurses for nested groups; no real pattern comes near. */
enum { MAX_GROUPS = 1000, MAX_CLASSES = 16, MAX_SETS = 2000 };

/* A part of the translated pattern: text for PCRE2, or a set of characters. */
struct part {
    const char *text; /* NULL: set number `set` */
    size_t n, set;
};

struct translation {
    const char *from; /* next character of the pattern */
    const char *start;
    const char *subject;
    struct part *part;
    size_t n_parts, parts_capacity;
    struct weft_charset *set;
    size_t n_sets, sets_capacity;
    int depth;
    bool fold[MAX_GROUPS + 1]; /* whether a group's case is ignored */
    char last; /* the preceding letter if its case is ignored, or 0 */
    struct weft_err *err;
};

/* ---- Parts ------------------------------------------------------------ */

static int put_part(struct translation *t, struct part part)
{
    if (t->n_parts == t->parts_capacity) {
        size_t capacity = 2 * t->parts_capacity + 32;
        struct part *more = weft_realloc(t->part, capacity, sizeof *more);
        if (!more)
            return weft_err_nomem(t->err, "a pattern",
                                  capacity * sizeof *more);
        t->part = more;
        t->parts_capacity = capacity;
    }
    t->part[t->n_parts++] = part;
    return 0;
}

static int put(struct translation *t, const char *text)
{
    return put_part(t, (struct part){.text = text, .n = strlen(text)});
}

/* Copies n characters of the pattern. */
static int copy(struct translation *t, size_t n)
{
    int rc = put_part(t, (struct part){.text = t->from, .n = n});
    t->from += n;
    return rc;
}

/* Replaces n characters of the pattern by `text`. */
static int swap(struct translation *t, size_t n, const char *text)
{
    t->from += n;
    return put(t, text);
}

/* Adds the set as a part; takes ownership of it. */
static int put_set(struct translation *t, struct weft_charset *set)
{
    int rc = 0;
    if (t->n_sets == MAX_SETS)
        rc = weft_err_set(t->err, WEFT_EUNSUPPORTED,
                          "%s: a regular expression of more than %d "
                          "characters and classes: '%.200s'",
                          t->subject, MAX_SETS, t->start);
    if (!rc && t->n_sets == t->sets_capacity) {
        size_t capacity = 2 * t->sets_capacity + 32;
        struct weft_charset *more = weft_realloc(t->set, capacity,
                                                 sizeof *more);
        if (more) {
            t->set = more;
            t->sets_capacity = capacity;
        } else {
            rc = weft_err_nomem(t->err, "a pattern", capacity * sizeof *more);
        }
    }
    if (rc) {
        weft_charset_release(set);
        return rc;
    }
    t->set[t->n_sets] = *set;
    return put_part(t, (struct part){.set = t->n_sets++});
}

static int refuse(struct translation *t, const char *what, size_t n)
{
    return weft_err_set(t->err, WEFT_EUNSUPPORTED,
                        "%s: Weft does not know '%.*s' in a regular "
                        "expression (at byte %zu of '%.200s')",
                        t->subject, (int) n, what,
                        (size_t) (t->from - t->start), t->start);
}

static int wrong(struct translation *t, const char *why)
{
    return weft_err_set(t->err, WEFT_EFORMAT, "%s: %s in '%.200s'",
                        t->subject, why, t->start);
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

/* ---- Characters ------------------------------------------------------- */

/* Reads \xHH, \x{H..} or \uHHHH. */
static int hexadecimal(struct translation *t, uint32_t *out)
{
    const char *p = t->from + 2;
    size_t most = t->from[1] == 'u' ? 4 : 2, n = 0;
    bool braces = t->from[1] == 'x' && *p == '{';
    char digits[8 + 1] = "";
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
    unsigned long c = strtoul(digits, NULL, 16);
    /* For Oniguruma \xc3 is a byte of UTF-8, not the character U+00C3. */
    if (c > 0x10ffff || (t->from[1] == 'x' && !braces && c >= 0x80))
        return refuse(t, t->from, (size_t) (p - t->from));
    t->from = p;
    *out = (uint32_t) c;
    return 0;
}

/* Reads an escaped character. */
static int escaped(struct translation *t, uint32_t *out)
{
    static const char name[] = "nrtfvae", value[] = "\n\r\t\f\v\a\x1b";
    char c = t->from[1];
    const char *known = c ? strchr(name, c) : NULL;
    if (c == 'x' || c == 'u')
        return hexadecimal(t, out);
    if (known)
        *out = (uint32_t) value[known - name];
    else if (c >= 0x20 && c < 0x7f && !is_digit(c) && !is_letter(c))
        *out = (uint32_t) c; /* punctuation, space */
    else
        return refuse(t, t->from, c ? 2 : 1);
    t->from += 2;
    return 0;
}

static int character(struct translation *t, uint32_t *out)
{
    if (*t->from == '\\')
        return escaped(t, out);
    int length = weft_utf8_next(t->from, strlen(t->from), out);
    if (length < 0)
        return wrong(t, "bytes that are not UTF-8");
    t->from += length;
    return 0;
}

/* Adds characters and, if case is ignored, those that differ from them in case
 * alone. That is supported for ASCII letters, to whose s and k belong the long
 * s and the Kelvin sign. */
static int add(struct translation *t, struct weft_charset *set,
               uint32_t first, uint32_t last)
{
    int rc = weft_charset_add(set, first, last, t->err);
    if (rc || !t->fold[t->depth])
        return rc;
    if (last >= 0x80)
        return refuse(t, "a character beyond ASCII under (?i)", 35);
    for (uint32_t c = first; c <= last && !rc; c++) {
        if (!is_letter((char) c))
            continue;
        rc = weft_charset_add(set, c ^ 0x20, c ^ 0x20, t->err);
        if (!rc && (c | 0x20) == 's')
            rc = weft_charset_add(set, 0x17f, 0x17f, t->err);
        if (!rc && (c | 0x20) == 'k')
            rc = weft_charset_add(set, 0x212a, 0x212a, t->err);
    }
    return rc;
}

/* If case is ignored, Oniguruma lets "ss" match a sharp s, and "st", "ff",
 * "fi" and "fl" match ligatures: these are refused. */
static int check_ligature(struct translation *t, uint32_t c)
{
    char now = c < 0x80 && is_letter((char) c) ? (char) (c | 0x20) : 0;
    char last = t->last;
    t->last = t->fold[t->depth] ? now : 0;
    if ((last == 's' && (now == 's' || now == 't'))
        || (last == 'f' && (now == 'f' || now == 'i' || now == 'l')))
        return refuse(t, "ss, st, ff, fi or fl under (?i)", 31);
    return 0;
}

static int literal(struct translation *t)
{
    struct weft_charset set = {0};
    uint32_t c = 0;
    int rc = character(t, &c);
    if (!rc)
        rc = check_ligature(t, c);
    if (!rc)
        rc = add(t, &set, c, c);
    if (!rc)
        return put_set(t, &set);
    weft_charset_release(&set);
    return rc;
}

/* ---- Classes ---------------------------------------------------------- */

/* Reads \p{L}, \P{^Nd}, ... */
static int property(struct translation *t, struct weft_charset *out)
{
    const char *name = t->from + 3;
    bool inverse = t->from[1] == 'P';
    if (t->from[2] != '{')
        return refuse(t, t->from, 2);
    if (*name == '^') {
        inverse = !inverse;
        name++;
    }
    const char *end = strchr(name, '}');
    if (!end || end - name > 40)
        return refuse(t, t->from, 3);
    int rc = weft_charset_add_property(out, name, (size_t) (end - name),
                                       t->err);
    if (rc > 0)
        return refuse(t, t->from, (size_t) (end + 1 - t->from));
    if (!rc && inverse)
        rc = weft_charset_invert(out, t->err);
    t->from = end + 1;
    return rc;
}

static bool is_shorthand(const char *from)
{
    return from[0] == '\\' && from[1] && strchr("sSdDwWpP", from[1]);
}

/* Adds \s, \D, \p{..}, ... to a set. */
static int shorthand(struct translation *t, struct weft_charset *set)
{
    struct weft_charset own = {0};
    char c = t->from[1];
    int rc = 0;
    if (t->fold[t->depth] && c != 's' && c != 'd') {
        rc = refuse(t, t->from, 2); /* PCRE2 ignores case differently */
    } else if (c == 'p' || c == 'P') {
        rc = property(t, &own);
    } else {
        rc = weft_charset_add_class(&own, (char) (c | 0x20), t->err);
        if (!rc && !(c & 0x20))
            rc = weft_charset_invert(&own, t->err);
        t->from += 2;
    }
    if (!rc)
        rc = weft_charset_add_all(set, &own, t->err);
    weft_charset_release(&own);
    return rc;
}

static int class(struct translation *t, struct weft_charset *out, int depth);

/* Reads a character, a range, \s..., or a class within a class. */
static int class_item(struct translation *t, struct weft_charset *set,
                      int depth)
{
    struct weft_charset inner = {0};
    uint32_t first = 0, last = 0;
    int rc;
    if (*t->from == '[') {
        const char *start = t->from;
        rc = class(t, &inner, depth + 1);
        /* For such a class Oniguruma 6.9 adds too many characters. */
        if (!rc && start[1] == '^'
            && (inner.n == 0 || inner.range[0].first >= 0x80))
            rc = refuse(t, start, (size_t) (t->from - start));
        if (!rc)
            rc = weft_charset_add_all(set, &inner, t->err);
        weft_charset_release(&inner);
        return rc;
    }
    bool whole = is_shorthand(t->from);
    rc = whole ? shorthand(t, set) : character(t, &first);
    last = first;
    if (!rc && !whole && t->from[0] == '-' && t->from[1] != ']') {
        t->from++;
        whole = true;
        if (*t->from == '[' || is_shorthand(t->from) || !*t->from)
            return refuse(t, t->from, 1);
        rc = character(t, &last);
        if (!rc && last < first)
            return wrong(t, "a range from a larger character to a smaller");
        if (!rc)
            rc = add(t, set, first, last);
    } else if (!rc && !whole) {
        rc = add(t, set, first, last);
    }
    /* It looks like a range from a class, which engines read differently. */
    if (!rc && whole && t->from[0] == '-' && t->from[1] != ']')
        return refuse(t, t->from, strnlen(t->from, 2));
    return rc;
}

/* Reads the items of a class up to "&&" or ']'. */
static int class_items(struct translation *t, struct weft_charset *set,
                       int depth)
{
    int rc = 0;
    while (!rc && *t->from && *t->from != ']'
           && strncmp(t->from, "&&", 2) != 0)
        rc = class_item(t, set, depth);
    if (!rc && !*t->from)
        rc = wrong(t, "a '[' without its ']'");
    return rc;
}

/* Reads [...], with classes in it and intersections. */
static int class(struct translation *t, struct weft_charset *out, int depth)
{
    bool inverse = t->from[1] == '^';
    int rc = 0;
    if (t->from[1] == ':' || depth > MAX_CLASSES)
        return refuse(t, t->from, 2);
    t->from += inverse ? 2 : 1;
    if (*t->from == ']') {
        rc = add(t, out, ']', ']');
        t->from++;
    }
    if (!rc)
        rc = class_items(t, out, depth);
    while (!rc && *t->from == '&') {
        struct weft_charset other = {0};
        t->from += 2;
        rc = class_items(t, &other, depth);
        if (!rc)
            rc = weft_charset_intersect(out, &other, t->err);
        weft_charset_release(&other);
    }
    if (!rc)
        t->from++;
    return !rc && inverse ? weft_charset_invert(out, t->err) : rc;
}

/* Adds numbers that only Oniguruma's \w outside of brackets has. */
static int add_latin_numbers(struct translation *t, struct weft_charset *set,
                             bool inverse)
{
    int rc = inverse ? weft_charset_invert(set, t->err) : 0;
    if (!rc)
        rc = weft_charset_add(set, 0xb2, 0xb3, t->err);
    if (!rc)
        rc = weft_charset_add(set, 0xb9, 0xb9, t->err);
    if (!rc)
        rc = weft_charset_add(set, 0xbc, 0xbe, t->err);
    return !rc && inverse ? weft_charset_invert(set, t->err) : rc;
}

static int put_class(struct translation *t)
{
    struct weft_charset set = {0};
    bool word = t->from[0] == '\\' && (t->from[1] | 0x20) == 'w';
    bool inverse = t->from[1] == 'W';
    int rc = *t->from == '[' ? class(t, &set, 0) : shorthand(t, &set);
    if (!rc && word)
        rc = add_latin_numbers(t, &set, inverse);
    bool one = set.n > 0 && set.range[0].first < 0x80
            && (set.range[0].first | 0x20)
                   == (set.range[set.n - 1].last | 0x20);
    if (!rc && t->fold[t->depth] && one)
        rc = check_ligature(t, set.range[0].first);
    else
        t->last = 0;
    if (!rc)
        return put_set(t, &set);
    weft_charset_release(&set);
    return rc;
}

/* ---- Groups and repeats ----------------------------------------------- */

/* Reads the beginning of a group, up to its content. */
static int group(struct translation *t)
{
    static const struct {
        const char *from, *to;
    } opening[] = {{"(?:", "(?:"},   {"(?=", "(?="},   {"(?!", "(?!"},
                   {"(?<=", "(?<="}, {"(?<!", "(?<!"}, {"(?>", "(?>"},
                   {"(?i:", "(?:"},  {"(?-i:", "(?:"}};
    if (t->from == t->start && strncmp(t->from, "(?i)", 4) == 0) {
        t->fold[0] = true; /* only here both apply it to the whole pattern */
        t->from += 4;
        return 0;
    }
    if (t->depth == MAX_GROUPS)
        return refuse(t, "((((...", 7);
    t->depth++;
    t->fold[t->depth] = t->fold[t->depth - 1];
    if (t->from[1] != '?')
        return swap(t, 1, "(?:"); /* what a group captures is not used */
    for (size_t i = 0; i < sizeof opening / sizeof opening[0]; i++) {
        size_t n = strlen(opening[i].from);
        if (strncmp(t->from, opening[i].from, n) != 0)
            continue;
        if (t->from[n - 2] == 'i')
            t->fold[t->depth] = t->from[n - 3] != '-';
        return swap(t, n, opening[i].to);
    }
    return refuse(t, t->from, strnlen(t->from, 3));
}

/* Reads {n}, {n,}, {n,m} or Ruby's {,m}; any other brace is a character. */
static int braces(struct translation *t)
{
    const char *p = t->from + 1;
    size_t low = strspn(p, "0123456789");
    const char *after = p + low;
    size_t high = 0;
    bool fixed = *after != ',';
    if (*after == ',') {
        high = strspn(after + 1, "0123456789");
        after += 1 + high;
    }
    if (*after != '}' || low + high == 0 || t->from == t->start)
        return literal(t);
    /* Oniguruma repeats the repetition; for PCRE2 it is possessive or lazy. */
    if (after[1] == '+' || (fixed && after[1] == '?'))
        return refuse(t, t->from, (size_t) (after + 2 - t->from));
    if (low == 0) {
        int rc = put(t, "{0");
        t->from++;
        return rc ? rc : copy(t, (size_t) (after + 1 - t->from));
    }
    return copy(t, (size_t) (after + 1 - t->from));
}

/* ---- The whole -------------------------------------------------------- */

static int next(struct translation *t)
{
    char c = *t->from;
    if (c == '\\' && t->from[1] && strchr("AzZ", t->from[1])) {
        t->last = 0;
        return copy(t, 2);
    }
    if (c == '[' || is_shorthand(t->from))
        return put_class(t);
    if (c == '(')
        return group(t);
    if (c == ')') {
        t->depth -= t->depth > 0;
        return copy(t, 1);
    }
    if (!strchr("{*+?|.^$", c))
        return literal(t);
    t->last = 0;
    return c == '{' ? braces(t) : copy(t, 1);
}

/* Writes a set of bytes as a class of PCRE2, at most 4 * 256 + 2 characters;
 * returns the end. */
static char *spell(const bool member[256], char *out)
{
    char *start = out;
    int n = 0;
    *out++ = '[';
    for (int b = 0; b < 256; b++)
        if (member[b]) {
            out += sprintf(out, "\\x%02x", (unsigned) b);
            n++;
        }
    *out++ = ']';
    if (n == 0) /* it never matches */
        out = start + sprintf(start, "(?!)");
    return out;
}

static int assemble(struct translation *t, struct weft_pattern *out)
{
    bool(*member)[256] = NULL;
    size_t room = 1;
    int rc = weft_alphabet_create(t->set, t->n_sets, &out->alphabet, &member,
                                  t->err);
    if (rc > 0)
        return weft_err_set(t->err, WEFT_EUNSUPPORTED,
                            "%s: a regular expression that tells more than "
                            "254 kinds of characters apart: '%.200s'",
                            t->subject, t->start);
    if (rc)
        return rc;
    for (size_t i = 0; i < t->n_parts; i++)
        room += t->part[i].text ? t->part[i].n : 4 * 256 + 2;
    out->bytes = weft_alloc(room, 1);
    char *at = out->bytes;
    for (size_t i = 0; at && i < t->n_parts; i++) {
        const struct part *p = &t->part[i];
        if (p->text) {
            memcpy(at, p->text, p->n);
            at += p->n;
        } else {
            at = spell(member[p->set], at);
        }
    }
    weft_free(member);
    if (!at)
        return weft_err_nomem(t->err, "a pattern", room);
    *at = 0;
    return 0;
}

int weft_pattern_translate(const char *pattern, bool plain,
                           const char *subject, struct weft_pattern *out,
                           struct weft_err *err)
{
    struct translation *t = weft_alloc(1, sizeof *t);
    struct weft_pattern made = {0};
    int rc = 0;
    if (!t)
        return weft_err_nomem(err, "a pattern", sizeof *t);
    *t = (struct translation){
        .from = pattern, .start = pattern, .subject = subject, .err = err};
    while (!rc && *t->from) {
        if (!plain) {
            rc = next(t);
            continue;
        }
        struct weft_charset set = {0};
        uint32_t c = 0;
        int length = weft_utf8_next(t->from, strlen(t->from), &c);
        t->from += length > 0 ? length : 0;
        rc = length > 0 ? weft_charset_add(&set, c, c, err)
                        : wrong(t, "bytes that are not UTF-8");
        if (!rc)
            rc = put_set(t, &set);
    }
    if (!rc)
        rc = assemble(t, &made);
    for (size_t i = 0; i < t->n_sets; i++)
        weft_charset_release(&t->set[i]);
    weft_free(t->set);
    weft_free(t->part);
    weft_free(t);
    if (rc)
        weft_pattern_release(&made);
    else
        *out = made;
    return rc;
}

void weft_pattern_release(struct weft_pattern *pattern)
{
    weft_alphabet_free(pattern->alphabet);
    weft_free(pattern->bytes);
    *pattern = (struct weft_pattern){0};
}
