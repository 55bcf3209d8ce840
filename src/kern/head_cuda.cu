/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probs, entropies and their gradient on a GPU, from chunks of logits that
 * products made. A block per row. */
#include "kern/softmax_cuda.h"

#include "kern/head.h"

static __global__ void take(int64_t first, int64_t n, bool is_first,
                            const float *logits, int64_t ld, float scale,
                            const int32_t *target, struct weft_softmax *state,
                            int64_t ld_state, float *hit)
{
    WEFT_SHARED(struct softmax_block, shared);
    int64_t i = blockIdx.x;
    const float *z = logits + i * ld;
    struct weft_softmax *mine = state + i * ld_state;
    struct weft_softmax s = softmax_row(&shared, z, n, scale,
                                        is_first ? NULL : mine);
    if (threadIdx.x != 0)
        return;
    *mine = s;
    if (target[i] >= first && target[i] < first + n)
        hit[i] = z[target[i] - first] * scale;
}

void weft_k_head_take_cuda(cudaStream_t stream, int32_t m, int64_t first,
                           int64_t n, bool is_first, const float *logits,
                           int64_t ld, float inv_temperature,
                           const int32_t *target, struct weft_softmax *state,
                           int64_t ld_state, float *hit)
{
    if (m > 0)
        WEFT_LAUNCH(take, m, SOFTMAX_THREADS, stream, first, n, is_first,
                    logits, ld, inv_temperature, target, state, ld_state,
                    hit);
}

enum { MERGE_THREADS = 128 };

/* Members' parts: of n_blocks vocabulary blocks from `block` on, whose tokens
 * are n from `first` on. */
struct merged {
    int32_t n, n_blocks;
    const int32_t *target;
    struct {
        const struct weft_softmax *state;
        const float *hit;
        int32_t block, n_blocks, first, n;
    } of[WEFT_MAX_BLOCKS];
};

static __global__ void merge(int32_t m, struct merged part, float *logp_out,
                             float *entropy_out, float *lse_out)
{
    int32_t i = (int32_t) (blockIdx.x * MERGE_THREADS + threadIdx.x);
    if (i >= m)
        return;
    struct weft_softmax block[WEFT_MAX_BLOCKS];
    int32_t target = part.target[i];
    float hit = 0;
    for (int32_t p = 0; p < part.n; p++) {
        int32_t n = part.of[p].n_blocks, before = target - part.of[p].first;
        for (int32_t t = 0; t < n; t++)
            block[part.of[p].block + t] =
                part.of[p].state[(int64_t) i * n + t];
        if (before >= 0 && before < part.of[p].n)
            hit = part.of[p].hit[i];
    }
    struct weft_softmax all = weft_softmax_tree(block, part.n_blocks);
    float lse = weft_softmax_lse(&all);
    logp_out[i] = hit - lse;
    if (entropy_out)
        entropy_out[i] = weft_softmax_entropy(&all);
    if (lse_out)
        lse_out[i] = lse;
}

void weft_k_head_merge_cuda(cudaStream_t stream, const struct weft_shape *s,
                            const struct weft_k_targets *targets,
                            int32_t n_parts,
                            const struct weft_k_head_parts *part,
                            float *logp_out, float *entropy_out,
                            float *lse_out)
{
    struct merged all = {n_parts, s->n_blocks, targets->target, {}};
    for (int32_t p = 0; p < n_parts; p++) {
        struct weft_head_part at;
        weft_head_part_at(part[p].range, targets->n, (uintptr_t) part[p].part,
                          &at);
        all.of[p].state = at.state;
        all.of[p].hit = at.hit;
        all.of[p].block = part[p].range.first;
        all.of[p].n_blocks = part[p].range.n;
        weft_k_vocab_range(s, part[p].range, &all.of[p].first, &all.of[p].n);
    }
    if (targets->n > 0)
        WEFT_LAUNCH(merge, blocks_for(targets->n, MERGE_THREADS),
                    MERGE_THREADS, stream, targets->n, all, logp_out,
                    entropy_out, lse_out);
}

struct gradient {
    float scale, lse, entropy, a, b;
};

/* Of a log p(target) + b entropy, without the target's own term (softmax_grad()
 * of softmax_impl.h). */
static __device__ __forceinline__ float gradient_at(struct gradient g,
                                                    float x)
{
    float d = x * g.scale - g.lse, p = weft_expf(d);
    d = (d > WEFT_EXP_MIN ? d : WEFT_EXP_MIN) + g.entropy;
    return p * fmaf(g.b, d, g.a) * (0.0f - g.scale);
}

/* Two columns to a thread. */
template <enum weft_dtype DTYPE>
static __global__ void gradient(int64_t first, int64_t n, const float *logits,
                                int64_t ld, float scale,
                                const int32_t *target, const float *lse,
                                const float *entropy, const float *dlogp,
                                const float *dentropy, void *out, int64_t ldo)
{
    int64_t i = blockIdx.y;
    int64_t j = 2 * ((int64_t) blockIdx.x * SOFTMAX_THREADS + threadIdx.x);
    struct gradient g;
    g.scale = scale;
    g.lse = lse[i];
    g.a = dlogp[i];
    g.b = dentropy ? dentropy[i] : 0;
    g.entropy = g.b == 0 ? 0 : entropy[i];
    for (int64_t e = j; e < j + 2 && e < n; e++) {
        float z = gradient_at(g, logits[i * ld + e]);
        if (first + e == target[i])
            z += scale * g.a;
        store_as<DTYPE>(out, i * ldo + e, z);
    }
}

template <enum weft_dtype DTYPE>
static void gradient_of(cudaStream_t stream, int32_t m, int64_t first,
                        int64_t n, const float *logits, int64_t ld,
                        float inv_temperature, const int32_t *target,
                        const float *lse, const float *entropy,
                        const float *dlogp, const float *dentropy, void *out,
                        int64_t ldo)
{
    enum { MAX_ROWS = 65535 }; /* of a grid's second dimension */
    size_t element = weft_dtype_bytes(DTYPE);
    for (int64_t r = 0; r < m; r += MAX_ROWS) {
        int64_t rows = weft_min64(m - r, MAX_ROWS);
        WEFT_LAUNCH(gradient<DTYPE>,
                    dim3(blocks_for(n, 2 * SOFTMAX_THREADS), (unsigned) rows),
                    SOFTMAX_THREADS, stream, first, n, logits + r * ld, ld,
                    inv_temperature, target + r, lse + r,
                    entropy ? entropy + r : NULL, dlogp + r,
                    dentropy ? dentropy + r : NULL,
                    (char *) out + (size_t) (r * ldo) * element, ldo);
    }
}

void weft_k_head_gradient_cuda(cudaStream_t stream, enum weft_dtype dtype,
                               int32_t m, int64_t first, int64_t n,
                               const float *logits, int64_t ld,
                               float inv_temperature, const int32_t *target,
                               const float *lse, const float *entropy,
                               const float *dlogp, const float *dentropy,
                               void *out, int64_t ldo)
{
    WEFT_BY_DTYPE(dtype, gradient_of, stream, m, first, n, logits, ld,
                  inv_temperature, target, lse, entropy, dlogp, dentropy, out,
                  ldo);
}
