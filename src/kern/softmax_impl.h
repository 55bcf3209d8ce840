/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row operations of softmax.h, compiled for one instruction set; the including
 * file defines OPS, the name of the table. Element j is added to partial sum
 * j mod 16.
 */
#include "kern/softmax.h"
#include "kern/vec16.h"

static float softmax_max(const float *x, int64_t n)
{
    weft_v16 max = v_set1(-INFINITY);
    int64_t j = 0;
    for (; j + WEFT_LANES <= n; j += WEFT_LANES)
        max = v_max(v_load(x + j), max); /* of a NaN and max: max */
    if (j < n)
        max = v_max(v_keep(v_load_n(x + j, n - j), n - j, -INFINITY), max);
    return v_max_of(max);
}

static void softmax_exp(const float *x, int64_t n, float scale, float base,
                        float *e, float *sum_out, float *dot_out)
{
    weft_v16 sum = v_set1(0), dot = v_set1(0);
    weft_v16 scale_ = v_set1(scale), base_ = v_set1(base);
    /* the smallest exponent, so that dot has no 0 * -infinity */
    weft_v16 floor_ = v_set1(WEFT_EXP_MIN);
    int64_t j = 0;
    for (; j + WEFT_LANES <= n; j += WEFT_LANES) {
        weft_v16 d = v_sub(v_mul(v_load(x + j), scale_), base_);
        weft_v16 p = v_exp(d);
        v_store(e + j, p);
        sum = v_add(sum, p);
        dot = v_fma(p, v_max(d, floor_), dot);
    }
    if (j < n) {
        weft_v16 d = v_sub(v_mul(v_load_n(x + j, n - j), scale_), base_);
        weft_v16 p = v_keep(v_exp(d), n - j, 0);
        v_store_n(e + j, p, n - j);
        sum = v_add(sum, p);
        dot = v_fma(p, v_keep(v_max(d, floor_), n - j, 0), dot);
    }
    *sum_out = v_sum(sum);
    *dot_out = v_sum(dot);
}

struct grad {
    weft_v16 scale, lse, entropy, a, b;
};

WEFT_INLINE weft_v16 grad_of(const struct grad *g, weft_v16 x)
{
    weft_v16 d = v_sub(v_mul(x, g->scale), g->lse), p = v_exp(d);
    d = v_add(v_max(d, v_set1(WEFT_EXP_MIN)), g->entropy);
    return v_mul(v_mul(p, v_fma(g->b, d, g->a)), v_sub(v_set1(0), g->scale));
}

static void softmax_grad(float *x, int64_t n, float scale, float lse,
                         float entropy, float a, float b)
{
    struct grad g = {v_set1(scale), v_set1(lse), v_set1(entropy), v_set1(a),
                     v_set1(b)};
    int64_t j = 0;
    for (; j + WEFT_LANES <= n; j += WEFT_LANES)
        v_store(x + j, grad_of(&g, v_load(x + j)));
    if (j < n)
        v_store_n(x + j, grad_of(&g, v_load_n(x + j, n - j)), n - j);
}

const struct weft_softmax_ops OPS = {softmax_max, softmax_exp, softmax_grad};
