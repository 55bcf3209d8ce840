/* SPDX-License-Identifier: Apache-2.0 */
/* How far a mistyped name is from a known one. */
#ifndef WEFT_BASE_EDIT_DISTANCE_H
#define WEFT_BASE_EDIT_DISTANCE_H

#include <stddef.h>

/* The least number of insertions, deletions, changes and swaps of neighbours
 * that make b from a. Names are cut at 63 characters. */
size_t weft_edit_distance(const char *a, const char *b);

#endif
