/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: one negative code and one sentence.
 *
 * A function that can fail for a reason a person must read takes a
 * `struct weft_err *` (may be NULL) as its last argument and returns 0 or a
 * negative WEFT_E code. The place that finds the error writes the text;
 * callers pass the code up, or put the subject in front of it with
 * weft_err_prefix().
 */
#ifndef WEFT_BASE_ERR_H
#define WEFT_BASE_ERR_H

#include <stdarg.h>

#include "base/compiler.h"
#include "weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the text (printf format; no full stop, no newline) and returns
 * `code`, so that `return weft_err_set(err, WEFT_EINVAL, "...")` reads well.
 * err may be NULL. The text is made printable (base/utf8.h), as arguments may
 * quote files and programs; one that is too long for the buffer ends in
 * "...". */
int weft_err_set(struct weft_err *err, int code, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* Puts a context in front of the text already in `err` ("ctx: text").
 * Returns err->code, or 0 when err is NULL or clear. */
int weft_err_prefix(struct weft_err *err, const char *fmt, ...)
    WEFT_PRINTF(2, 3);

/* Out of memory while allocating `bytes` for `what`. Returns WEFT_ENOMEM. */
int weft_err_nomem(struct weft_err *err, const char *what, size_t bytes);

/* A system call failed: "cannot <verb> '<path>': strerror(errno)".
 * Returns WEFT_EIO (WEFT_ENOTFOUND for ENOENT, WEFT_EFULL for ENOSPC and
 * EDQUOT, WEFT_ENOMEM for ENOMEM). */
int weft_err_sys(struct weft_err *err, const char *verb, const char *path);

/* Ends the program when cond is false: for Weft's own bugs, never for user
 * input. It is always compiled in. */
#define weft_assert(cond)                                                    \
    ((cond) ? (void) 0 : weft_assert_failed(#cond, __FILE__, __LINE__))
WEFT_NORETURN void weft_assert_failed(const char *cond, const char *file,
                                      int line);

#ifdef __cplusplus
}
#endif
#endif
