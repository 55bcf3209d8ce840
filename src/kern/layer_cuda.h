/* SPDX-License-Identifier: Apache-2.0 */
/* What both halves of a decoder layer's passes share on a GPU. Internal to the
 * kernels. */
#ifndef WEFT_KERN_LAYER_CUDA_H
#define WEFT_KERN_LAYER_CUDA_H

#include <cuda_runtime.h> /* emulated cards define WEFT_CUDA_EXECUTOR */

#include "kern/kern_cuda.h"
#include "kern/layer_rows_cuda.h"

/* A product's stream and scratch, for weft_layer_gemm_roots(). */
struct weft_gemm_cuda {
    struct CUstream_st *stream;
    void *scratch;
};
void weft_layer_gemm_cuda(const struct weft_k_gemm_args *args, void *context);

/* Scratch of m rows' products: of sums over blocks, and of q, k and v with
 * their bias. */
size_t weft_layer_gemm_bytes_cuda(const struct weft_shape *shape,
                                  struct weft_range range, int64_t m);

#endif
