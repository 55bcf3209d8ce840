/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over the vocabulary: chunks, and whole rows. */
#include "kern/softmax.h"

#include <config.h>

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
