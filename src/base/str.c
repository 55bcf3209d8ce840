/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/alloc.h"

bool weft_str_starts(struct weft_str text, const char *with)
{
    size_t n = strlen(with);
    return text.n >= n && memcmp(text.s, with, n) == 0;
}

size_t weft_str_find(struct weft_str text, const char *what)
{
    for (size_t at = 0; at < text.n; at++) {
        const char *hit = memchr(text.s + at, what[0], text.n - at);
        if (!hit)
            break;
        at = (size_t) (hit - text.s);
        if (weft_str_starts(weft_str_after(text, at), what))
            return at;
    }
    return SIZE_MAX;
}

int weft_str_copy(struct weft_str from, struct weft_str *out,
                  struct weft_err *err)
{
    char *copy = from.s ? weft_strndup(from.s, from.n) : NULL;
    if (from.s && !copy)
        return weft_err_nomem(err, "a text", from.n + 1);
    *out = (struct weft_str){copy, from.n};
    return 0;
}

void weft_str_release(struct weft_str *text)
{
    weft_free((char *) (uintptr_t) text->s);
    *text = (struct weft_str){NULL, 0};
}
