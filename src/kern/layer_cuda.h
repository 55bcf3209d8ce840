/* SPDX-License-Identifier: Apache-2.0 */
/* What both halves of a decoder layer's passes share on a GPU. Internal to the
 * kernels. */
#ifndef WEFT_KERN_LAYER_CUDA_H
#define WEFT_KERN_LAYER_CUDA_H

#include <cuda_runtime.h> /* emulated cards define WEFT_CUDA_EXECUTOR */

#include "kern/kern_cuda.h"
#include "kern/layer_rows_cuda.h"

/* A product's stream and scratch, for weft_layer_gemm_roots(). norm: the sum's
 * norm is wanted, too; or NULL. */
struct weft_norm_cuda;
struct weft_gemm_cuda {
    struct CUstream_st *stream;
    void *scratch;
    const struct weft_norm_cuda *norm;
};
void weft_layer_gemm_cuda(const struct weft_k_gemm_args *args, void *context);

/* Whether one launch has all heads of all blocks of the range. */
bool weft_layer_blocks_are_alike(const struct weft_shape *shape,
                                 struct weft_range range);

/* Scratch of m rows' products: of sums over blocks. */
size_t weft_layer_gemm_bytes_cuda(const struct weft_shape *shape, int64_t m);

#endif
