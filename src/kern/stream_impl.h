/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operations of ops.h: plain loops that compilers vectorise for
 * the instruction set of the including file. They have the same bits in every
 * set, as there are no fused multiply-adds and sums have a fixed order. The
 * including file defines SQRT16(x), which replaces 16 floats by their square
 * roots, and may define what pack_impl.h names, and STORE_PAST(p, v), which
 * stores a vector past the caches (with tile_impl.h's VEC, LANES and LOAD).
 */
#include <math.h>
#include <string.h>

#include "kern/adamw.h"
#include "kern/pack_impl.h"

enum { SUM_TILE = 4096, LINE_BYTES = 64 };

static void stream_add(float *restrict dst, const float *restrict src,
                       size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] += src[i];
}

WEFT_INLINE void finish(const int64_t n, const float *acc, const float *bias,
                        const float *residual, enum weft_dtype y_dtype,
                        void *y)
{
    float sum[WEFT_PANEL];
    uint16_t half[WEFT_PANEL];
    for (int64_t j = 0; j < n; j++)
        sum[j] = acc[j];
    for (int64_t j = 0; bias && j < n; j++)
        sum[j] += bias[j];
    for (int64_t j = 0; residual && j < n; j++)
        sum[j] += residual[j];
    if (y_dtype == WEFT_F32) {
        memcpy(y, sum, (size_t) n * sizeof sum[0]);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        half[j] = (uint16_t) bf16_bits(sum[j]);
    memcpy(y, half, (size_t) n * sizeof half[0]);
}

static void stream_finish(int64_t n, const float *acc, const float *bias,
                          const float *residual, enum weft_dtype y_dtype,
                          void *y)
{
    if (n == WEFT_PANEL)
        finish(WEFT_PANEL, acc, bias, residual, y_dtype, y);
    else
        finish(n, acc, bias, residual, y_dtype, y);
}

/* Vectors of their own, as compilers tear loops over an array of doubles
 * apart. */
typedef float floats_8 __attribute__((vector_size(32)));
typedef double doubles_8 __attribute__((vector_size(64)));

/* sum[j] = the sum of x[i + j]^2 over i < n, i a multiple of 16 */
static void square_lanes(const float *x, size_t n, double sum[LANES_16])
{
    doubles_8 low = {0}, high = {0};
    for (size_t i = 0; i < n; i += LANES_16) {
        floats_8 a, b;
        memcpy(&a, x + i, sizeof a);
        memcpy(&b, x + i + 8, sizeof b);
        doubles_8 c = __builtin_convertvector(a, doubles_8);
        doubles_8 d = __builtin_convertvector(b, doubles_8);
        low += c * c;
        high += d * d;
    }
    memcpy(sum, &low, sizeof low);
    memcpy(sum + 8, &high, sizeof high);
}

static double stream_sum_squares(const float *x, size_t n)
{
    double total = 0;
    for (size_t at = 0; at < n; at += SUM_TILE) {
        size_t end = n - at < SUM_TILE ? n : at + SUM_TILE;
        double sum[LANES_16];
        size_t i = at + (end - at) / LANES_16 * LANES_16;
        square_lanes(x + at, i - at, sum);
        for (int j = 0; i < end; i++, j++)
            sum[j] += (double) x[i] * (double) x[i];
        for (int half = LANES_16 / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++)
                sum[j] += sum[j + half];
        total += sum[0];
    }
    return total;
}

/* Updates the moments; root = v. This and adamw_master() are functions of
 * their own so that compilers honour restrict. */
WEFT_NOINLINE
static void adamw_moments(const struct weft_adamw_step *s, float scale,
                          size_t n, const float *restrict grad,
                          float *restrict m, float *restrict v,
                          float *restrict root)
{
    const struct weft_adamw_step c = *s;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * scale;
        m[i] = c.beta1 * m[i] + c.rest1 * g;
        root[i] = v[i] = c.beta2 * v[i] + c.rest2 * g * g;
    }
}

WEFT_NOINLINE
static void adamw_master(const struct weft_adamw_step *s, size_t n,
                         const float *restrict m, const float *restrict root,
                         float *restrict master)
{
    const struct weft_adamw_step c = *s;
    for (size_t i = 0; i < n; i++)
        master[i] = c.keep * master[i]
                  - c.step_size * m[i] / (root[i] * c.root_bias2 + c.eps);
}

static void stream_adamw(const struct weft_k_adamw *o, size_t n, float scale,
                         const float *grad, float *master, float *m, float *v)
{
    enum { BLOCK = 512 };
    const struct weft_adamw_step s = weft_adamw_step(o);
    float root[BLOCK] = {0};
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t some = n - at < BLOCK ? n - at : BLOCK;
        adamw_moments(&s, scale, some, grad + at, m + at, v + at, root);
        for (size_t i = 0; i < some; i += LANES_16)
            SQRT16(root + i);
        adamw_master(&s, some, m + at, root, master + at);
    }
}

/* Only whole cache lines are worth it. */
static void stream_copy_past(void *restrict dst, const void *restrict src,
                             size_t bytes)
{
#ifdef STORE_PAST
    if ((uintptr_t) dst % LINE_BYTES == 0 && bytes % LINE_BYTES == 0) {
        float *to = dst;
        const float *from = src;
        for (size_t i = 0; i < bytes / sizeof *to; i += LANES)
            STORE_PAST(to + i, LOAD(from + i));
        return;
    }
#endif
    memcpy(dst, src, bytes);
}

static void stream_past_done(void)
{
#ifdef STORE_PAST
    _mm_sfence();
#endif
}

#define STREAM_OPS                                                           \
    .pack_steps = stream_pack_steps, .finish = stream_finish,                \
    .add = stream_add, .to_bf16 = stream_to_bf16,                            \
    .pair_bf16 = stream_pair_bf16, .transpose = stream_transpose,            \
    .copy_past = stream_copy_past, .past_done = stream_past_done,            \
    .sum_squares = stream_sum_squares, .adamw = stream_adamw
