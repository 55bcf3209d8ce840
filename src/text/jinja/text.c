/* SPDX-License-Identifier: Apache-2.0 */
/* Texts: what values print as, and what is done to strings. As in Python. */
#include "text/jinja/impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode/unicode.h"

/* ---- A text that grows ------------------------------------------------ */

void weft_j_add(struct weft_jstate *st, struct weft_jout *out, const char *s,
                size_t n)
{
    if (n > out->capacity - out->n) {
        size_t capacity = 2 * out->capacity + n + 64;
        char *more = weft_j_alloc(st, capacity, 1);
        if (out->n > 0)
            memcpy(more, out->s, out->n);
        out->s = more;
        out->capacity = capacity;
    }
    if (n > 0)
        memcpy(out->s + out->n, s, n);
    out->n += n;
}

void weft_j_add_text(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_str text)
{
    weft_j_add(st, out, text.s, text.n);
}

static void add_string(struct weft_jstate *st, struct weft_jout *out,
                       const char *s)
{
    weft_j_add(st, out, s, strlen(s));
}

struct weft_jvalue weft_j_taken(const struct weft_jout *out)
{
    return weft_j_string(out->n ? out->s : "", out->n);
}

/* ---- str() and repr() ------------------------------------------------- */

/* The fewest digits that read back to f. */
static void add_float(struct weft_jstate *st, struct weft_jout *out, double f)
{
    char text[40], digits[40];
    int precision = 0;
    if (!isfinite(f)) {
        add_string(st, out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(text, sizeof text, "%.*e", precision, f);
    while (strtod(text, NULL) != f && ++precision < 17);
    char *e = strchr(text, 'e');
    int exponent = atoi(e + 1);
    if (exponent < -4 || exponent >= 16) {
        weft_j_add(st, out, text, (size_t) (e - text));
        snprintf(digits, sizeof digits, "e%c%02d", exponent < 0 ? '-' : '+',
                 abs(exponent));
        add_string(st, out, digits);
        return;
    }
    int decimals = precision - exponent;
    snprintf(digits, sizeof digits, "%.*f", decimals > 1 ? decimals : 1, f);
    add_string(st, out, digits);
}

/* Characters that repr() writes as escapes: controls, formats, spaces other
 * than ' ', private use. NOTE: it does not know which codes are unassigned. */
static bool is_escaped(uint32_t c)
{
    static const uint32_t range[][2] = {
        {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
        {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},
        {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},
        {0xe000, 0xf8ff},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},
        {0xfffe, 0xffff},   {0x110bd, 0x110bd}, {0x1d173, 0x1d17a},
        {0xe0000, 0x10ffff}};
    if (c < ' ')
        return true;
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return true;
    return false;
}

static void add_quoted(struct weft_jstate *st, struct weft_jout *out,
                       struct weft_str s)
{
    bool two = memchr(s.s, '\'', s.n) && !memchr(s.s, '"', s.n);
    char quote = two ? '"' : '\'', text[16];
    weft_j_add(st, out, &quote, 1);
    for (size_t i = 0; i < s.n;) {
        uint32_t c;
        int n = weft_utf8_next(s.s + i, s.n - i, &c);
        if (n < 0) { /* JSON and templates are UTF-8 */
            n = -n;
            c = 0xfffd;
        }
        if (c == '\n' || c == '\r' || c == '\t')
            add_string(st, out,
                       c == '\n'   ? "\\n"
                       : c == '\r' ? "\\r"
                                   : "\\t");
        else if (c == (uint32_t) quote || c == '\\') {
            snprintf(text, sizeof text, "\\%c", (int) c);
            add_string(st, out, text);
        } else if (is_escaped(c)) {
            snprintf(text, sizeof text,
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     c);
            add_string(st, out, text);
        } else {
            weft_j_add(st, out, s.s + i, (size_t) n);
        }
        i += (size_t) n;
    }
    weft_j_add(st, out, &quote, 1);
}

static void add_list(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_jvalue v)
{
    bool tuple = v.kind == WEFT_J_TUPLE;
    add_string(st, out, tuple ? "(" : "[");
    for (size_t i = 0; i < v.list->n; i++) {
        add_string(st, out, i ? ", " : "");
        weft_j_add_repr(st, out, v.list->item[i]);
    }
    add_string(st, out, tuple ? v.list->n == 1 ? ",)" : ")" : "]");
}

static void add_dict(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_jvalue v)
{
    add_string(st, out, "{");
    for (size_t i = 0; i < v.dict->n; i++) {
        add_string(st, out, i ? ", " : "");
        weft_j_add_repr(st, out, v.dict->pair[i].key);
        add_string(st, out, ": ");
        weft_j_add_repr(st, out, v.dict->pair[i].value);
    }
    add_string(st, out, "}");
}

void weft_j_add_repr(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_jvalue v)
{
    char text[32];
    weft_j_enter(st);
    switch (v.kind) {
    case WEFT_J_UNDEFINED:
        add_string(st, out, "Undefined");
        break;
    case WEFT_J_NONE:
        add_string(st, out, "None");
        break;
    case WEFT_J_BOOL:
        add_string(st, out, v.truth ? "True" : "False");
        break;
    case WEFT_J_INT:
        snprintf(text, sizeof text, "%lld", (long long) v.i);
        add_string(st, out, text);
        break;
    case WEFT_J_FLOAT:
        add_float(st, out, v.f);
        break;
    case WEFT_J_STRING:
        add_quoted(st, out, v.text);
        break;
    case WEFT_J_LIST:
    case WEFT_J_TUPLE:
        add_list(st, out, v);
        break;
    case WEFT_J_DICT:
        add_dict(st, out, v);
        break;
    default:
        weft_j_fail(st, WEFT_EUNSUPPORTED, "Weft does not print %s",
                    weft_j_type(v));
    }
    weft_j_leave(st);
}

void weft_j_add_value(struct weft_jstate *st, struct weft_jout *out,
                      struct weft_jvalue v)
{
    if (weft_j_is_string(v))
        weft_j_add_text(st, out, v.text);
    else if (v.kind != WEFT_J_UNDEFINED)
        weft_j_add_repr(st, out, v);
}

struct weft_str weft_j_str(struct weft_jstate *st, struct weft_jvalue v)
{
    struct weft_jout out = {0};
    if (weft_j_is_string(v))
        return v.text;
    weft_j_add_value(st, &out, v);
    return weft_j_taken(&out).text;
}

/* ---- json.dumps() ----------------------------------------------------- */

static void add_json_string(struct weft_jstate *st, struct weft_jout *out,
                            struct weft_str s, bool ascii)
{
    static const char short_of[] = "\"\\\b\f\n\r\t", *known,
                      letter[] = "\"\\bfnrt";
    char text[16];
    add_string(st, out, "\"");
    for (size_t i = 0; i < s.n;) {
        uint32_t c;
        int n = weft_utf8_next(s.s + i, s.n - i, &c);
        known = c && n == 1 ? strchr(short_of, (int) c) : NULL;
        if (n < 0) {
            n = -n;
            c = 0xfffd;
        }
        if (known) {
            snprintf(text, sizeof text, "\\%c", letter[known - short_of]);
            add_string(st, out, text);
        } else if (c < ' ' || (ascii && c > 126)) {
            if (c > 0xffff)
                snprintf(text, sizeof text, "\\u%04x\\u%04x",
                         0xd800 + ((c - 0x10000) >> 10),
                         0xdc00 + (c & 0x3ff));
            else
                snprintf(text, sizeof text, "\\u%04x", c);
            add_string(st, out, text);
        } else {
            weft_j_add(st, out, s.s + i, (size_t) n);
        }
        i += (size_t) n;
    }
    add_string(st, out, "\"");
}

/* A newline and the indent, where there is one. */
static void add_break(struct weft_jstate *st, struct weft_jout *out,
                      const struct weft_jjson *how, int depth)
{
    if (!how->indented)
        return;
    add_string(st, out, "\n");
    for (int i = 0; i < depth; i++)
        weft_j_add_text(st, out, how->indent);
}

static void add_json_at(struct weft_jstate *st, struct weft_jout *out,
                        struct weft_jvalue v, const struct weft_jjson *how,
                        int depth);

static void add_json_key(struct weft_jstate *st, struct weft_jout *out,
                         struct weft_jvalue key, const struct weft_jjson *how)
{
    struct weft_jout text = {0};
    if (key.kind == WEFT_J_TUPLE || key.kind == WEFT_J_UNDEFINED)
        weft_j_fail(st, WEFT_EINVAL, "tojson: %s as a key", weft_j_type(key));
    if (key.kind == WEFT_J_STRING)
        text = (struct weft_jout){(char *) (uintptr_t) key.text.s, key.text.n,
                                  key.text.n};
    else
        add_json_at(st, &text, key, how, 0);
    add_json_string(st, out, weft_j_taken(&text).text, how->ascii);
}

/* Pairs by their keys: a stable insertion sort, mappings are small. */
static struct weft_jpair *sorted(struct weft_jstate *st,
                                 const struct weft_jdict *dict)
{
    struct weft_jpair *pair = weft_j_alloc(st, dict->n + 1, sizeof *pair);
    for (size_t i = 0; i < dict->n; i++) {
        size_t k = i;
        for (; k > 0
               && weft_j_compare(st, pair[k - 1].key, dict->pair[i].key, "<")
                      > 0;
             k--)
            pair[k] = pair[k - 1];
        weft_j_step(st, i - k);
        pair[k] = dict->pair[i];
    }
    return pair;
}

static void add_json_dict(struct weft_jstate *st, struct weft_jout *out,
                          struct weft_jvalue v, const struct weft_jjson *how,
                          int depth)
{
    const struct weft_jpair *pair = how->sort ? sorted(st, v.dict)
                                              : v.dict->pair;
    add_string(st, out, "{");
    for (size_t i = 0; i < v.dict->n; i++) {
        if (i > 0)
            weft_j_add_text(st, out, how->item);
        add_break(st, out, how, depth + 1);
        add_json_key(st, out, pair[i].key, how);
        weft_j_add_text(st, out, how->key);
        add_json_at(st, out, pair[i].value, how, depth + 1);
    }
    if (v.dict->n > 0)
        add_break(st, out, how, depth);
    add_string(st, out, "}");
}

static void add_json_list(struct weft_jstate *st, struct weft_jout *out,
                          struct weft_jvalue v, const struct weft_jjson *how,
                          int depth)
{
    add_string(st, out, "[");
    for (size_t i = 0; i < v.list->n; i++) {
        if (i > 0)
            weft_j_add_text(st, out, how->item);
        add_break(st, out, how, depth + 1);
        add_json_at(st, out, v.list->item[i], how, depth + 1);
    }
    if (v.list->n > 0)
        add_break(st, out, how, depth);
    add_string(st, out, "]");
}

static void add_json_at(struct weft_jstate *st, struct weft_jout *out,
                        struct weft_jvalue v, const struct weft_jjson *how,
                        int depth)
{
    weft_j_enter(st);
    switch (v.kind) {
    case WEFT_J_NONE:
        add_string(st, out, "null");
        break;
    case WEFT_J_BOOL:
        add_string(st, out, v.truth ? "true" : "false");
        break;
    case WEFT_J_FLOAT:
        if (!isfinite(v.f))
            add_string(st, out,
                       isnan(v.f) ? "NaN"
                       : v.f < 0  ? "-Infinity"
                                  : "Infinity");
        else
            add_float(st, out, v.f);
        break;
    case WEFT_J_INT:
        weft_j_add_repr(st, out, v);
        break;
    case WEFT_J_STRING:
    case WEFT_J_MARKUP:
        add_json_string(st, out, v.text, how->ascii);
        break;
    case WEFT_J_LIST:
    case WEFT_J_TUPLE:
        add_json_list(st, out, v, how, depth);
        break;
    case WEFT_J_DICT:
        add_json_dict(st, out, v, how, depth);
        break;
    default:
        weft_j_fail(st, WEFT_EINVAL, "tojson: %s cannot be JSON",
                    weft_j_type(v));
    }
    weft_j_leave(st);
}

void weft_j_add_json(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_jvalue v, const struct weft_jjson *how)
{
    add_json_at(st, out, v, how, 0);
}

/* ---- Strings ---------------------------------------------------------- */

size_t weft_j_chars(struct weft_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char) s.s[i] & 0xc0) != 0x80;
    return n;
}

