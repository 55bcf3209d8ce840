/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Formats the text as one printable line, whatever the arguments quote. */
static void format(char *out, size_t size, const char *fmt, va_list ap)
{
    char text[sizeof((struct weft_err *) 0)->text + 1]; /* 1: shows a cut */
    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n < 0)
        n = 0;
    size_t length = (size_t) n < sizeof text ? (size_t) n : sizeof text - 1;
    weft_utf8_printable(text, length, out, size);
}

int weft_err_set(struct weft_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        char text[sizeof err->text]; /* an argument may be err->text itself */
        va_start(ap, fmt);
        format(text, sizeof text, fmt, ap);
        va_end(ap);
        err->code = code;
        memcpy(err->text, text, strlen(text) + 1);
    }
    return code;
}

int weft_err_prefix(struct weft_err *err, const char *fmt, ...)
{
    if (!err || err->code == 0)
        return 0;
    char ctx[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    format(ctx, sizeof ctx, fmt, ap);
    va_end(ap);
    return weft_err_set(err, err->code, "%s: %s", ctx, err->text);
}

int weft_err_nomem(struct weft_err *err, const char *what, size_t bytes)
{
    return weft_err_set(err, WEFT_ENOMEM,
                        "out of memory: %s needs %.1f MiB more", what,
                        (double) bytes / 1048576.0);
}

int weft_err_sys(struct weft_err *err, const char *verb, const char *path)
{
    int saved = errno;
    int code = saved == ENOENT                    ? WEFT_ENOTFOUND
             : saved == ENOSPC || saved == EDQUOT ? WEFT_EFULL
             : saved == ENOMEM                    ? WEFT_ENOMEM
                                                  : WEFT_EIO;
    return weft_err_set(err, code, "cannot %s '%s': %s", verb, path,
                        strerror(saved));
}

void weft_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "weft: internal error at %s:%d: '%s' does not hold\n",
            file, line, cond);
    abort();
}
