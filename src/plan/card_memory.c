/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/card_memory.h"

enum { MOST_STEPS = 32 };
/* Left to CUDA: 512 MiB, or of a small card a part. */
enum { RESERVE_BYTES = 512 << 20, RESERVE_PART = 32 };

int weft_card_kind(size_t bytes, enum weft_mem_class c)
{
    bool weights = c == WEFT_MEM_WEIGHTS;
    if (!weights && c != WEFT_MEM_GRADIENTS && c != WEFT_MEM_OPTIMIZER)
        return WEFT_CARD_NO_KIND;
    for (int i = 0; i < WEFT_CARD_SLOT_SIZES; i++)
        if (bytes <= (size_t) WEFT_CARD_SLOT_BYTES << i)
            return weights ? WEFT_CARD_SLOT_SIZES + i : i;
    return WEFT_CARD_NO_KIND;
}

size_t weft_card_block_bytes(size_t bytes, enum weft_mem_class c)
{
    int kind = weft_card_kind(bytes, c);
    size_t step = WEFT_CARD_PAGE_BYTES;
    if (kind != WEFT_CARD_NO_KIND)
        return (size_t) WEFT_CARD_SLOT_BYTES << kind % WEFT_CARD_SLOT_SIZES;
    while (step * MOST_STEPS < bytes)
        step *= 2;
    return (bytes + step - 1) / step * step;
}

size_t weft_card_budget(size_t free_bytes, size_t total_bytes, size_t n)
{
    size_t part = free_bytes / n, kept = total_bytes / RESERVE_PART;
    if (kept > RESERVE_BYTES)
        kept = RESERVE_BYTES;
    return part > kept ? part - kept : 0;
}
