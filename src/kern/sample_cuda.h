/* SPDX-License-Identifier: Apache-2.0 */
/* What the two kernels that draw tokens share. Internal to them. */
#ifndef WEFT_KERN_SAMPLE_CUDA_H
#define WEFT_KERN_SAMPLE_CUDA_H

#include "kern/softmax_cuda.h"

#include "base/philox.h"
#include "base/rng.h"

struct vocabulary {
    int32_t n_blocks, n, first[WEFT_MAX_BLOCKS], n_of[WEFT_MAX_BLOCKS];
};

/* What the threads of a block share about their row's softmax. */
struct whole_row {
    struct softmax_block chunks;
    struct weft_softmax block[WEFT_MAX_BLOCKS], all;
    float lse; /* with the held tokens */
};

struct held {
    int32_t n, token[WEFT_MAX_ENDS];
};

static __device__ __forceinline__ void whole_row(struct whole_row *row,
                                                 const struct vocabulary &v,
                                                 const float *logits,
                                                 float scale)
{
    for (int32_t t = 0; t < v.n_blocks; t++) {
        struct weft_softmax s = softmax_row(&row->chunks, logits + v.first[t],
                                            v.n_of[t], scale, NULL);
        if (threadIdx.x == 0)
            row->block[t] = s;
    }
    if (threadIdx.x == 0)
        row->all = weft_softmax_tree(row->block, v.n_blocks);
    __syncthreads();
}

static __device__ __forceinline__ bool is_fine(const struct whole_row *row)
{
    return row->all.sum > 0 && row->all.sum < INFINITY;
}

/* The row's softmax, from which the token is drawn: of a held row without the
 * held tokens. false: there is none. */
static __device__ __forceinline__ bool open_row(struct whole_row *row,
                                                const struct vocabulary &v,
                                                const struct held &held,
                                                const uint32_t *at,
                                                float *logits, float scale)
{
    whole_row(row, v, logits, scale);
    bool is_good = is_fine(row);
    if (is_good && threadIdx.x == 0)
        row->lse = weft_softmax_lse(&row->all);
    if (!is_good || at[3] != WEFT_K_ROW_IS_HELD)
        return is_good;
    __syncthreads();
    if ((int32_t) threadIdx.x < held.n)
        logits[held.token[threadIdx.x]] = -INFINITY;
    __syncthreads();
    whole_row(row, v, logits, scale);
    return is_fine(row);
}

/* Whether row i's text has ended; what is written for it, then. */
static __device__ __forceinline__ bool has_ended(const uint32_t *at,
                                                 int32_t *token_out,
                                                 float *logp_out)
{
    if (at[3] != WEFT_K_ROW_HAS_ENDED)
        return false;
    if (threadIdx.x == 0) {
        *token_out = WEFT_K_ENDED;
        *logp_out = 0;
    }
    return true;
}

/* The uniform number of a token's draw; at (4): a, b, position. */
static __device__ __forceinline__ float uniform_at(uint64_t seed,
                                                   const uint32_t *at)
{
    uint32_t word[4] = {at[0], at[1], at[2], WEFT_RNG_SAMPLE};
    weft_philox_rounds(word, (uint32_t) seed, (uint32_t) (seed >> 32));
    return weft_philox_uniform(word[0]);
}

/* weft_k_sample_cuda() with top_k or top_p; false: neither cuts. */
bool weft_sample_cut_cuda(cudaStream_t stream, const struct vocabulary *v,
                          const struct weft_k_sampling *sampling,
                          const struct held *held, int32_t m, float *logits,
                          int64_t ld, const uint32_t *at, int32_t *token_out,
                          float *logp_out, void *scratch);

#endif
