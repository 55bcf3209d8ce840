/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The innermost loops of products and elementwise operations: one table of
 * functions per instruction set, chosen once at start. Their callers
 * (gemm_cpu.c, ...) are compiled once; the functions here are compiled for
 * each set, from tile_impl.h and stream_impl.h. Internal to src/kern.
 *
 * All products are made of one *tile*: up to tile_rows rows of 32 columns,
 * every element one chain of steps. A step reads 4 bytes of a row and 128
 * bytes of a panel: one k in f32, a pair of k in bf16. An f32 step is a fused
 * multiply-add (plain C: a product, then a sum). A bf16 step is the CPU's dot
 * product where it has one; elsewhere the product of the odd k is added, then
 * that of the even k.
 */
#ifndef WEFT_KERN_OPS_H
#define WEFT_KERN_OPS_H

#include "kern/kern.h"

enum {
    WEFT_TILE_ROWS = 12,    /* the largest tile_rows */
    WEFT_STEP_BYTES = 4,    /* of a row of x */
    WEFT_PANEL_BYTES = 128, /* of a panel of w, per step */
    /* Tiles from this size on are written past the caches, which would not
     * keep them. */
    WEFT_PAST_BYTES = 1 << 20
};

/* Memory to prefetch beside the steps of a tile: 128 bytes from `at` on with
 * the first step, from at + step on with the second, and so on. */
struct weft_k_next {
    const char *at;
    int64_t step;
};

/* c (rows, 32), leading dimension ldc: the chain over `steps` steps of x times
 * w, which starts from c when `cont`, else from 0. rows: 1..tile_rows. Row i
 * of x begins ldx * i bytes after x; in the packed form it begins 4 * i bytes
 * after x, its steps are 4 * tile_rows bytes apart, and ldx is ignored. w: a
 * panel of `steps` steps. */
typedef void (*weft_k_tile_fn)(int rows, int64_t steps, const void *x,
                               int64_t ldx, const void *w, float *c,
                               int64_t ldc, bool cont,
                               struct weft_k_next next);

struct weft_k_ops {
    enum weft_isa isa;
    int tile_rows;
    weft_k_tile_fn tile[2];        /* by dtype, x row-major */
    weft_k_tile_fn tile_packed[2]; /* by dtype, x packed */

    /* dst[s * width + j] = step s (4 bytes) of column j: in f32 x[row0[s]][j],
     * in bf16 the pair x[row0[s]][j], x[row1[s]][j], whose second is 0 where
     * row1[s] is -1. steps >= 1. x has n columns from here on; columns from n
     * to `width` (at most 32) are 0. ldx: in elements. */
    void (*pack_steps)(enum weft_dtype dtype, int64_t steps,
                       const int32_t *row0, const int32_t *row1,
                       const void *x, int64_t ldx, int64_t n, int64_t width,
                       void *dst);
    /* y[j] = acc[j] + bias[j] + residual[j]; the last two may be NULL. */
    void (*finish)(int64_t n, const float *acc, const float *bias,
                   const float *residual, enum weft_dtype y_dtype, void *y);
    void (*add)(float *dst, const float *src, size_t n);
    /* dst: n bf16. */
    void (*to_bf16)(const float *src, size_t n, uint16_t *dst);
    /* A panel of a published bf16 matrix: src (k, 32) f32 to dst (k/2, 32,
     * 2). */
    void (*pair_bf16)(const float *src, int64_t k, uint16_t *dst);
    /* dst[i][j] = src[j][i], both (32, 32) of dtype; bf16: both (16, 32, 2),
     * with pairs of the first index. */
    void (*transpose)(enum weft_dtype dtype, const void *src, void *dst);
    /* Copies bytes past the caches to memory: nothing that was there is read,
     * and nothing stays in a cache. Whoever is told of them by this thread
     * sees them once past_done() has returned. */
    void (*copy_past)(void *restrict dst, const void *restrict src,
                      size_t bytes);
    void (*past_done)(void);
    double (*sum_squares)(const float *x, size_t n);
    void (*adamw)(const struct weft_k_adamw *o, size_t n, float scale,
                  const float *grad, float *master, float *m, float *v);
};

/* The chosen table; the best one if weft_k_init() was never called. */
const struct weft_k_ops *weft_k_ops(void);

extern const struct weft_k_ops weft_k_ops_c, weft_k_ops_avx2,
    weft_k_ops_avx512, weft_k_ops_avx512_bf16;

#endif
