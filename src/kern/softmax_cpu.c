/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over the vocabulary: chunks, merges, and the tree over blocks. */
#include "kern/softmax.h"

#include <config.h>

#include "kern/vec.h"

const struct weft_softmax_ops *weft_softmax_ops(void)
{
#ifdef WEFT_HAVE_X86_KERNELS
    switch (weft_k_isa()) {
    case WEFT_ISA_AVX512_BF16:
    case WEFT_ISA_AVX512:
        return &weft_softmax_avx512;
    case WEFT_ISA_AVX2:
        return &weft_softmax_avx2;
    default:
        break;
    }
#endif
    return &weft_softmax_c;
}

struct weft_softmax weft_softmax_chunk(const float *logits, int64_t n,
                                       float scale)
{
    const struct weft_softmax_ops *ops = weft_softmax_ops();
    float e[WEFT_SOFTMAX_COLUMNS];
    struct weft_softmax s;
    s.max = ops->max(logits, n) * scale;
    /* if all logits are -infinity, the sums are 0; with a NaN they are NaN */
    ops->exp(logits, n, scale, s.max == -INFINITY ? 0 : s.max, e, &s.sum,
             &s.dot);
    return s;
}

struct weft_softmax weft_softmax_merge(struct weft_softmax a,
                                       struct weft_softmax b)
{
    float max = a.max > b.max ? a.max : b.max;
    if (max == -INFINITY)
        return (struct weft_softmax){max, a.sum + b.sum, a.dot + b.dot};
    float da = a.max - max, db = b.max - max;
    float ea = weft_expf(da), eb = weft_expf(db);
    da = ea > 0 ? da : 0; /* -infinity would make the dot product NaN */
    db = eb > 0 ? db : 0;
    return (struct weft_softmax){
        max,
        a.sum * ea + b.sum * eb,
        (a.dot + a.sum * da) * ea + (b.dot + b.sum * db) * eb,
    };
}

struct weft_softmax weft_softmax_tree(struct weft_softmax *block, int32_t n)
{
    for (int32_t step = 1; step < n; step *= 2)
        for (int32_t t = 0; t + step < n; t += 2 * step)
            block[t] = weft_softmax_merge(block[t], block[t + step]);
    return block[0];
}

struct weft_softmax weft_softmax_row(const struct weft_shape *shape,
                                     const float *logits, float scale)
{
    struct weft_softmax block[WEFT_MAX_BLOCKS];
    for (int32_t t = 0; t < shape->n_blocks; t++) {
        const float *z = logits + shape->block[t].vocab0;
        int64_t n = shape->block[t].n_vocab;
        for (int64_t j = 0; j < n; j += WEFT_SOFTMAX_COLUMNS) {
            struct weft_softmax s = weft_softmax_chunk(
                z + j, weft_min64(WEFT_SOFTMAX_COLUMNS, n - j), scale);
            block[t] = j == 0 ? s : weft_softmax_merge(block[t], s);
        }
    }
    return weft_softmax_tree(block, shape->n_blocks);
}

float weft_softmax_lse(const struct weft_softmax *s)
{
    return s->max + (float) log((double) s->sum);
}

float weft_softmax_entropy(const struct weft_softmax *s)
{
    return (float) (log((double) s->sum) - (double) s->dot / (double) s->sum);
}
