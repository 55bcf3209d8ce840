/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation with overflow checks; the functions return NULL when memory is
 * out. */
#ifndef WEFT_BASE_ALLOC_H
#define WEFT_BASE_ALLOC_H

#include <stddef.h>

/* n * size bytes, zeroed. NULL on overflow or when memory is out; a request
 * of 0 bytes returns a pointer that may be freed. Free with weft_free(). */
void *weft_alloc(size_t n, size_t size);

/* Like realloc for n elements; new memory is not zeroed. On failure returns
 * NULL and `p` stays valid. */
void *weft_realloc(void *p, size_t n, size_t size);

/* Zeroed, aligned to 64 bytes; from 2 MiB on aligned to 2 MiB and advised to
 * use huge pages. Free with weft_free(). */
void *weft_alloc_aligned(size_t n, size_t size);

char *weft_strdup(const char *s);            /* caller frees */
char *weft_strndup(const char *s, size_t n); /* caller frees */

void weft_free(void *p);

#endif
