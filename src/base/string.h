/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A string to which text is appended (base/str.h has those that only are
 * read), and how texts are written as JSON and HTML. When memory runs out,
 * further text is dropped, and weft_string_check() returns the error at the
 * end.
 */
#ifndef WEFT_BASE_STRING_H
#define WEFT_BASE_STRING_H

#include <stdio.h>

#include "base/str.h"

struct weft_string {
    char *data; /* n bytes and a zero byte; NULL when empty */
    size_t n, room;
    bool failed;
};

void weft_string_release(struct weft_string *text);
/* Returns WEFT_ENOMEM if memory ran out, else 0; `what` is for the error's
 * text. */
int weft_string_check(const struct weft_string *text, const char *what,
                      struct weft_err *err);

void weft_string_add(struct weft_string *text, const char *s);
void weft_string_add_n(struct weft_string *text, const char *s, size_t n);
void weft_string_addf(struct weft_string *text, const char *fmt, ...)
    WEFT_PRINTF(2, 3);

/* Appends a JSON string with its quotes. Valid UTF-8 stays as it is, any other
 * byte becomes U+FFFD. s NULL: null. */
void weft_string_add_json(struct weft_string *text, const char *s);
/* The same for a text that may have zero bytes, which become \u0000. */
void weft_string_add_json_str(struct weft_string *text, struct weft_str s);
/* Appends a JSON number with the fewest digits that are read back as the same
 * bits; null if it is not finite. */
void weft_string_add_number(struct weft_string *text, double x);
/* The same with float's precision. */
void weft_string_add_float(struct weft_string *text, float x);
/* Appends text for HTML: & < > " are escaped; control characters and bytes
 * that are not UTF-8 become U+FFFD. */
void weft_string_add_html(struct weft_string *text, const char *s);
void weft_string_add_html_str(struct weft_string *text, struct weft_str s);

/* Ends a stream to memory, of open_memstream(): its text, which the caller
 * frees; NULL: memory ran out. */
char *weft_string_end_stream(FILE *f, char **text);

#endif
