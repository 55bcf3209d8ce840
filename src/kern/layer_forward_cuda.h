/* SPDX-License-Identifier: Apache-2.0 */
/* What both halves of a decoder layer's forward pass need on a GPU. */
#ifndef WEFT_KERN_LAYER_FORWARD_CUDA_H
#define WEFT_KERN_LAYER_FORWARD_CUDA_H

#include "kern/layer_cuda.h"
#include "kern/layer_forward.h"

/* Rows of q, k and v, and of the MLP, that are computed at a time. */
#ifdef WEFT_CUDA_EXECUTOR /* tests have few rows */
enum { WEFT_CHUNK_ROWS_CUDA = 24 };
#else
enum { WEFT_CHUNK_ROWS_CUDA = 4096 };
#endif

struct weft_forward_cuda {
    struct weft_layer_forward f; /* saved values and weights */
    struct weft_gemm_cuda gemm;
    struct weft_rows_cuda rows;
    void *normed;                    /* (M, H) in dtype */
    float *product[WEFT_MAX_BLOCKS]; /* (chunk, qkv) */
    /* KV heads of the range, and of its blocks before; pages have all */
    int32_t n_kv, kv_before[WEFT_MAX_BLOCKS];
    char *pages;
    float *parts; /* of attention, or NULL */
};

/* K and V of a page and a KV head. */
WEFT_INLINE size_t weft_layer_head_bytes(const struct weft_shape *s)
{
    return 2 * (size_t) s->head_dim * WEFT_PAGE_TOKENS
         * weft_dtype_bytes(s->dtype);
}

/* Scratch of the attention launch that needs most, where blocks share the keys
 * of a sequence; 0: none does. rows is set. */
size_t weft_layer_parts_bytes_cuda(const struct weft_forward_cuda *p);

/* Computes the layer up to the input of the O product. kv NULL: keys and values
 * go to pages in scratch. */
void weft_layer_attention_cuda(const struct weft_forward_cuda *p,
                               int32_t layer, const struct weft_k_kv *kv,
                               const float *x);

#endif
