/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE_BYTES = 64 };
static const size_t HUGE_BYTES = (size_t) 2 << 20;

void *weft_alloc(size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size)
        return NULL;
    size_t bytes = n * size;
    return calloc(1, bytes ? bytes : 1);
}

void *weft_realloc(void *p, size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size)
        return NULL;
    size_t bytes = n * size;
    return realloc(p, bytes ? bytes : 1);
}

void *weft_alloc_aligned(size_t n, size_t size)
{
    if (size != 0 && n > (SIZE_MAX - HUGE_BYTES) / size)
        return NULL;
    size_t bytes = n * size;
    size_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : LINE_BYTES;
    bytes = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, bytes ? bytes : align);
    if (!p)
        return NULL;
    if (align == HUGE_BYTES)
        (void) madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes ? bytes : align);
    return p;
}

char *weft_strndup(const char *s, size_t n)
{
    char *copy = weft_alloc(n + 1, 1);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *weft_strdup(const char *s)
{
    return weft_strndup(s, strlen(s));
}

void weft_free(void *p)
{
    free(p);
}
