/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax over the vocabulary in pieces, in one order of additions that the
 * head, its backward pass and the sampler share. A vocabulary block is cut
 * into chunks of WEFT_SOFTMAX_COLUMNS. A chunk's sums are relative to its own
 * maximum and have 16 partial sums; chunks are merged from left to right,
 * blocks by the T tree. Nothing depends on how many rows or columns a caller
 * processes at a time.
 */
#ifndef WEFT_KERN_SOFTMAX_H
#define WEFT_KERN_SOFTMAX_H

#include "kern/kern.h"
#include "kern/vec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_SOFTMAX_COLUMNS = 1024 };

/* Of numbers z: max z, sum e^(z - max), sum e^(z - max) (z - max). NaN and
 * +infinity make the sums NaN; -infinity has probability 0. */
struct weft_softmax {
    float max, sum, dot;
};

/* Row operations of one instruction set. */
struct weft_softmax_ops {
    /* The largest of n >= 1 numbers; NaN are ignored. */
    float (*max)(const float *x, int64_t n);
    /* e[j] = e^(x[j] * scale - base), but 0 where the exponent is below -87;
     * the sum of e, and the dot product of e and the exponents. */
    void (*exp)(const float *x, int64_t n, float scale, float base, float *e,
                float *sum_out, float *dot_out);
    /* x[j] = scale * -(p_j (a + b (z_j - lse + entropy))) with
     * z = x * scale, p = e^(z - lse): the gradient of
     * a log p(target) + b entropy, without the target's own term. */
    void (*grad)(float *x, int64_t n, float scale, float lse, float entropy,
                 float a, float b);
};
const struct weft_softmax_ops *weft_softmax_ops(void);

extern const struct weft_softmax_ops weft_softmax_c, weft_softmax_avx2,
    weft_softmax_avx512;

/* The state of one chunk, n <= WEFT_SOFTMAX_COLUMNS, of logits times
 * `scale`. */
struct weft_softmax weft_softmax_chunk(const float *logits, int64_t n,
                                       float scale);
/* The state of a whole row of V logits. */
struct weft_softmax weft_softmax_row(const struct weft_shape *shape,
                                     const float *logits, float scale);

/* ---- Also on GPUs, with the same bits ---------------------------------- */

WEFT_INLINE struct weft_softmax weft_softmax_merge(struct weft_softmax a,
                                                   struct weft_softmax b)
{
    struct weft_softmax s;
    s.max = a.max > b.max ? a.max : b.max;
    if (s.max == -INFINITY) {
        s.sum = a.sum + b.sum;
        s.dot = a.dot + b.dot;
        return s;
    }
    float da = a.max - s.max, db = b.max - s.max;
    float ea = weft_expf_unfused(da), eb = weft_expf_unfused(db);
    da = ea > 0 ? da : 0; /* -infinity would make the dot product NaN */
    db = eb > 0 ? db : 0;
    s.sum = a.sum * ea + b.sum * eb;
    s.dot = (a.dot + a.sum * da) * ea + (b.dot + b.sum * db) * eb;
    return s;
}

/* Merges the states of n blocks by the T tree; overwrites them. */
WEFT_INLINE struct weft_softmax weft_softmax_tree(struct weft_softmax *block,
                                                  int32_t n)
{
    for (int32_t step = 1; step < n; step *= 2)
        for (int32_t t = 0; t + step < n; t += 2 * step)
            block[t] = weft_softmax_merge(block[t], block[t + step]);
    return block[0];
}

/* log(sum e^z), and the entropy of the distribution. */
WEFT_INLINE float weft_softmax_lse(const struct weft_softmax *s)
{
    return s->max + (float) log((double) s->sum);
}

WEFT_INLINE float weft_softmax_entropy(const struct weft_softmax *s)
{
    return (float) (log((double) s->sum) - (double) s->dot / (double) s->sum);
}

#ifdef __cplusplus
}
#endif
#endif
