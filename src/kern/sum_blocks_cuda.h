/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels beside the products of a library. Internal to the kernels. */
#ifndef WEFT_KERN_SUM_BLOCKS_CUDA_H
#define WEFT_KERN_SUM_BLOCKS_CUDA_H

#include "kern/kern_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y (m, n) with leading dimension ldy = ((the sum of n_blocks leaves (m, n),
 * by the binary tree) + bias (n)) + residual (as y), rounded to y_dtype; bias
 * and residual may be NULL, y may be the residual. */
void weft_sum_blocks_cuda(struct CUstream_st *stream, int64_t m, int64_t n,
                          int32_t n_blocks, const float *leaves,
                          const float *bias, const float *residual,
                          enum weft_dtype y_dtype, void *y, int64_t ldy);

/* *is_unlike_out = whether a and b differ in some row of n_bytes (even); rows
 * are ld_bytes apart, n of them in each of n_sets that are set_bytes apart. */
void weft_find_unlike_cuda(struct CUstream_st *stream, int64_t n,
                           int32_t n_sets, size_t n_bytes, size_t ld_bytes,
                           size_t set_bytes, const void *a, const void *b,
                           uint32_t *is_unlike_out);

#ifdef __cplusplus
}
#endif
#endif
