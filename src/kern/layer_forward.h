/* SPDX-License-Identifier: Apache-2.0 */
/* What both halves of a decoder layer's forward pass need. */
#ifndef WEFT_KERN_LAYER_FORWARD_H
#define WEFT_KERN_LAYER_FORWARD_H

#include "kern/layer.h"
#include "kern/rows.h"

/* rows computed at a time, so that their activations stay in the cache */
enum { WEFT_CHUNK_ROWS = 512 };

/* The forward pass of a range of a layer's blocks. */
struct weft_layer_forward {
    const struct weft_shape *s;
    struct weft_range range;
    const struct weft_k_layer *w;
    const struct weft_k_batch *batch;
    const struct weft_row_ops *rows;
    struct weft_layer_saved at; /* in saved, or in scratch */
    bool all_gate_up;           /* gate_up holds all rows, not a chunk */
    weft_layer_gemm_fn gemm;
    void *gemm_context;
    const float *norm1, *norm2, *qnorm, *knorm;
    const char *qkv[WEFT_MAX_BLOCKS], *o[WEFT_MAX_BLOCKS];
    const char *gate_up[WEFT_MAX_BLOCKS], *down[WEFT_MAX_BLOCKS];
    const float *qkv_bias[WEFT_MAX_BLOCKS];
    struct weft_rope_table rope;
    void *normed;               /* (chunk, H) in dtype */
    float *product;             /* (chunk, widest qkv) */
    void *act[WEFT_MAX_BLOCKS]; /* (chunk, ff) in dtype */
    float *pages, *attention;
};

/* Sets the other members when shape, range, weights and batch are set; saved:
 * the range's part of what the backward pass needs, or NULL. */
void weft_layer_forward_begin(struct weft_layer_forward *f, void *saved,
                              void *scratch);

/* Finds the addresses of weights. */
void weft_layer_forward_weights(struct weft_layer_forward *f);

/* Takes scratch of the range's blocks: act, for `chunk` rows, and what is not
 * saved. Returns how wide the widest block's q, k and v are. */
int64_t weft_layer_forward_blocks_at(struct weft_layer_forward *f,
                                     struct weft_arena *arena, int64_t chunk,
                                     bool has_saved);

/* Computes the layer up to the input of the O product. */
void weft_layer_attention(struct weft_layer_forward *f, int32_t layer,
                          const struct weft_k_kv *kv, const float *x);

/* Output of a sum over blocks: its roots, without bias and residual; or, if
 * the range is all blocks, the sum with them. */
struct weft_layer_sum {
    const float *bias, *residual; /* (H), (M, H) or NULL */
    float *y;                     /* (n_roots, M, H) */
};

/* Rows r..r + n - 1 of a sum over blocks; g has the operands. */
void weft_layer_add_up(const struct weft_layer_forward *f,
                       struct weft_k_gemm_args *g, int64_t r, int64_t n,
                       const struct weft_layer_sum *to);
/* The O product of these rows. */
void weft_layer_project_o(const struct weft_layer_forward *f, int64_t r,
                          int64_t n, const struct weft_layer_sum *to);

#endif
