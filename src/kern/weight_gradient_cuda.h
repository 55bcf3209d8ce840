/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of bf16 weights on a GPU. Internal to the products. */
#ifndef WEFT_KERN_WEIGHT_GRADIENT_CUDA_H
#define WEFT_KERN_WEIGHT_GRADIENT_CUDA_H

#include "kern/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* weft_k_gemm_dw_cuda() in bf16. */
void weft_weight_gradient_cuda(struct CUstream_st *stream,
                               const struct weft_k_gemm_dw_args *args);

#ifdef __cplusplus
}
#endif
#endif
