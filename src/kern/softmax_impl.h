/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row operations of softmax.h for the instruction set this file is compiled
 * for; the including file defines OPS, the name of the table. Plain loops of
 * 16 lanes, written so that compilers make vectors of them.
 */
#include "kern/softmax.h"
#include "kern/vec.h"

enum { LANES = 16 };

static float join_sum(float lane[LANES])
{
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return lane[0];
}

static float softmax_max(const float *x, int64_t n)
{
    float lane[LANES], max = -INFINITY;
    int64_t j = 0;
    for (int i = 0; i < LANES; i++)
        lane[i] = -INFINITY;
    for (; j + LANES <= n; j += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] = x[j + i] > lane[i] ? x[j + i] : lane[i];
    for (; j < n; j++)
        max = x[j] > max ? x[j] : max;
    for (int i = 0; i < LANES; i++)
        max = lane[i] > max ? lane[i] : max;
    return max;
}

/* Exponents below WEFT_EXP_MIN have probability 0; raising them to it keeps
 * 0 * -infinity out of the dot product. */
static void softmax_exp(const float *x, int64_t n, float scale, float base,
                        float *e, float *sum_out, float *dot_out)
{
    float sum[LANES] = {0}, dot[LANES] = {0};
    for (int64_t j = 0; j < n; j++) {
        float d = x[j] * scale - base;
        e[j] = weft_expf(d);
    }
    for (int64_t j = 0; j < n; j += LANES) {
        int lanes = (int) weft_min64(LANES, n - j);
        if (lanes == LANES)
            for (int i = 0; i < LANES; i++) {
                float d = x[j + i] * scale - base;
                sum[i] += e[j + i];
                dot[i] += e[j + i] * (d < WEFT_EXP_MIN ? WEFT_EXP_MIN : d);
            }
        else
            for (int i = 0; i < lanes; i++) {
                float d = x[j + i] * scale - base;
                sum[i] += e[j + i];
                dot[i] += e[j + i] * (d < WEFT_EXP_MIN ? WEFT_EXP_MIN : d);
            }
    }
    *sum_out = join_sum(sum);
    *dot_out = join_sum(dot);
}

static void softmax_grad(float *x, int64_t n, float scale, float lse,
                         float entropy, float a, float b)
{
    for (int64_t j = 0; j < n; j++) {
        float d = x[j] * scale - lse;
        d = d < WEFT_EXP_MIN ? WEFT_EXP_MIN : d;
        x[j] = -scale * (weft_expf(d) * (a + b * (d + entropy)));
    }
}

const struct weft_softmax_ops OPS = {softmax_max, softmax_exp, softmax_grad};
