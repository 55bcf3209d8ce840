/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels beside the products of a library. Internal to the kernels. */
#ifndef WEFT_KERN_SUM_BLOCKS_CUDA_H
#define WEFT_KERN_SUM_BLOCKS_CUDA_H

#include "kern/kern_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The leaves of a tree: of leaf i, number (r, c) is x[i][r * ld[i] + c]; NULL
 * adds nothing. Not all are NULL. */
struct weft_leaves_cuda {
    const float *x[WEFT_MAX_BLOCKS];
    int64_t ld[WEFT_MAX_BLOCKS];
};

/* RMSNorm of the rows of a sum; out (rows, n) in dtype. */
struct weft_norm_cuda {
    enum weft_dtype dtype;
    float eps;
    const float *w; /* (n) */
    void *out;
};

/* y (m, n), leading dimension ldy, = ((the leaves added by the binary tree) +
 * bias (n)) + residual (as y), rounded to y_dtype; bias and residual may be
 * NULL, y may be the residual or a leaf of its own leading dimension. */
void weft_sum_leaves_cuda(struct CUstream_st *stream, int64_t m, int64_t n,
                          const struct weft_leaves_cuda *leaves,
                          const float *bias, const float *residual,
                          enum weft_dtype y_dtype, void *y, int64_t ldy);
/* The same in f32 with ldy = n, and its norm, in one launch. */
void weft_sum_leaves_norm_cuda(struct CUstream_st *stream, int64_t m,
                               int64_t n,
                               const struct weft_leaves_cuda *leaves,
                               const float *bias, const float *residual,
                               float *y, const struct weft_norm_cuda *norm);
/* weft_k_gemm_cuda() and the norm of y, f32 rows without gaps; norm NULL: none.
 * The sum has a bias, a residual or several blocks. */
void weft_gemm_norm_cuda(struct CUstream_st *stream,
                         const struct weft_k_gemm_args *args,
                         const struct weft_norm_cuda *norm, void *scratch);

/* An operand of a product that is tested: n vectors of so many numbers in
 * each of n_sets. */
struct weft_operand_cuda {
    int64_t n, depth;
    int64_t step;       /* between vectors */
    int64_t depth_step; /* between numbers of a vector */
    int32_t n_sets;
    int64_t set; /* between sets */
    bool cancels;
};
/* Fills it with numbers up to 1, of several sizes. One operand of a product
 * repeats the first half of each vector in its second, and the other, which
 * `cancels`, has the first half negated there, in every other vector: what is
 * left of such a sum are its roundings, so that another order shows in nearly
 * every number, also where it is rounded to bf16. */
void weft_fill_operand_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                            const struct weft_operand_cuda *operand,
                            void *out);

/* *is_unlike_out = whether a and b differ in some row of n_bytes (even), n of
 * them in each of n_sets. Rows of a are ld_a bytes apart, those of b ld_b;
 * sets are set_bytes apart in both. */
void weft_find_unlike_cuda(struct CUstream_st *stream, int64_t n,
                           int32_t n_sets, size_t n_bytes, size_t set_bytes,
                           const void *a, size_t ld_a, const void *b,
                           size_t ld_b, uint32_t *is_unlike_out);

#ifdef __cplusplus
}
#endif
#endif