size_t weft_j_char_offset(struct weft_str s, size_t i)
{
    size_t at = 0;
    for (; at < s.n && i > 0; i--)
        for (at++; at < s.n && ((unsigned char) s.s[at] & 0xc0) == 0x80;)
            at++;
    return at;
}

bool weft_j_is_space(uint32_t c)
{
    return weft_unicode_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

size_t weft_j_space(const char *s, size_t n)
{
    size_t at = 0;
    uint32_t c;
    int length;
    while (at < n && (length = weft_utf8_next(s + at, n - at, &c)) > 0
           && weft_j_is_space(c))
        at += (size_t) length;
    return at;
}

/* The character (n bytes at s) is to be stripped. */
static bool is_stripped(const char *s, size_t n, const struct weft_str *chars)
{
    uint32_t c;
    if (!chars)
        return weft_utf8_next(s, n, &c) > 0 && weft_j_is_space(c);
    return weft_j_search(*chars, (struct weft_str){s, n}, 0) != SIZE_MAX;
}

struct weft_str weft_j_strip(struct weft_str s, const struct weft_str *chars,
                             bool left, bool right)
{
    while (left && s.n > 0) {
        size_t n = weft_j_char_offset(s, 1);
        if (!is_stripped(s.s, n, chars))
            break;
        s.s += n;
        s.n -= n;
    }
    while (right && s.n > 0) {
        size_t start = s.n - 1;
        while (start > 0 && ((unsigned char) s.s[start] & 0xc0) == 0x80)
            start--;
        if (!is_stripped(s.s + start, s.n - start, chars))
            break;
        s.n = start;
    }
    return s;
}

size_t weft_j_search(struct weft_str a, struct weft_str b, size_t from)
{
    if (b.n > a.n || from > a.n - b.n)
        return SIZE_MAX;
    if (b.n == 0)
        return from;
    for (size_t i = from; i <= a.n - b.n; i++) {
        const char *at = memchr(a.s + i, b.s[0], a.n - b.n + 1 - i);
        if (!at)
            break;
        i = (size_t) (at - a.s);
        if (memcmp(at, b.s, b.n) == 0)
            return i;
    }
    return SIZE_MAX;
}

struct weft_jvalue weft_j_replace(struct weft_jstate *st, struct weft_str s,
                                  struct weft_str old, struct weft_str new,
                                  int64_t count)
{
    struct weft_jout out = {0};
    size_t at = 0;
    while (count != 0) {
        size_t next = weft_j_search(s, old, at);
        if (next == SIZE_MAX)
            break;
        weft_j_step(st, 1);
        count -= count > 0;
        weft_j_add(st, &out, s.s + at, next - at);
        weft_j_add_text(st, &out, new);
        at = next + old.n;
        if (old.n == 0) { /* between characters */
            struct weft_str rest = {s.s + at, s.n - at};
            size_t n = weft_j_char_offset(rest, 1);
            weft_j_add(st, &out, rest.s, n);
            at += n;
            if (n == 0)
                return weft_j_taken(&out);
        }
    }
    weft_j_add(st, &out, s.s + at, s.n - at);
    return weft_j_taken(&out);
}
