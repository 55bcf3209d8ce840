/* SPDX-License-Identifier: Apache-2.0 */
/* What the halves of a decoder layer's backward pass share on a GPU. Internal
 * to the kernels. */
#ifndef WEFT_KERN_LAYER_BACKWARD_CUDA_H
#define WEFT_KERN_LAYER_BACKWARD_CUDA_H

#include "kern/layer_backward.h"
#include "kern/layer_cuda.h"

/* Of a range of a layer's blocks; all but b, rows and dqkv are in scratch. */
struct weft_backward_cuda {
    struct weft_layer_backward b; /* without run_rows and dw */
    struct weft_gemm_cuda gemm;
    struct weft_rows_cuda rows;
    void *normed, *dy; /* (M, H) in dtype */
    float *inverse;    /* (M) 1 / rms of a norm's rows */
    /* the MLP's */
    float *dact;                     /* (M, ff) of one block */
    void *act;                       /* (M, ff) in dtype */
    void *dgate_up[WEFT_MAX_BLOCKS]; /* (M, 2 ff) in dtype */
    /* attention's, in the same memory */
    void *datt[WEFT_MAX_BLOCKS];   /* (M, q): f32, on tensor cores in dtype */
    float *delta[WEFT_MAX_BLOCKS]; /* (M, heads) */
    void *dqkv_rounded[WEFT_MAX_BLOCKS]; /* (M, qkv) in dtype */
    float *dqkv[WEFT_MAX_BLOCKS];        /* (M, qkv), not in scratch */
    /* of q's norm, then of k's: rows' gradients (M, D); with qk_norm */
    float *norm_sum[2][WEFT_MAX_BLOCKS];
};

static inline struct weft_backward_cuda weft_backward_of_cuda(
    struct CUstream_st *stream, const struct weft_shape *shape,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, float *const grad[])
{
    return (struct weft_backward_cuda){.b = {.s = shape,
                                             .range = range,
                                             .batch = batch,
                                             .weights = weights,
                                             .grad = grad},
                                       .gemm = {.stream = stream}};
}

/* Sets what lies in scratch, and with what was saved and dqkv (or NULL) all. */
void weft_backward_begin_cuda(struct weft_backward_cuda *p, const void *saved,
                              float *dqkv, void *scratch);

/* dx (M, K) in dtype = dy (M, n) W, for one block. */
void weft_backward_dx_cuda(const struct weft_backward_cuda *p,
                           const struct weft_layer_matrix *w, const void *dy,
                           enum weft_dtype dtype, void *dx);
/* The matrix's gradient continues by dy^T x, sample by sample. */
void weft_backward_dw_cuda(const struct weft_backward_cuda *p,
                           const struct weft_layer_matrix *w, int64_t k,
                           const void *dy, const void *x);
enum weft_dtype weft_backward_datt_dtype(const struct weft_shape *shape);

/* weft_k_heads_backward_cuda() and weft_k_qkv_backward_cuda() when p->rows are
 * filled and p->dy is the gradient in the dtype. */
void weft_backward_heads_cuda(struct weft_backward_cuda *p, float *shared);
void weft_backward_qkv_cuda(struct weft_backward_cuda *p, const float *x,
                            int32_t n_members,
                            const struct weft_k_shared *member, float *roots,
                            float *head_norms);

/* weft_k_norm_backward_cuda(). */
struct weft_norm_backward_cuda {
    bool attention;
    int64_t n_rows;
    const float *norms, *x;
    int32_t n_parts;
    const struct weft_k_part *part, *head_norm;
    float *dx, *grad_norms;
    void *rounded;  /* NULL, or dx in the dtype, too */
    float *inverse; /* (M) scratch */
    float *joined;  /* (M, H or D) scratch of several parts */
};
void weft_backward_norm_cuda(struct CUstream_st *stream,
                             const struct weft_shape *shape,
                             const struct weft_norm_backward_cuda *a);

#endif
