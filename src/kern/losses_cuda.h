/* SPDX-License-Identifier: Apache-2.0 */
/* What losses of the runs of a micro-batch share: a block has a run, or a
 * pair. Sums are in the order of the tokens. */
#ifndef WEFT_KERN_LOSSES_CUDA_H
#define WEFT_KERN_LOSSES_CUDA_H

#include "kern/cuda_lang.h"

#include "kern/policy_loss.h"

enum { LOSS_THREADS = 256 };

struct loss_block {
    int32_t first;
    struct weft_policy_term sample; /* of GSPO */
    double slope[2];
    double addend[LOSS_THREADS];
    double stat[LOSS_THREADS][WEFT_N_POLICY_STATS]; /* of a token each */
};

/* The first target of a run. */
static __device__ __forceinline__ int32_t
first_target(struct loss_block *s, const int32_t *n_targets, int32_t run)
{
    int32_t before = 0;
    if (threadIdx.x < WEFT_WARP) {
        for (int32_t i = threadIdx.x; i < run; i += WEFT_WARP)
            before += n_targets[i];
        before = warp_sum(before, WEFT_WARP / 2, 1);
    }
    if (threadIdx.x == 0)
        s->first = before;
    __syncthreads();
    return s->first;
}

/* The sum of x[i] - y[i], or with y NULL of x[i], which thread 0 has. */
static __device__ __forceinline__ double sum_in_order(struct loss_block *s,
                                                      int32_t n,
                                                      const float *x,
                                                      const float *y)
{
    double sum = 0;
    for (int32_t first = 0; first < n; first += LOSS_THREADS) {
        int32_t i = first + threadIdx.x;
        int32_t n_here = weft_min32(n - first, LOSS_THREADS);
        if (i < n)
            s->addend[threadIdx.x] = (double) x[i] - (y ? (double) y[i] : 0);
        __syncthreads();
        for (int32_t k = 0; threadIdx.x == 0 && k < n_here; k++)
            sum += s->addend[k];
        __syncthreads();
    }
    return sum;
}

#endif
