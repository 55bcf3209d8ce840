/* SPDX-License-Identifier: Apache-2.0 */
/* What both halves of a decoder layer's backward pass need. */
#ifndef WEFT_KERN_LAYER_BACKWARD_H
#define WEFT_KERN_LAYER_BACKWARD_H

#include "kern/layer.h"
#include "kern/rows.h"

/* The backward pass of a range of a layer's blocks. */
struct weft_layer_backward {
    const struct weft_shape *s;
    struct weft_range range;
    const struct weft_k_batch *batch;
    const struct weft_row_ops *rows;
    const struct weft_k_layer *weights;
    float *const *grad;
    struct weft_layer_saved at;
    int32_t *run_rows; /* (n_runs) */
    void *dw;          /* scratch of weft_k_gemm_dw() */
};

/* Takes run_rows and dw from the arena, before anything else of a part's
 * scratch. */
void weft_layer_backward_at(struct weft_layer_backward *b,
                            struct weft_arena *arena);
/* Sets the other members; saved: what the range saved in the forward pass. */
void weft_layer_backward_begin(struct weft_layer_backward *b,
                               const void *saved);

/* Scratch of weft_k_mlp_backward(); and of weft_k_heads_backward() and
 * weft_k_qkv_backward(). */
size_t weft_layer_mlp_scratch_bytes(const struct weft_shape *shape,
                                    struct weft_range range,
                                    const struct weft_k_batch *batch);
size_t weft_layer_attention_scratch_bytes(const struct weft_shape *shape,
                                          struct weft_range range,
                                          const struct weft_k_batch *batch);

/* A matrix in block t's tiles of weights and gradients. */
struct weft_layer_matrix {
    struct weft_part part;
    const void *bwd; /* the transposed matrix */
    float *grad;
};
struct weft_layer_matrix weft_layer_matrix(
    const struct weft_layer_backward *b, int32_t t, enum weft_part_id id);

/* The matrix's gradient continues by dy^T x: dy (M, n), x (M, k) in dtype. */
void weft_layer_dw(const struct weft_layer_backward *b,
                   const struct weft_layer_matrix *w, int64_t k,
                   const void *dy, const void *x);
/* dx (M, k) = dy (M, n) W, for one block; and the product's arguments. */
struct weft_k_gemm_args weft_layer_dx_args(
    const struct weft_layer_backward *b, const struct weft_layer_matrix *w,
    const void *dy, float *dx);
void weft_layer_dx(const struct weft_layer_backward *b,
                   const struct weft_layer_matrix *w, const void *dy,
                   float *dx);
/* roots (n_roots, M, H): of the sum over the range's blocks of dy[t] W_t. */
void weft_layer_dx_roots(const struct weft_layer_backward *b,
                         enum weft_part_id id, void *const dy[], float *roots,
                         weft_layer_gemm_fn gemm, void *context);

/* The largest number of columns of a block of the range. */
int64_t weft_layer_widest(const struct weft_shape *shape,
                          struct weft_range range,
                          int64_t (*columns)(const struct weft_shape *,
                                             int32_t));

#endif
