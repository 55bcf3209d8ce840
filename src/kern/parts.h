/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations by parts, for tensor parallelism: a member of a tp group owns a
 * contiguous range of the T tensor blocks and computes what those blocks
 * contribute. Sums over blocks are exchanged as *roots* and joined.
 *
 * A range's roots are the largest aligned subtrees of the binary tree over
 * the T blocks that lie inside the range (at most WEFT_MAX_ROOTS). Joining the
 * roots of ranges that cover [0, T) makes the same additions as the whole
 * operation, so parts and whole agree bit for bit, however the blocks are
 * divided among members. The functions of kern.h are these parts over [0, T).
 *
 *     x -> attention_forward (each member) -> roots -> join = x_mid
 *       -> mlp_forward (each member)       -> roots -> join = y
 *
 *     dx -> mlp_backward (each member)  -> roots -> join, norm backward
 *        -> heads_backward, qkv_backward -> roots -> join, norm backward
 *
 * Of arrays indexed by block (weights, gradients) only the range's elements
 * are read. Letters, scratch, and what it means that a gradient continues, are
 * as in kern.h.
 */
#ifndef WEFT_KERN_PARTS_H
#define WEFT_KERN_PARTS_H

#include "kern/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_MAX_ROOTS = 8 }; /* 2 log2 WEFT_MAX_BLOCKS - 2 */

WEFT_INLINE struct weft_range weft_all_blocks(const struct weft_shape *s)
{
    struct weft_range all = {0, s->n_blocks};
    return all;
}

/* ---- Roots ------------------------------------------------------------- */

/* Writes the blocks of each root of a range, in block order; returns how many
 * there are. n_blocks is T, a power of two. Example, T = 8: the roots of
 * [1, 7) are 1, 2-3, 4-5, 6. */
int32_t weft_k_roots(int32_t n_blocks, struct weft_range range,
                     struct weft_range root_out[WEFT_MAX_ROOTS]);

/* What a member contributes: (n_roots, n) f32, root after root. */
struct weft_k_part {
    struct weft_range range;
    const float *roots;
};

/* Joins parts that follow one another in block order into the roots of their
 * union: out (n_roots, n). out may be the first part's memory. */
void weft_k_join(int32_t n_blocks, int32_t n_parts,
                 const struct weft_k_part *part, int64_t n, float *out);

/* y (m, h) = ((join of parts that cover [0, T)) + bias) + residual, as
 * weft_k_gemm() does after its tree. bias (h), residual (m, h) may be NULL; y
 * may be the residual. scratch: m * h floats (not needed for one part). */
void weft_k_join_rows(int32_t n_blocks, int32_t n_parts,
                      const struct weft_k_part *part, int64_t m, int64_t h,
                      const float *bias, const float *residual, float *y,
                      void *scratch);

/* ---- Layer, forward ----------------------------------------------------- */

/* Bytes that the range keeps for the backward pass, besides x and x_mid. */
size_t weft_k_part_saved_bytes(const struct weft_shape *shape,
                               struct weft_range range, int64_t n_rows);

/* weft_k_kv.page_bytes of an arena whose pages hold n_layers layers of only
 * the range's blocks. For [0, T) it is weft_k_kv_page_bytes(). */
size_t weft_k_part_kv_page_bytes(const struct weft_shape *shape,
                                 struct weft_range range, int32_t n_layers);

size_t weft_k_part_forward_scratch_bytes(const struct weft_shape *shape,
                                         struct weft_range range,
                                         const struct weft_k_batch *batch);

/* roots (n_roots, M, H): of the O product, without bias and residual.
 * layer: index in the KV arena. saved: may be NULL. */
void weft_k_attention_forward(const struct weft_shape *shape,
                              struct weft_range range,
                              const struct weft_k_layer *weights,
                              int32_t layer, const struct weft_k_batch *batch,
                              const struct weft_k_kv *kv, const float *x,
                              void *saved, float *roots, void *scratch);

/* roots (n_roots, M, H): of the down product, without residual; NULL: gate and
 * up are computed and saved and nothing else, for a recomputation. */
void weft_k_mlp_forward(const struct weft_shape *shape,
                        struct weft_range range,
                        const struct weft_k_layer *weights,
                        const struct weft_k_batch *batch, const float *x_mid,
                        void *saved, float *roots, void *scratch);

