/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 text, as far as messages need it. */
#ifndef WEFT_BASE_UTF8_H
#define WEFT_BASE_UTF8_H

#include <stddef.h>

/* The number of bytes (1 to 4) of the UTF-8 character at s, which has n bytes;
 * 0 when they are not UTF-8. */
size_t weft_utf8_length(const char *s, size_t n);

/* Writes n bytes of any text as one line that a terminal may be given, with a
 * zero byte: control characters, marks that turn the direction of writing and
 * bytes that are not UTF-8 become \n, \r, \t or \xNN. What does not fit into
 * `room` bytes (at least 4) is cut between characters and ends in "...".
 * Returns the length. */
size_t weft_utf8_printable(const char *s, size_t n, char *out, size_t room);

#endif
