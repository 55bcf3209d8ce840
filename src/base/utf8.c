/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t weft_utf8_length(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *) s;
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xc2 && p[0] < 0xe0 ? 2
               : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
               : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                             : 0;
    if (len == 0 || n < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* Refuses overlong forms, surrogates, and values beyond U+10FFFF. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0)
        || (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return len;
}

/* Whether the character of `len` bytes shows on a terminal as itself, or at
 * least changes nothing else there. */
static bool shows(const unsigned char *p, size_t len)
{
    if (len == 1)
        return p[0] >= 0x20 && p[0] != 0x7f;
    if (len == 2) /* U+0080 to U+009F; U+061C */
        return !(p[0] == 0xc2 && p[1] < 0xa0)
            && !(p[0] == 0xd8 && p[1] == 0x9c);
    if (len == 3 && p[0] == 0xe2 && p[1] == 0x80) /* U+200E, F; U+2028-2E */
        return p[2] != 0x8e && p[2] != 0x8f && !(p[2] >= 0xa8 && p[2] < 0xaf);
    if (len == 3 && p[0] == 0xe2 && p[1] == 0x81) /* U+2066 to U+2069 */
        return p[2] < 0xa6 || p[2] > 0xa9;
    return len > 0;
}

/* Writes the character at p in the form to show; *used gets the bytes that it
 * took. */
static size_t shown(const char *p, size_t n, char out[5], size_t *used)
{
    static const char plain[] = "\n\r\t", letter[] = "nrt";
    size_t len = weft_utf8_length(p, n);
    const char *at = memchr(plain, *p, sizeof plain - 1);
    *used = 1;
    if (shows((const unsigned char *) p, len)) {
        memcpy(out, p, len);
        *used = len;
        return len;
    }
    if (at)
        return (size_t) snprintf(out, 5, "\\%c", letter[at - plain]);
    return (size_t) snprintf(out, 5, "\\x%02x", (unsigned char) *p);
}

size_t weft_utf8_printable(const char *s, size_t n, char *out, size_t room)
{
    /* fits: the last length that leaves room for "..." */
    size_t length = 0, fits = 0;
    for (size_t i = 0, used; i < n; i += used) {
        char one[5];
        size_t len = shown(s + i, n - i, one, &used);
        if (length + len >= room) {
            memcpy(out + fits, "...", 4);
            return fits + 3;
        }
        memcpy(out + length, one, len);
        length += len;
        if (length + 3 < room)
            fits = length;
    }
    out[length] = 0;
    return length;
}