/* The O product's bias (H) in a WEFT_TILE_NORMS tile, or NULL if the shape has
 * none. weft_k_join_rows() adds it when it makes x_mid. */
const float *weft_k_o_bias(const struct weft_shape *shape,
                           const float *norms);

/* ---- Layer, backward ---------------------------------------------------- */

size_t weft_k_part_backward_scratch_bytes(const struct weft_shape *shape,
                                          struct weft_range range,
                                          const struct weft_k_batch *batch);

/* dx (M, H): gradient of the layer's output. grad[t] continues for the blocks
 * of the range. roots (n_roots, M, H): of the gradient of the second norm's
 * output. */
void weft_k_mlp_backward(const struct weft_shape *shape,
                         struct weft_range range,
                         const struct weft_k_layer *weights,
                         const struct weft_k_batch *batch, const float *x_mid,
                         const void *saved, const float *dx,
                         float *const grad[], float *roots, void *scratch);

/* Joins the parts of weft_k_mlp_backward() and makes the second norm's
 * backward pass: dx becomes the gradient of x_mid; grad_norms continues (NULL:
 * not wanted here). scratch: weft_k_norm_join_scratch_bytes() (not needed for
 * one part). */
size_t weft_k_norm_join_scratch_bytes(const struct weft_shape *shape,
                                      int64_t n_rows);
void weft_k_mlp_norm_backward(const struct weft_shape *shape,
                              const float *norms, int64_t n_rows,
                              const float *x_mid, int32_t n_parts,
                              const struct weft_k_part *part, float *dx,
                              float *grad_norms, void *scratch);

/* Backward pass of the O product and attention. dqkv (weft_k_dqkv_bytes(),
 * f32) receives the gradients of q, k and v for weft_k_qkv_backward(). shared
 * (weft_k_shared_kv_bytes()) receives the range's partial dk and dv of KV
 * heads that blocks outside the range read too; when there are none, its bytes
 * are 0 and it may be NULL. */
size_t weft_k_dqkv_bytes(const struct weft_shape *shape,
                         struct weft_range range, int64_t n_rows);
size_t weft_k_shared_kv_bytes(const struct weft_shape *shape,
                              struct weft_range range, int64_t n_rows);
void weft_k_heads_backward(const struct weft_shape *shape,
                           struct weft_range range,
                           const struct weft_k_layer *weights,
                           const struct weft_k_batch *batch,
                           const void *saved, const float *dx,
                           float *const grad[], float *dqkv, float *shared,
                           void *scratch);

/* Partial dk, dv of a member of the tp group, from weft_k_heads_backward(). */
struct weft_k_shared {
    struct weft_range range;
    const float *shared; /* NULL: the member has none */
};

/* Joins dk and dv over the blocks that read a head, then makes the backward
 * pass of RoPE, of the norms of q and k, and of the QKV product. `member`
 * holds all n_members of the tp group in block order, this one included. Where
 * several blocks of the range hold a KV head, the tile of the lowest receives
 * its gradient, with the same bits as the tile of the head's owner, which may
 * be another member's; see weft_k_share_range(). dqkv is overwritten. roots
 * (n_roots, M, H): of the gradient of the first norm's output. head_norms (2,
 * n_roots, M, D): roots of each row's gradients of the weights of q's norm,
 * then of k's; NULL without qk_norm. */
void weft_k_qkv_backward(const struct weft_shape *shape,
                         struct weft_range range,
                         const struct weft_k_layer *weights,
                         const struct weft_k_batch *batch, const float *x,
                         const void *saved, int32_t n_members,
                         const struct weft_k_shared *member, float *dqkv,
                         float *const grad[], float *roots, float *head_norms,
                         void *scratch);

/* Joins the parts of weft_k_qkv_backward() and makes the first norm's backward
 * pass: dx becomes the gradient of the layer's input. In grad_norms (NULL: not
 * wanted here) the gradients of the O product's bias, of q's and k's norms and
 * of the first norm continue. head_norm: n_parts parts of n = M * D for q's
 * norm, then as many for k's; NULL without qk_norm. scratch:
 * weft_k_norm_join_scratch_bytes() (not needed for one part). */
void weft_k_attention_norm_backward(const struct weft_shape *shape,
                                    const float *norms, int64_t n_rows,
                                    const float *x, int32_t n_parts,
                                    const struct weft_k_part *part,
                                    const struct weft_k_part *head_norm,
                                    float *dx, float *grad_norms,
                                    void *scratch);

