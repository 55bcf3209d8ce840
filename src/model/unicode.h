/* SPDX-License-Identifier: Apache-2.0 */
/* The little Unicode that tokenizers need: UTF-8, NFC, two classes. */
#ifndef WEFT_MODEL_UNICODE_H
#define WEFT_MODEL_UNICODE_H

#include "base/err.h"

/* Reads the character at p (n > 0 bytes left) and returns its bytes, 1..4.
 * What is not UTF-8 gives minus the bytes of the maximal wrong part (as
 * Unicode's chapter 3.9 recommends, and Rust and Python do). */
int weft_utf8_next(const char *p, size_t n, uint32_t *out);

/* Writes a character (below 0x110000) and returns its bytes, 1..4. */
int weft_utf8_put(uint32_t c, char out[4]);

/* True when all n bytes are UTF-8. */
bool weft_utf8_valid(const char *p, size_t n);

/* Text with every maximal wrong part replaced by U+FFFD, zero-terminated.
 * Caller frees. Errors: WEFT_ENOMEM. */
int weft_utf8_repair(const char *p, size_t n, char **out, size_t *n_out,
                     struct weft_err *err);

/* Property White_Space. */
bool weft_unicode_is_space(uint32_t c);
/* A word character of Unicode's regular expressions: Alphabetic, marks,
 * decimal digits, connectors, joiners. */
bool weft_unicode_is_word(uint32_t c);

/* True when UTF-8 text is surely in normal form C already (quick check). */
bool weft_unicode_nfc_quick(const char *p, size_t n);
/* UTF-8 text in normal form C, zero-terminated. Caller frees. Errors:
 * WEFT_ENOMEM. */
int weft_unicode_nfc(const char *p, size_t n, char **out, size_t *n_out,
                     struct weft_err *err);

#endif
