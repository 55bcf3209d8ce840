/* SPDX-License-Identifier: Apache-2.0 */
/* What tokenizers need of Unicode: UTF-8, normal form C, two classes. */
#ifndef WEFT_TEXT_UNICODE_UNICODE_H
#define WEFT_TEXT_UNICODE_UNICODE_H

#include "base/err.h"

/* Reads the character at p (n > 0 bytes left) and returns how many bytes it
 * has, 1..4. If they are not UTF-8, returns minus the number of bytes to skip,
 * which is chosen as in Unicode's chapter 3.9, Rust and Python. */
int weft_utf8_next(const char *p, size_t n, uint32_t *out);

/* Writes a character (below 0x110000) and returns how many bytes it has,
 * 1..4. */
int weft_utf8_put(uint32_t c, char out[4]);

/* True when all n bytes are UTF-8. */
bool weft_utf8_valid(const char *p, size_t n);

/* Copies a text, zero-terminated, with U+FFFD for each part that is not UTF-8
 * (see weft_utf8_next()). Caller frees. Errors: WEFT_ENOMEM. */
int weft_utf8_repair(const char *p, size_t n, char **out, size_t *n_out,
                     struct weft_err *err);

/* Property White_Space. */
bool weft_unicode_is_space(uint32_t c);
/* A word character of Unicode's regular expressions: Alphabetic, marks,
 * decimal digits, connectors, joiners. */
bool weft_unicode_is_word(uint32_t c);

/* True when UTF-8 text is in normal form C for certain; false: it may be
 * (Unicode's quick check). */
bool weft_unicode_nfc_quick(const char *p, size_t n);
/* Converts UTF-8 text to normal form C, zero-terminated. Caller frees. Errors:
 * WEFT_ENOMEM. */
int weft_unicode_nfc(const char *p, size_t n, char **out, size_t *n_out,
                     struct weft_err *err);

#endif
