/* SPDX-License-Identifier: Apache-2.0 */
/* What a layer needs on a GPU beside the operations of kern_cuda.h. Internal
 * to the kernels. */
#ifndef WEFT_KERN_LAYER_ROWS_CUDA_H
#define WEFT_KERN_LAYER_ROWS_CUDA_H

#include "kern/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* A batch's rows in device memory. With `pages`, each run has a slot and pages
 * of its own: run i the pages first_page[i].., numbered from 0. */
struct weft_rows_cuda {
    struct weft_k_run *run;        /* (n_runs) */
    int32_t *first_row, *run_rows; /* (n_runs) */
    int32_t *page;                 /* (n_runs, pages_per_slot) */
    int32_t *at;                   /* (n_rows): i */
    float *cos_sin;                /* (n_rows, D) */
    int32_t max_rows, pages_per_slot;
    int64_t n_pages;
};
/* Of the batch, runs and their numbers of rows are read. */
void weft_rows_cuda_at(const struct weft_shape *shape,
                       const struct weft_k_batch *batch,
                       struct weft_arena *arena, struct weft_rows_cuda *out);
/* norm: beside it the norm of x; or NULL. A decode step takes one launch. */
struct weft_rows_norm_cuda {
    const float *x, *w; /* (n_rows, H), (H) */
    void *out;          /* (n_rows, H) in dtype */
};
void weft_rows_cuda_fill(struct CUstream_st *stream,
                         const struct weft_shape *shape,
                         const struct weft_k_batch *batch, bool own_pages,
                         const struct weft_rows_cuda *rows,
                         const struct weft_rows_norm_cuda *norm);

/* y (n) = silu(gate) * up of rows that alternate 32 gates and 32 ups (rows.h),
 * of tensor blocks: n[b] numbers of y. */
struct weft_swiglu_cuda {
    int32_t n_blocks;
    int64_t n[WEFT_MAX_BLOCKS];
    const void *gate_up[WEFT_MAX_BLOCKS];
    void *y[WEFT_MAX_BLOCKS];
};
void weft_swiglu_blocks_cuda(struct CUstream_st *stream,
                             enum weft_dtype dtype,
                             const struct weft_swiglu_cuda *a);

/* q, k and v of tensor blocks, from their products to what attention reads:
 * + bias, norm of q's and k's heads, rotation, rounding, keys and values also
 * to their pages. Pointers are device memory. */
struct weft_qkv_block_cuda {
    float *product; /* (n_rows, qkv): rows row.. of the batch; may change */
    const float *bias;     /* (qkv), or NULL */
    float *raw;            /* (rows, q + k): before the norm; or NULL */
    void *qkv;             /* (rows, qkv) in dtype */
    char *kv;              /* KV head 0 of page 0 */
    int32_t n_heads, n_kv; /* of q; of k, and of v */
    int32_t first_head;    /* how many, q's, k's and v's, are before */
};
struct weft_qkv_cuda {
    enum weft_dtype dtype;
    int32_t head_dim, n_runs, max_rows;
    const struct weft_k_run *run; /* (n_runs) */
    const int32_t *first_row;     /* (n_runs) */
    int64_t row, n_rows;          /* others are left alone */
    const float *cos_sin;         /* (rows, D) */
    const float *qnorm, *knorm;   /* (D), or NULL */
    float eps;
    size_t page_bytes, head_bytes; /* as in weft_attention_cuda */
    const int32_t *page;
    int32_t pages_per_slot;
    int32_t n_blocks;
    struct weft_qkv_block_cuda block[WEFT_MAX_BLOCKS];
};
void weft_qkv_cuda(struct CUstream_st *stream, const struct weft_qkv_cuda *a);

/* weft_k_rmsnorm_cuda(), and beside it, unless d is NULL, rounded (m, h) in the
 * dtype = d (m, h). */
void weft_norm_round_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                          int64_t m, int64_t h, float eps, const float *x,
                          const float *w, void *y, const float *d,
                          void *rounded);
/* weft_k_add_rows_cuda() of several matrices: sum[t] (n[t]) += the rows of
 * x[t] (m, ld[t]). */
struct weft_row_sums_cuda {
    int32_t n_blocks;
    const float *x[WEFT_MAX_BLOCKS];
    int64_t n[WEFT_MAX_BLOCKS], ld[WEFT_MAX_BLOCKS];
    float *sum[WEFT_MAX_BLOCKS];
};
void weft_add_rows_cuda(struct CUstream_st *stream, int64_t m,
                        const struct weft_row_sums_cuda *sums);

/* weft_k_rmsnorm_backward_cuda(); rounded: NULL, or dx in the dtype, too. */
void weft_norm_backward_cuda(struct CUstream_st *stream,
                             enum weft_dtype dtype, int64_t m, int64_t h,
                             float eps, const float *x, const float *w,
                             const float *dy, float *dx, float *dw,
                             void *rounded, float *scratch);

/* Gradients of q, k and v of tensor blocks: heads of size d of each of m rows,
 * the first of which are rotated back, by cos_sin (m, d). */
struct weft_unrotate_block_cuda {
    float *x;      /* (m, n_heads * d), changed in place */
    void *rounded; /* the same in the dtype; or NULL */
    int32_t n_heads, n_rotated;
};
struct weft_unrotate_cuda {
    int32_t n_blocks;
    struct weft_unrotate_block_cuda block[WEFT_MAX_BLOCKS];
};
void weft_unrotate_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                        int64_t m, int64_t d, const float *cos_sin,
                        const struct weft_unrotate_cuda *a);

/* y (m, n), leading dimension ldy, = x (m, n), ldx; x NULL: 0. Numbers of
 * `element` bytes, 2 or 4. */
void weft_columns_cuda(struct CUstream_st *stream, size_t element, int64_t m,
                       int64_t n, const void *x, int64_t ldx, void *y,
                       int64_t ldy);

/* RMSNorm of the n_heads heads of each of m rows x (m, ld) backwards, x being
 * the norm's input: g (m, ldg) is overwritten by the
 * gradient of x. sum (m, d): each row's gradient of w, its heads added in
 * order; NULL: not wanted. */
void weft_head_norms_backward_cuda(struct CUstream_st *stream, int64_t m,
                                   int64_t n_heads, int64_t d, float eps,
                                   const float *x, int64_t ldx,
                                   const float *w, float *g, int64_t ldg,
                                   float *sum);

/* Rows of H floats, to and from row[i]. */
void weft_gather_cuda(struct CUstream_st *stream, int64_t n, int64_t h,
                      const int32_t *row, const float *x, float *out);
void weft_scatter_cuda(struct CUstream_st *stream, int64_t n, int64_t h,
                       const int32_t *row, const float *x, float *out);

#ifdef __cplusplus
}
#endif
#endif
