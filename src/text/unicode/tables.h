/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode as Hugging Face's tokenizers library knows it, so that token ids
 * depend on no other library's version: 16.0 for the classes of regular
 * expressions, 9.0 for normal form C. tools/gen-unicode writes
 * category.c, script.c and normal.c.
 *
 * A table of runs holds (first code point << 8 | value) for each run of code
 * points of one value, the first at 0; the last run ends at U+10FFFF.
 */
#ifndef WEFT_TEXT_UNICODE_TABLES_H
#define WEFT_TEXT_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

/* Values of weft_unicode_category: general categories. */
/* clang-format off */
enum weft_unicode_category {
    WEFT_LU, WEFT_LL, WEFT_LT, WEFT_LM, WEFT_LO, /* letters */
    WEFT_MN, WEFT_MC, WEFT_ME,                   /* marks */
    WEFT_ND, WEFT_NL, WEFT_NO,                   /* numbers */
    WEFT_PC, WEFT_PD, WEFT_PS, WEFT_PE, WEFT_PI, WEFT_PF, WEFT_PO,
    WEFT_SM, WEFT_SC, WEFT_SK, WEFT_SO, /* symbols */
    WEFT_ZS, WEFT_ZL, WEFT_ZP,          /* separators */
    WEFT_CC, WEFT_CF, WEFT_CS, WEFT_CO, WEFT_CN
};
/* clang-format on */

extern const uint32_t weft_unicode_category[];
extern const size_t weft_unicode_n_category;

/* 0: none; i + 1: the script of weft_unicode_script_name[i]. */
extern const uint32_t weft_unicode_script[];
extern const size_t weft_unicode_n_script;

/* "oldpersian", "xpeo": as weft_charset_add_property() compares names. */
struct weft_unicode_name {
    const char *name, *code;
};
extern const struct weft_unicode_name weft_unicode_script_name[];
extern const size_t weft_unicode_n_script_names;

/* Canonical combining classes. */
extern const uint32_t weft_unicode_combining[];
extern const size_t weft_unicode_n_combining;

/* What a character decomposes into, in one step; second 0: one character.
 * Hangul syllables are computed. */
struct weft_unicode_pair {
    uint32_t c, first, second;
};
/* Sorted by c. */
extern const struct weft_unicode_pair weft_unicode_decomposed[];
extern const size_t weft_unicode_n_decomposed;
/* Those of weft_unicode_decomposed that compose, by first and second. */
extern const uint16_t weft_unicode_composed[];
extern const size_t weft_unicode_n_composed;

/* The value of a table's run that holds c. */
static inline uint8_t weft_unicode_value(const uint32_t *run, size_t n,
                                         uint32_t c)
{
    size_t low = 0, high = n; /* run[low] begins at or before c */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (run[middle] >> 8 <= c)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t) run[low];
}

#endif
