/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operations of ops.h: plain loops that compilers vectorise for
 * the instruction set of the including file. The same bits in every set: no
 * fused multiply-adds, sums in fixed lanes. Before it the file defines SQRT16
 * (x[i] = sqrt x[i], 16 floats).
 */
#include <math.h>
#include <string.h>

#include "kern/ops.h"

enum { LANES_16 = 16, SUM_TILE = 4096 };

/* Loads at any alignment. */
WEFT_INLINE uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

WEFT_INLINE uint32_t bf16_bits(float f)
{
    uint32_t u = bits_of(f);
    uint32_t nan = (u >> 16) | 0x40u;
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}

static void stream_add(float *restrict dst, const float *restrict src,
                       size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] += src[i];
}

static void stream_to_bf16(const float *restrict src, size_t n,
                           uint16_t *restrict dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint16_t) bf16_bits(src[i]);
}

static void stream_finish(int64_t n, const float *acc, const float *bias,
                          const float *residual, enum weft_dtype y_dtype,
                          void *y)
{
    float sum[WEFT_PANEL];
    memcpy(sum, acc, (size_t) n * sizeof(float));
    if (bias)
        for (int64_t j = 0; j < n; j++)
            sum[j] += bias[j];
    if (residual)
        for (int64_t j = 0; j < n; j++)
            sum[j] += residual[j];
    if (y_dtype == WEFT_BF16)
        stream_to_bf16(sum, (size_t) n, y);
    else
        memcpy(y, sum, (size_t) n * sizeof(float));
}

/* Columns of one step; x1 NULL: a pair's second token is missing. */
WEFT_INLINE void pack_f32(const char *x, int64_t n, char *dst)
{
    memcpy(dst, x, (size_t) n * sizeof(float));
}

WEFT_INLINE void pack_bf16(const char *x0, const char *x1, int64_t n,
                           char *dst)
{
    uint32_t step[WEFT_PANEL];
    uint16_t low[WEFT_PANEL], high[WEFT_PANEL] = {0};
    memcpy(low, x0, (size_t) n * sizeof low[0]);
    if (x1)
        memcpy(high, x1, (size_t) n * sizeof high[0]);
    for (int64_t j = 0; j < n; j++)
        step[j] = low[j] | (uint32_t) high[j] << 16;
    memcpy(dst, step, (size_t) n * sizeof step[0]);
}

/* `copy` columns of every step, a constant where it is called from. */
WEFT_INLINE void pack_columns(enum weft_dtype dtype, int64_t steps,
                              const int32_t *row0, const int32_t *row1,
                              const char *x, int64_t ldx, const int64_t copy,
                              int64_t width, char *dst)
{
    for (int64_t s = 0; s < steps; s++, dst += width * WEFT_STEP_BYTES) {
        if (dtype == WEFT_F32)
            pack_f32(x + row0[s] * ldx * 4, copy, dst);
        else if (row1[s] >= 0)
            pack_bf16(x + row0[s] * ldx * 2, x + row1[s] * ldx * 2, copy,
                      dst);
        else
            pack_bf16(x + row0[s] * ldx * 2, NULL, copy, dst);
    }
}

static void stream_pack_steps(enum weft_dtype dtype, int64_t steps,
                              const int32_t *row0, const int32_t *row1,
                              const void *x, int64_t ldx, int64_t n,
                              int64_t width, void *dst)
{
    if (n >= WEFT_PANEL && width == WEFT_PANEL) {
        pack_columns(dtype, steps, row0, row1, x, ldx, WEFT_PANEL, width,
                     dst);
    } else if (n >= LANES_16 && width <= LANES_16) {
        /* Whole vectors that run over into the next steps, which come
         * later; only the last must not. */
        int64_t exact = weft_ceil_div(LANES_16, width) - 1;
        int64_t over = weft_max64(steps - exact, 0);
        pack_columns(dtype, over, row0, row1, x, ldx, LANES_16, width, dst);
        pack_columns(dtype, steps - over, row0 + over, row1 + over, x, ldx,
                     width, width,
                     (char *) dst + over * width * WEFT_STEP_BYTES);
    } else {
        memset(dst, 0, (size_t) (steps * width) * WEFT_STEP_BYTES);
        pack_columns(dtype, steps, row0, row1, x, ldx,
                     weft_min64(n, width), width, dst);
    }
}

/* Two bf16 as they lie in memory, the first in the low half. */
static void stream_pair_bf16(const float *restrict src, int64_t k,
                             uint16_t *restrict dst)
{
    for (int64_t i = 0; i < k; i += 2) {
        const float *even = src + i * WEFT_PANEL, *odd = even + WEFT_PANEL;
        uint32_t pair[WEFT_PANEL];
        for (int j = 0; j < WEFT_PANEL; j++)
            pair[j] = bf16_bits(even[j]) | bf16_bits(odd[j]) << 16;
        memcpy(dst + i * WEFT_PANEL, pair, sizeof pair);
    }
}

