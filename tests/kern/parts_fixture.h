/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to deal T blocks to members, and an oracle of trees over blocks. */
#ifndef WEFT_TESTS_KERN_PARTS_FIXTURE_H
#define WEFT_TESTS_KERN_PARTS_FIXTURE_H

#include "base/alloc.h"
#include "harness.h"
#include "kern/parts.h"

/* n contiguous ranges that cover [0, T). */
struct split {
    int32_t n;
    struct weft_range range[WEFT_MAX_BLOCKS];
};

/* Bit t of `cuts`: a range ends behind block t. */
static inline struct split split_of(int32_t n_blocks, uint32_t cuts)
{
    struct split s = {.n = 0};
    for (int32_t t = 0, first = 0; t < n_blocks; t++)
        if (t == n_blocks - 1 || cuts >> t & 1) {
            s.range[s.n++] = (struct weft_range){first, t + 1 - first};
            first = t + 1;
        }
    return s;
}

/* For T = 8: the whole, 3+5, 1+6+1, 2+1+5, 5+3, 4+4, 1+3+2+2, each alone. */
static const uint32_t split_cuts[] = {0x00, 0x04, 0x41, 0x06,
                                      0x10, 0x08, 0x29, 0x7f};
/* For T = 16 and 32 together: the whole, 1+14+1 and 1+30+1, 2+1+5+8 and as many
 * more, 8+8, 16+16, ranges of 7 and 9 in turns, each alone. */
static const uint32_t wide_cuts[] = {0x00000000, 0x40004001, 0x00008086,
                                     0x00000080, 0x00008000, 0x00408040,
                                     0x7fffffff};

/* Ways to deal T blocks, n of them. */
static inline const uint32_t *cuts_of_blocks(int32_t n_blocks, size_t *n_out)
{
    *n_out = n_blocks > 8 ? WEFT_COUNT(wide_cuts) : WEFT_COUNT(split_cuts);
    return n_blocks > 8 ? wide_cuts : split_cuts;
}

/* The maximal subtrees of the node [first, first + n) inside of a range. */
static inline int32_t oracle_roots(struct weft_range range, int32_t first,
                                   int32_t n, struct weft_range *out)
{
    int32_t end = range.first + range.n;
    if (first >= range.first && first + n <= end) {
        *out = (struct weft_range){first, n};
        return 1;
    }
    if (n == 1)
        return 0;
    int32_t found = oracle_roots(range, first, n / 2, out);
    return found + oracle_roots(range, first + n / 2, n / 2, out + found);
}

/* Element i of the sum over a node's blocks; leaf[t] (n). */
static inline float oracle_sum(float *const leaf[], int32_t first, int32_t n,
                               int64_t i)
{
    return n == 1 ? leaf[first][i]
                  : oracle_sum(leaf, first, n / 2, i)
                        + oracle_sum(leaf, first + n / 2, n / 2, i);
}

/* Memory whose contents do not matter: NaN. */
static inline void *poisoned(size_t bytes)
{
    void *p = weft_alloc_aligned(bytes + 64, 1);
    REQUIRE(p != NULL);
    memset(p, 0xff, bytes + 64);
    return p;
}

#endif
