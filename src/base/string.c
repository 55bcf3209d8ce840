/* SPDX-License-Identifier: Apache-2.0 */
#include "base/string.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

void weft_string_release(struct weft_string *text)
{
    weft_free(text->data);
    *text = (struct weft_string){0};
}

int weft_string_check(const struct weft_string *text, const char *what,
                      struct weft_err *err)
{
    return text->failed ? weft_err_nomem(err, what, text->n) : 0;
}

/* Room for n more bytes and a zero byte. */
static bool reserve(struct weft_string *t, size_t n)
{
    if (t->failed)
        return false;
    if (n >= SIZE_MAX / 2 - t->n) {
        t->failed = true;
        return false;
    }
    size_t wanted = t->n + n + 1;
    if (wanted <= t->room)
        return true;
    size_t room = t->room ? t->room : 256;
    while (room < wanted)
        room *= 2;
    char *data = weft_realloc(t->data, room, 1);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->room = room;
    return true;
}

void weft_string_add_n(struct weft_string *text, const char *s, size_t n)
{
    if (!reserve(text, n))
        return;
    if (n > 0) /* s may be NULL otherwise */
        memcpy(text->data + text->n, s, n);
    text->n += n;
    text->data[text->n] = 0;
}

void weft_string_add(struct weft_string *text, const char *s)
{
    weft_string_add_n(text, s, strlen(s));
}

void weft_string_addf(struct weft_string *text, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(text, (size_t) n)) {
        vsnprintf(text->data + text->n, (size_t) n + 1, fmt, again);
        text->n += (size_t) n;
    }
    va_end(again);
}

/* Calls `escape` for every ASCII character; if it returns false, the character
 * is appended as it is. */
static void add_escaped(struct weft_string *text, const char *s, size_t n,
                        bool (*escape)(struct weft_string *text, char c))
{
    size_t start = 0, i = 0;
    while (i < n) {
        size_t len = weft_utf8_length(s + i, n - i);
        if (len > 1) {
            i += len;
            continue;
        }
        weft_string_add_n(text, s + start, i - start);
        if (len == 0)
            weft_string_add(text, "\xef\xbf\xbd");
        else if (!escape(text, s[i]))
            weft_string_add_n(text, s + i, 1);
        start = ++i;
    }
    weft_string_add_n(text, s + start, n - start);
}

static bool escape_json(struct weft_string *text, char c)
{
    switch (c) {
    case '"':
        weft_string_add(text, "\\\"");
        return true;
    case '\\':
        weft_string_add(text, "\\\\");
        return true;
    case '\n':
        weft_string_add(text, "\\n");
        return true;
    case '\t':
        weft_string_add(text, "\\t");
        return true;
    case '\r':
        weft_string_add(text, "\\r");
        return true;
    default:
        if ((unsigned char) c >= 0x20 && c != 0x7f)
            return false;
        weft_string_addf(text, "\\u%04x", (unsigned) c);
        return true;
    }
}

void weft_string_add_json_str(struct weft_string *text, struct weft_str s)
{
    if (!s.s) {
        weft_string_add(text, "null");
        return;
    }
    weft_string_add(text, "\"");
    add_escaped(text, s.s, s.n, escape_json);
    weft_string_add(text, "\"");
}

void weft_string_add_json(struct weft_string *text, const char *s)
{
    weft_string_add_json_str(text, weft_str_of(s));
}

static bool escape_html(struct weft_string *text, char c)
{
    const char *as = c == '&' ? "&amp;"
                   : c == '<' ? "&lt;"
                   : c == '>' ? "&gt;"
                   : c == '"' ? "&quot;"
                              : NULL;
    if (!as && ((unsigned char) c < 0x20 || c == 0x7f) && c != '\n'
        && c != '\t')
        as = "\xef\xbf\xbd";
    if (!as)
        return false;
    weft_string_add(text, as);
    return true;
}

void weft_string_add_html_str(struct weft_string *text, struct weft_str s)
{
    add_escaped(text, s.s, s.n, escape_html);
}

void weft_string_add_html(struct weft_string *text, const char *s)
{
    weft_string_add_html_str(text, weft_str_of(s));
}

void weft_string_add_number(struct weft_string *text, double x)
{
    char out[40];
    if (!isfinite(x)) {
        weft_string_add(text, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, sizeof out, "%.*g", digits, x);
        if (strtod(out, NULL) == x)
            break;
    }
    /* "-0" would be read as an integer, and lose its sign. */
    weft_string_add(text, x == 0 && signbit(x) ? "-0.0" : out);
}

void weft_string_add_float(struct weft_string *text, float x)
{
    char out[40];
    if (!isfinite(x)) {
        weft_string_add(text, "null");
        return;
    }
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(out, sizeof out, "%.*g", digits, (double) x);
        if (strtof(out, NULL) == x)
            break;
    }
    weft_string_add(text, x == 0 && signbit(x) ? "-0.0" : out);
}

char *weft_string_end_stream(FILE *f, char **text)
{
    bool failed = ferror(f) != 0;
    if (fclose(f) == 0 && !failed)
        return *text;
    weft_free(*text);
    return NULL;
}
