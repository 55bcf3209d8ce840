/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax in pieces (softmax.h) on a GPU: sixteen lanes have a chunk of 1024
 * columns, each of them one partial sum. Internal to the kernels. */
#ifndef WEFT_KERN_SOFTMAX_CUDA_H
#define WEFT_KERN_SOFTMAX_CUDA_H

#include "kern/cuda_lang.h"
#include "kern/softmax.h"

enum {
    SOFTMAX_PARTS = 16,
    SOFTMAX_EACH = WEFT_SOFTMAX_COLUMNS / SOFTMAX_PARTS,
    SOFTMAX_THREADS = 256,
    SOFTMAX_CHUNKS = SOFTMAX_THREADS / SOFTMAX_PARTS /* of a block at once */
};

struct softmax_sums {
    float sum, dot;
};

/* Sums of e^(x * scale - base) over a chunk x (n), as softmax_exp() of
 * softmax_impl.h; all lanes get them. Called by whole warps: a half without a
 * chunk has n 0. */
static __device__ __forceinline__ struct softmax_sums softmax_chunk_sums(
    const float x[SOFTMAX_EACH], int64_t n, float scale, float base)
{
    int part = threadIdx.x % SOFTMAX_PARTS;
    struct softmax_sums s = {0, 0};
#pragma unroll
    for (int i = 0; i < SOFTMAX_EACH; i++) {
        float d = x[i] * scale - base, p = weft_expf(d);
        if (i * SOFTMAX_PARTS + part < n) {
            s.sum += p;
            s.dot = fmaf(p, d > WEFT_EXP_MIN ? d : WEFT_EXP_MIN, s.dot);
        }
    }
    s.sum = warp_sum(s.sum, SOFTMAX_PARTS / 2, 1);
    s.dot = warp_sum(s.dot, SOFTMAX_PARTS / 2, 1);
    return s;
}

/* The lane's columns of a chunk of n; those behind it are 0. */
static __device__ __forceinline__ void softmax_load(const float *z, int64_t n,
                                                    float x[SOFTMAX_EACH])
{
    int part = threadIdx.x % SOFTMAX_PARTS;
#pragma unroll
    for (int i = 0; i < SOFTMAX_EACH; i++)
        x[i] = i * SOFTMAX_PARTS + part < n ? z[i * SOFTMAX_PARTS + part] : 0;
}

/* The state of a chunk of n logits (weft_softmax_chunk()). */
static __device__ __forceinline__ struct weft_softmax softmax_state(
    const float *z, int64_t n, float scale)
{
    int part = threadIdx.x % SOFTMAX_PARTS;
    float x[SOFTMAX_EACH], max = -INFINITY;
    softmax_load(z, n, x);
#pragma unroll
    for (int i = 0; i < SOFTMAX_EACH; i++)
        if (i * SOFTMAX_PARTS + part < n)
            max = x[i] > max ? x[i] : max; /* of a NaN and max: max */
    max = warp_max(max, SOFTMAX_PARTS / 2) * scale;
    struct softmax_sums sums = softmax_chunk_sums(x, n, scale,
                                                  max == -INFINITY ? 0 : max);
    struct weft_softmax s;
    s.max = max;
    s.sum = sums.sum;
    s.dot = sums.dot;
    return s;
}

struct softmax_block {
    struct weft_softmax chunk[SOFTMAX_CHUNKS];
};

/* The state of n >= 1 logits, chunks merged from left to right, and before
 * them `*before` unless it is NULL. A block of SOFTMAX_THREADS threads; its
 * first thread has the result. */
static __device__ __forceinline__ struct weft_softmax softmax_row(
    struct softmax_block *shared, const float *z, int64_t n, float scale,
    const struct weft_softmax *before)
{
    int chunk = threadIdx.x / SOFTMAX_PARTS;
    struct weft_softmax all;
    all.max = all.sum = all.dot = 0;
    if (before)
        all = *before;
    bool is_first = !before;
    enum { STEP = SOFTMAX_CHUNKS * WEFT_SOFTMAX_COLUMNS };
    for (int64_t j = 0; j < n; j += STEP) {
        int64_t at = j + chunk * WEFT_SOFTMAX_COLUMNS;
        int64_t left = weft_min64(WEFT_SOFTMAX_COLUMNS, n - at);
        struct weft_softmax s = softmax_state(z + at, left, scale);
        __syncthreads();
        if (threadIdx.x % SOFTMAX_PARTS == 0)
            shared->chunk[chunk] = s;
        __syncthreads();
        for (int c = 0; threadIdx.x == 0 && c < SOFTMAX_CHUNKS; c++)
            if (j + c * WEFT_SOFTMAX_COLUMNS < n) {
                all = is_first ? shared->chunk[c]
                               : weft_softmax_merge(all, shared->chunk[c]);
                is_first = false;
            }
    }
    return all;
}

#endif
