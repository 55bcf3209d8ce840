/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of characters (code points up to U+10FFFF) as sorted ranges, and the
 * alphabet of a regular expression: its sets divide all characters into a few
 * classes of which every set holds all or nothing. Each class is a byte, and a
 * text becomes a string of such bytes, which any matcher of bytes can search
 * without knowing Unicode.
 */
#ifndef WEFT_TEXT_UNICODE_CHARSET_H
#define WEFT_TEXT_UNICODE_CHARSET_H

#include "base/err.h"

struct weft_char_range {
    uint32_t first, last;
};

/* Zero it before use. Sorted, and ranges never touch, after each function. */
struct weft_charset {
    struct weft_char_range *range;
    size_t n, capacity;
};

void weft_charset_release(struct weft_charset *set);

/* Errors of all: WEFT_ENOMEM. */
int weft_charset_add(struct weft_charset *set, uint32_t first, uint32_t last,
                     struct weft_err *err);
int weft_charset_add_all(struct weft_charset *set,
                         const struct weft_charset *other,
                         struct weft_err *err);
int weft_charset_invert(struct weft_charset *set, struct weft_err *err);
/* Keeps what `other` has as well. */
int weft_charset_intersect(struct weft_charset *set,
                           const struct weft_charset *other,
                           struct weft_err *err);
/* Adds a general category ("L", "Lu", "Uppercase_Letter"), a script ("Han",
 * "Hani") or "Any"; case, blanks, '_' and '-' do not matter. Returns 1 when
 * there is no such property. */
int weft_charset_add_property(struct weft_charset *set, const char *name,
                              size_t n, struct weft_err *err);
/* White_Space (\s), decimal digits (\d), word characters (\w): 's', 'd', 'w'
 * as Oniguruma has them. */
int weft_charset_add_class(struct weft_charset *set, char name,
                           struct weft_err *err);

/* ---- Alphabets -------------------------------------------------------- */

struct weft_alphabet;

/* The alphabet of n sets. *member_out (n x 256, caller frees): whether set i
 * has the characters of a byte. The line feed alone is the byte 10, and no
 * byte is 0. Returns 1 when the sets divide characters into more than 254
 * classes. Errors: WEFT_ENOMEM. */
int weft_alphabet_create(const struct weft_charset *set, size_t n,
                         struct weft_alphabet **out, bool (**member_out)[256],
                         struct weft_err *err);
void weft_alphabet_free(struct weft_alphabet *alphabet); /* NULL is allowed */

/* The bytes of n bytes of UTF-8 text, one for each character, into out (room
 * for n). Returns the number of characters. */
size_t weft_alphabet_spell(const struct weft_alphabet *alphabet,
                           const char *text, size_t n, unsigned char *out);

#endif