/* to[j * ldt + i] = from[i * ldf + j], i and j < 8 */
#ifndef TRANSPOSE8
#define TRANSPOSE8(from, ldf, to, ldt)                                       \
    for (int i_ = 0; i_ < 8; i_++)                                           \
        for (int j_ = 0; j_ < 8; j_++)                                       \
            (to)[j_ * (ldt) + i_] = (from)[i_ * (ldf) + j_]
#endif

static void stream_transpose(enum weft_dtype dtype, const float *src,
                             void *dst)
{
    enum { SQUARE = WEFT_PANEL * WEFT_PANEL };
    uint32_t from[SQUARE], to[SQUARE];
    uint16_t half[SQUARE];
    int width = WEFT_PANEL;
    if (dtype == WEFT_F32) {
        memcpy(from, src, sizeof from);
    } else { /* a pair of columns goes as one */
        stream_to_bf16(src, SQUARE, half);
        memcpy(from, half, sizeof half);
        width /= 2;
    }
    for (int i = 0; i < WEFT_PANEL; i += 8)
        for (int j = 0; j < width; j += 8)
            TRANSPOSE8(from + i * width + j, width, to + j * WEFT_PANEL + i,
                       WEFT_PANEL);
    memcpy(dst, to, (size_t) (WEFT_PANEL * width) * sizeof to[0]);
}

static double stream_sum_squares(const float *x, size_t n)
{
    double total = 0;
    for (size_t at = 0; at < n; at += SUM_TILE) {
        size_t end = n - at < SUM_TILE ? n : at + SUM_TILE;
        double lane[LANES_16] = {0};
        size_t i = at;
        for (; i + LANES_16 <= end; i += LANES_16)
            for (int j = 0; j < LANES_16; j++)
                lane[j] += (double) x[i + j] * (double) x[i + j];
        for (int j = 0; i < end; i++, j++)
            lane[j] += (double) x[i] * (double) x[i];
        for (int half = LANES_16 / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++)
                lane[j] += lane[j + half];
        total += lane[0];
    }
    return total;
}

static size_t stream_find_nonfinite(const float *x, size_t n)
{
    for (size_t at = 0; at < n; at += SUM_TILE) {
        size_t end = n - at < SUM_TILE ? n : at + SUM_TILE;
        uint32_t bad = 0;
        for (size_t i = at; i < end; i++)
            bad |= (bits_of(x[i]) & 0x7fffffffu) >= 0x7f800000u;
        if (!bad)
            continue;
        for (size_t i = at; i < end; i++)
            if ((bits_of(x[i]) & 0x7fffffffu) >= 0x7f800000u)
                return i;
    }
    return n;
}

/* Constants of one AdamW step. */
struct adamw_step {
    float scale, keep, beta1, beta2, rest1, rest2, step_size, root_bias2, eps;
};

/* The moments; root = v. Functions of their own, so that restrict counts. */
WEFT_NOINLINE
static void adamw_moments(const struct adamw_step *s, size_t n,
                          const float *restrict grad, float *restrict m,
                          float *restrict v, float *restrict root)
{
    const struct adamw_step c = *s;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * c.scale;
        m[i] = c.beta1 * m[i] + c.rest1 * g;
        root[i] = v[i] = c.beta2 * v[i] + c.rest2 * g * g;
    }
}

WEFT_NOINLINE
static void adamw_master(const struct adamw_step *s, size_t n,
                         const float *restrict m, const float *restrict root,
                         float *restrict master)
{
    const struct adamw_step c = *s;
    for (size_t i = 0; i < n; i++)
        master[i] = c.keep * master[i]
                  - c.step_size * m[i] / (root[i] * c.root_bias2 + c.eps);
}

static void stream_adamw(const struct weft_k_adamw *o, size_t n, float scale,
                         const float *grad, float *master, float *m, float *v)
{
    enum { BLOCK = 512 };
    double bias1 = 1 - pow(o->beta1, (double) o->step);
    double bias2 = 1 - pow(o->beta2, (double) o->step);
    const struct adamw_step s = {
        .scale = scale,
        .keep = (float) (1 - (double) o->lr * o->weight_decay),
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .rest1 = (float) (1 - (double) o->beta1),
        .rest2 = (float) (1 - (double) o->beta2),
        .step_size = (float) (o->lr / bias1),
        .root_bias2 = (float) (1 / sqrt(bias2)),
        .eps = o->eps,
    };
    float root[BLOCK] = {0};
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t some = n - at < BLOCK ? n - at : BLOCK;
        adamw_moments(&s, some, grad + at, m + at, v + at, root);
        for (size_t i = 0; i < some; i += LANES_16)
            SQRT16(root + i);
        adamw_master(&s, some, m + at, root, master + at);
    }
}

#define STREAM_OPS                                                           \
    .pack_steps = stream_pack_steps, .finish = stream_finish,                \
    .add = stream_add, .to_bf16 = stream_to_bf16,                            \
    .pair_bf16 = stream_pair_bf16, .transpose = stream_transpose,            \
    .sum_squares = stream_sum_squares,                                       \
    .find_nonfinite = stream_find_nonfinite, .adamw = stream_adamw
