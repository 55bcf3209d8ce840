/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A string that grows. Memory that runs out is remembered, further text is
 * dropped, and weft_text_check() says so once at the end.
 */
#ifndef WEFT_RUN_TEXT_H
#define WEFT_RUN_TEXT_H

#include "base/str.h"

struct weft_text {
    char *data; /* n bytes and a zero byte; NULL when empty */
    size_t n, room;
    bool failed;
};

void weft_text_release(struct weft_text *text);
/* 0, or WEFT_ENOMEM with `what` in the sentence. */
int weft_text_check(const struct weft_text *text, const char *what,
                    struct weft_err *err);

void weft_text_add(struct weft_text *text, const char *s);
void weft_text_add_n(struct weft_text *text, const char *s, size_t n);
void weft_text_addf(struct weft_text *text, const char *fmt, ...)
    WEFT_PRINTF(2, 3);

/* A JSON string with its quotes, pure ASCII but for valid UTF-8; each byte
 * that is not UTF-8 becomes U+FFFD. NULL: null. */
void weft_text_add_json(struct weft_text *text, const char *s);
/* The same of a text, whose zero bytes become \u0000. */
void weft_text_add_json_str(struct weft_text *text, struct weft_str s);
/* A JSON number with the fewest digits that read back to the same bits;
 * null when it is not finite. */
void weft_text_add_number(struct weft_text *text, double x);
/* The same with float's precision. */
void weft_text_add_float(struct weft_text *text, float x);
/* Text for HTML: & < > " are escaped, control characters and what is not
 * UTF-8 become U+FFFD. */
void weft_text_add_html(struct weft_text *text, const char *s);
void weft_text_add_html_str(struct weft_text *text, struct weft_str s);

#endif
