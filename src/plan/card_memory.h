/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a GPU's memory is cut into blocks: for those who allocate (src/rt/pool.c)
 * and for those who predict what that takes.
 *
 * CUDA gives pages of 2 MiB, and most blocks have pages of their own. Small ones
 * of classes whose tiles are as large in every run (weights, gradients,
 * optimizer states) have slots, whose sizes are powers of two, in pages that are
 * all of one kind: of one size, and of weights or of what is not. A page goes
 * back when none of its slots is used, and there is none more while a slot of
 * its kind is free. So a kind never has more pages than its slots filled when
 * most of them were in use, in whatever order these came and went.
 *
 * Tiles of the other classes are as large as samples are long, and are predicted
 * for the longest: were they to have slots, shorter ones could need pages of
 * kinds that nobody has predicted. A page is no less than that.
 */
#ifndef WEFT_PLAN_CARD_MEMORY_H
#define WEFT_PLAN_CARD_MEMORY_H

#include <stddef.h>

#include "plan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_CARD_PAGE_BYTES = 2 << 20,
    WEFT_CARD_SLOT_BYTES = 4096, /* the least */
    WEFT_CARD_SLOT_SIZES = 9,    /* up to half a page */
    WEFT_CARD_KINDS = 2 * WEFT_CARD_SLOT_SIZES,
    WEFT_CARD_NO_KIND = -1
};

/* Bytes of the block for so many, at least 1: a slot, or pages, whose number is
 * rounded up to five bits, so that blocks of tasks with a few rows more or less
 * are alike. */
size_t weft_card_block_bytes(size_t bytes, enum weft_mem_class c);
/* The kind of its page; WEFT_CARD_NO_KIND: it has its own. */
int weft_card_kind(size_t bytes, enum weft_mem_class c);
/* What tiles of a rank may take of a GPU, of whose memory so much is free with
 * n ranks that share it. Some is left to CUDA beyond what it has taken when the
 * runtime starts, in each rank: kernels that are loaded when they first run, ours
 * and cuBLASLt's, and their local memory. How much they take is an estimate. */
size_t weft_card_budget(size_t free_bytes, size_t total_bytes, size_t n);

#ifdef __cplusplus
}
#endif
#endif
