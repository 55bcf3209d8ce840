/* SPDX-License-Identifier: Apache-2.0 */
/* What a block of attention on tensor cores has in shared memory, and how
 * queries, keys and values get there. Internal to attention_mma_cuda.cu. */
#ifndef WEFT_KERN_ATTENTION_LOADS_CUDA_H
#define WEFT_KERN_ATTENTION_LOADS_CUDA_H

#include "kern/attention_items_cuda.h"
#include "kern/mma_cuda.h"

enum { WIDE = PAGE + 8 }; /* a row of keys; its banks do not collide */

/* D: head size, with zeros behind; DECODE: one item tile for the block. */
template <int D, bool DECODE> struct shape {
    enum {
        WARPS = DECODE ? 4 : 8,
        THREADS = WARPS * WEFT_WARP,
        SHARE = DECODE ? 4 : 1, /* warps that share 16 items */
        ITEMS = WARPS / SHARE * 16,
        KEYS = PAGE / SHARE,   /* of a warp's scores */
        COLUMNS = D / SHARE,   /* of a warp's output */
        SCORES = PAGE / 8,     /* products side by side */
        OUTPUTS = COLUMNS / 8, /* as well */
        LD = D + 8
    };
};

template <int D, bool DECODE> struct alignas(16) tile {
    typedef shape<D, DECODE> S;
    union {
        struct {
            uint16_t k[D][WIDE], v[PAGE][S::LD];
        };
        uint16_t q[S::ITEMS][S::LD];
    };
    float s[DECODE ? S::ITEMS : 1][PAGE + 4]; /* shared scores */
};

template <int D, bool DECODE>
static __device__ __forceinline__ void begin_q(
    tile<D, DECODE> &t, const struct weft_attention_cuda &a,
    const struct items &at)
{
    typedef shape<D, DECODE> S;
#pragma unroll 1
    for (int e = threadIdx.x; e < S::ITEMS * D / 8; e += S::THREADS) {
        int i = e / (D / 8), j = e % (D / 8) * 8, item = at.first + i;
        bool is_there = item < at.n && j < a.head_dim;
        int64_t from = (at.row + item / a.n_group) * a.ldq
                     + (at.head + item % a.n_group) * a.head_dim + j;
        weft_copy16(&t.q[i][j],
                    (const uint16_t *) a.block[at.block].q
                        + (is_there ? from : 0),
                    is_there);
    }
    weft_copies_end();
}

template <int D, bool DECODE>
static __device__ __forceinline__ void begin_k(tile<D, DECODE> &t,
                                               const void *keys, int d)
{
    const uint16_t *page = (const uint16_t *) keys;
    typedef shape<D, DECODE> S;
#pragma unroll(DECODE ? 1 : 2) /* what takes the fewest registers */
    for (int e = threadIdx.x; e < D * PAGE / 8; e += S::THREADS) {
        int j = e / (PAGE / 8), key = e % (PAGE / 8) * 8;
        bool is_there = j < d;
        weft_copy16(&t.k[j][key], page + (is_there ? j * PAGE + key : 0),
                    is_there);
    }
    weft_copies_end();
}

/* V of the page's first n keys. Those behind them are 0, whatever the cache
 * holds: 0 times NaN is no 0. */
template <int D, bool DECODE>
static __device__ __forceinline__ void begin_v(tile<D, DECODE> &t,
                                               const void *keys, int d, int n)
{
    const uint16_t *page = (const uint16_t *) keys;
    typedef shape<D, DECODE> S;
#pragma unroll 1
    for (int e = threadIdx.x; e < PAGE * D / 8; e += S::THREADS) {
        int key = e / (D / 8), j = e % (D / 8) * 8;
        bool is_there = key < n && j < d;
        weft_copy16(&t.v[key][j],
                    page + (is_there ? (PAGE + key) * d + j : 0), is_there);
    }
    weft_copies_end();
}

#endif
