/* SPDX-License-Identifier: Apache-2.0 */
/* Which items, pairs of query row and query head of a KV head, a block of the
 * attention kernels has. Internal to them. */
#ifndef WEFT_KERN_ATTENTION_ITEMS_CUDA_H
#define WEFT_KERN_ATTENTION_ITEMS_CUDA_H

#include "kern/cuda_lang.h"

#include "kern/attention_cuda.h"

enum { PAGE = WEFT_PAGE_TOKENS };

/* Items first.. of n; item i has row i / G of the run and head i % G of the
 * KV head's. */
struct items {
    int32_t first, n, pos, row, block, kv_head,
        head;            /* row, head: of item 0 */
    const int32_t *page; /* of the run's sequence */
};

/* Of a grid whose y, modulo KV heads of all tensor blocks, is a KV head, and
 * whose z is a run. */
static __device__ __forceinline__ struct items items_of(
    const struct weft_attention_cuda &a, int32_t first)
{
    struct weft_k_run run = a.run[blockIdx.z];
    struct items at;
    at.first = first;
    at.n = run.n * a.n_group;
    at.pos = run.pos;
    at.row = a.first_row[blockIdx.z];
    at.block = (int32_t) blockIdx.y / a.n_kv % a.n_blocks;
    at.kv_head = (int32_t) blockIdx.y % a.n_kv;
    at.head = at.kv_head * a.n_group;
    at.page = a.page + (int64_t) run.slot * a.pages_per_slot;
    return at;
}

/* How many keys item first + i may attend to; 0: it is not there. */
static __device__ __forceinline__ int keys_of_item(
    const struct weft_attention_cuda &a, const struct items &at, int i)
{
    i += at.first;
    return i < at.n ? at.pos + i / a.n_group + 1 : 0;
}

/* The last of the n items that begin with `first` that is there. */
static __device__ __forceinline__ int last_item(const struct items &at, int n)
{
    return at.first + n < at.n ? n - 1 : at.n - at.first - 1;
}

/* K (D, 64) of a page and the KV head; V (64, D) follows. */
static __device__ __forceinline__ const char *keys_of(
    const struct weft_attention_cuda &a, const struct items &at, int page)
{
    return a.block[at.block].kv + (size_t) at.page[page] * a.page_bytes
         + (size_t) at.kv_head * a.head_bytes;
}

#endif
