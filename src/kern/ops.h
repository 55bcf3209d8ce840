/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an instruction set provides: one table each, chosen once at start.
 * Drivers (gemm_cpu.c, ...) are compiled once; what is here is compiled per
 * set, from tile_impl.h and stream_impl.h. Internal to src/kern.
 *
 * All products are made of one *tile*: up to tile_rows rows of 32 columns,
 * one chain of steps per element. A step is 4 bytes of a row and 128 bytes of
 * a panel: one k in f32, a pair of k in bf16. How a step is added is the
 * instruction set's own: f32 a fused multiply-add (plain C: a product, then
 * a sum); bf16 the CPU's dot product, or the odd k, then the even k.
 */
#ifndef WEFT_KERN_OPS_H
#define WEFT_KERN_OPS_H

#include "kern/kern.h"

enum {
    WEFT_TILE_ROWS = 12,   /* the largest tile_rows */
    WEFT_STEP_BYTES = 4,   /* of a row of x */
    WEFT_PANEL_BYTES = 128 /* of a panel of w, per step */
};

/* c (rows, 32), leading dimension ldc: the chain over `steps` of x times w,
 * from c when `cont`, else from 0. x: bytes; row i begins at x + i * ldx
 * bytes (row-major), or at x + 4 i with steps 4 * tile_rows apart (packed;
 * ldx ignored). w: panel of `steps` steps. rows: 1..tile_rows. */
typedef void (*weft_k_tile_fn)(int rows, int64_t steps, const void *x,
                               int64_t ldx, const void *w, float *c,
                               int64_t ldc, bool cont);

struct weft_k_ops {
    enum weft_isa isa;
    int tile_rows;
    weft_k_tile_fn tile[2];        /* by dtype, x row-major */
    weft_k_tile_fn tile_packed[2]; /* by dtype, x packed */

    /* dst[s * width + j] = 4-byte step of column j: f32 x[row0[s]][j]; bf16
     * the pair x[row0[s]][j], x[row1[s]][j], row1 -1: zero. steps >= 1. n:
     * columns that may be read; those missing to `width` <= 32 are zero. ldx
     * in elements. */
    void (*pack_steps)(enum weft_dtype dtype, int64_t steps,
                       const int32_t *row0, const int32_t *row1,
                       const void *x, int64_t ldx, int64_t n, int64_t width,
                       void *dst);
    /* y[j] = acc[j] + bias[j] + residual[j]; NULL: without. */
    void (*finish)(int64_t n, const float *acc, const float *bias,
                   const float *residual, enum weft_dtype y_dtype, void *y);
    void (*add)(float *dst, const float *src, size_t n);
    /* dst: n bf16. */
    void (*to_bf16)(const float *src, size_t n, uint16_t *dst);
    /* One panel's forward bf16 pack: src (k, 32) f32 -> dst (k/2, 32, 2). */
    void (*pair_bf16)(const float *src, int64_t k, uint16_t *dst);
    /* 32 x 32 transpose: dst[i][j] = src[j][i]; rows are lds and 32 apart.
     * bf16: dst (16, 32, 2) pairs of i. */
    void (*transpose)(enum weft_dtype dtype, const float *src, void *dst);
    double (*sum_squares)(const float *x, size_t n);
    void (*adamw)(const struct weft_k_adamw *o, size_t n, float scale,
                  const float *grad, float *master, float *m, float *v);
};

/* The chosen table; chooses the best when nobody called weft_k_init(). */
const struct weft_k_ops *weft_k_ops(void);

extern const struct weft_k_ops weft_k_ops_c, weft_k_ops_avx2,
    weft_k_ops_avx512, weft_k_ops_avx512_bf16;

#endif