/* Where several blocks of the range hold a KV head, weft_k_share_range()
 * copies its rows (of masters, gradients or moments) from the tile of the
 * lowest of these blocks to those of the others; tile[t]: flat tile of block
 * t. weft_k_shares_in_range() says whether there is such a head. */
bool weft_k_shares_in_range(const struct weft_shape *shape,
                            struct weft_range range);
void weft_k_share_range(const struct weft_shape *shape,
                        struct weft_range range, float *const tile[]);

/* ---- Embedding ---------------------------------------------------------- */

/* As weft_k_embed(), but writes only the rows whose token is in the range's
 * vocabulary. (The backward pass is weft_k_embed_backward() with grad[t] NULL
 * for blocks outside the range.) */
void weft_k_embed_part(const struct weft_shape *shape,
                       struct weft_range range, const void *const table[],
                       int32_t n, const int32_t *token, float *x);
/* x (n, H): each row is copied from the part whose range holds its token.
 * part[i].roots is (n, H); x may be one of them. */
void weft_k_embed_select(const struct weft_shape *shape, int32_t n,
                         const int32_t *token, int32_t n_parts,
                         const struct weft_k_part *part, float *x);

/* ---- Head --------------------------------------------------------------- */

/* The range's part of the log-probs of n targets (weft_k_head_part_bytes()):
 * softmax states over the range's vocabulary, and the logits of those targets
 * that are in it. */
size_t weft_k_head_part_bytes(struct weft_range range, int32_t n);
/* scratch: weft_k_head_scratch_bytes(). */
void weft_k_head_part(const struct weft_shape *shape, struct weft_range range,
                      const struct weft_k_head *head, const float *x,
                      const struct weft_k_targets *targets,
                      float inv_temperature, void *part_out, void *scratch);
/* One member's part. */
struct weft_k_head_parts {
    struct weft_range range;
    const void *part;
};
/* Merges parts that cover [0, T), in block order; outputs are those of
 * weft_k_head_logprob(). */
void weft_k_head_merge(const struct weft_shape *shape,
                       const struct weft_k_targets *targets, int32_t n_parts,
                       const struct weft_k_head_parts *part, float *logp_out,
                       float *entropy_out, float *lse_out);

/* roots (n_roots, targets->n, H): of the gradient of the final norm's output.
 * scratch: weft_k_head_backward_scratch_bytes(). */
void weft_k_head_backward_part(const struct weft_shape *shape,
                               struct weft_range range,
                               const struct weft_k_head *head, const float *x,
                               const struct weft_k_targets *targets,
                               int32_t n_runs, const int32_t *run_rows,
                               float inv_temperature, const float *lse,
                               const float *entropy, const float *dlogp,
                               const float *dentropy, float *const grad[],
                               float *roots, void *scratch);
/* Joins the parts of weft_k_head_backward_part() and makes the final norm's
 * backward pass. dx (n_rows, H) is overwritten; grad_final continues (NULL:
 * not wanted here). scratch: targets->n * H floats (not needed for one
 * part). */
void weft_k_head_norm_backward(const struct weft_shape *shape,
                               const float *final, int32_t n_rows,
                               const float *x,
                               const struct weft_k_targets *targets,
                               int32_t n_parts,
                               const struct weft_k_part *part, float *dx,
                               float *grad_final, void *scratch);

/* As weft_k_head_logits(), but writes only the columns of the range's
 * vocabulary. scratch: weft_k_head_scratch_bytes(). */
void weft_k_head_logits_part(const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_k_head *head, int32_t n,
                             const float *x, float *logits, void *scratch);
/* First column and number of columns of a range's vocabulary. */
void weft_k_vocab_range(const struct weft_shape *shape,
                        struct weft_range range, int32_t *first_out,
                        int32_t *n_out);

/* ---- Published weights -------------------------------------------------- */

/* Makes the transposed tile from the forward tile, with the bits that
 * weft_k_publish() writes. */
void weft_k_transpose(const struct weft_layout *layout, enum weft_dtype dtype,
                      const void *fwd, void *bwd);
/* A GPU's transposed tile (bf16) from its published one. */
void weft_k_transpose_rows(const struct weft_layout *layout, const void *fwd,
                           void *bwd);

#ifdef __cplusplus
}
#endif
#endif
