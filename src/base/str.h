/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts as struct weft_str (weft.h): n bytes of which any may be zero, and a
 * zero byte behind them. What a model writes or a data file holds is such a
 * text; strlen() and its like would end it at its first zero byte.
 */
#ifndef WEFT_BASE_STR_H
#define WEFT_BASE_STR_H

#include <string.h>

#include "base/err.h"

/* Makes a text of a C string, which it borrows; NULL gives the text that is
 * none. */
static inline struct weft_str weft_str_of(const char *s)
{
    return (struct weft_str){s, s ? strlen(s) : 0};
}

/* True for equal bytes; a text that is none equals only another such. */
static inline bool weft_str_equal(struct weft_str a, struct weft_str b)
{
    return a.n == b.n && !a.s == !b.s
        && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

/* The rest of a text behind its first n <= text.n bytes. Borrowed. */
static inline struct weft_str weft_str_after(struct weft_str text, size_t n)
{
    return (struct weft_str){text.s + n, text.n - n};
}

/* True when the text begins with a C string. */
bool weft_str_starts(struct weft_str text, const char *with);

/* The byte offset where a C string, which is not empty, first occurs in the
 * text, or SIZE_MAX. */
size_t weft_str_find(struct weft_str text, const char *what);

/* Copies a text and puts a zero byte behind it. The caller releases it.
 * Errors: WEFT_ENOMEM. */
int weft_str_copy(struct weft_str from, struct weft_str *out,
                  struct weft_err *err);

/* Frees a text that is owned (a copy, or memory of weft_alloc()), and makes
 * it none. */
void weft_str_release(struct weft_str *text);

#endif
