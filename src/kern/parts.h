/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations by parts, for tensor parallelism: a member of a tp group owns a
 * contiguous range of the T tensor blocks and computes what those blocks
 * contribute; what crosses blocks is exchanged as *roots* and joined.
 *
 * A range's roots are the maximal aligned subtrees of the binary tree over
 * the T blocks that lie inside of it (at most WEFT_MAX_ROOTS). Joining the
 * roots of ranges that cover [0, T) repeats the very additions of the whole
 * operation, so parts and whole agree bit for bit, however the blocks are
 * dealt. The functions of kern.h are these parts over [0, T).
 *
 *     x -> attention_forward (each member) -> roots -> join = x_mid
 *       -> mlp_forward (each member)       -> roots -> join = y
 *
 *     dx -> mlp_backward (each member)  -> roots -> join, norm backward
 *        -> heads_backward, qkv_backward -> roots -> join, norm backward
 *
 * In arrays indexed by block (weights, gradients) only those of the range are
 * read. Letters and scratch as in kern.h.
 */
#ifndef WEFT_KERN_PARTS_H
#define WEFT_KERN_PARTS_H

#include "kern/kern.h"

enum { WEFT_MAX_ROOTS = 4 };

WEFT_INLINE struct weft_range weft_all_blocks(const struct weft_shape *s)
{
    return (struct weft_range){0, s->n_blocks};
}

/* ---- Roots ------------------------------------------------------------- */

/* Roots of a range in block order, as ranges; returns how many. T is a power
 * of two. Example, T = 8: [1, 7) has 1, 2-3, 4-5, 6. */
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

/* y (m, h) = ((join of parts that cover [0, T)) + bias) + residual: what the
 * whole product's epilogue does. bias (h), residual (m, h) may be NULL; y may
 * be the residual. scratch: m * h floats (not needed for one part). */
void weft_k_join_rows(int32_t n_blocks, int32_t n_parts,
                      const struct weft_k_part *part, int64_t m, int64_t h,
                      const float *bias, const float *residual, float *y,
                      void *scratch);

/* ---- Layer, forward ----------------------------------------------------- */

/* Bytes of what the range keeps for backward beside x and x_mid. */
size_t weft_k_part_saved_bytes(const struct weft_shape *shape,
                               struct weft_range range, int64_t n_rows);

/* KV pages that hold only the range's blocks: weft_k_kv.page_bytes of an
 * arena of n_layers layers. For [0, T) it is weft_k_kv_page_bytes(). */
size_t weft_k_part_kv_page_bytes(const struct weft_shape *shape,
                                 struct weft_range range, int32_t n_layers);

size_t weft_k_part_forward_scratch_bytes(const struct weft_shape *shape,
                                         struct weft_range range,
                                         const struct weft_k_batch *batch);

/* roots (n_roots, M, H): the O product's, without bias and residual.
 * layer: index in the KV arena. saved: may be NULL. */
void weft_k_attention_forward(const struct weft_shape *shape,
                              struct weft_range range,
                              const struct weft_k_layer *weights,
                              int32_t layer, const struct weft_k_batch *batch,
                              const struct weft_k_kv *kv, const float *x,
                              void *saved, float *roots, void *scratch);

/* roots (n_roots, M, H): the down product's, without residual; NULL: gate and
 * up are made and saved, no more (a recomputation). */
void weft_k_mlp_forward(const struct weft_shape *shape,
                        struct weft_range range,
                        const struct weft_k_layer *weights,
                        const struct weft_k_batch *batch, const float *x_mid,
                        void *saved, float *roots, void *scratch);

/* O_BIAS of a NORMS tile, or NULL: the bias of the join that makes x_mid. */
const float *weft_k_o_bias(const struct weft_shape *shape,
                           const float *norms);

/* ---- Layer, backward ---------------------------------------------------- */

size_t weft_k_part_backward_scratch_bytes(const struct weft_shape *shape,
                                          struct weft_range range,
                                          const struct weft_k_batch *batch);

/* dx (M, H): gradient of the layer's output. grad[t] of the range continue.
 * roots (n_roots, M, H): of the gradient of the second norm's output. */
void weft_k_mlp_backward(const struct weft_shape *shape,
                         struct weft_range range,
                         const struct weft_k_layer *weights,
                         const struct weft_k_batch *batch, const float *x_mid,
                         const void *saved, const float *dx,
                         float *const grad[], float *roots, void *scratch);

/* Joins the parts of weft_k_mlp_backward() and goes through the second norm:
 * dx is updated to the gradient of x_mid, grad_norms continues (NULL: not
 * wanted here). scratch:
 * weft_k_norm_join_scratch_bytes() (not needed for one part). */
size_t weft_k_norm_join_scratch_bytes(const struct weft_shape *shape,
                                      int64_t n_rows);
void weft_k_mlp_norm_backward(const struct weft_shape *shape,
                              const float *norms, int64_t n_rows,
                              const float *x_mid, int32_t n_parts,
                              const struct weft_k_part *part, float *dx,
                              float *grad_norms, void *scratch);

/* Through the O product and attention. dqkv: weft_k_dqkv_bytes(), f32, for
 * weft_k_qkv_backward(). shared: the partial dk, dv of the range's blocks
 * for KV heads that blocks outside of the range read too, of
 * weft_k_shared_kv_bytes(): 0 when there are none (NULL then). */
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

/* Partial dk, dv of another member. */
struct weft_k_shared {
    struct weft_range range;
    const float *shared; /* NULL: it has none */
};

/* Joins dk, dv over the blocks that read a head, goes back through RoPE and
 * the norms of q and k to the QKV product. All n_members of the tp group are
 * given in block order (own included). Of a head that several blocks of the
 * range hold, the lowest accumulates the gradient, with the same bits as in
 * the head's owner, wherever that is; see weft_k_share_range(). dqkv is
 * overwritten. roots (n_roots, M, H): of the gradient of the first norm's
 * output. head_norms (2, n_roots, M, D): roots of the gradients of q and k
 * norms' weights, row by row; NULL without qk_norm. */
void weft_k_qkv_backward(const struct weft_shape *shape,
                         struct weft_range range,
                         const struct weft_k_layer *weights,
                         const struct weft_k_batch *batch, const float *x,
                         const void *saved, int32_t n_members,
                         const struct weft_k_shared *member, float *dqkv,
                         float *const grad[], float *roots, float *head_norms,
                         void *scratch);

/* Joins the parts of weft_k_qkv_backward() and goes through the first norm:
 * gradients of O's bias, q and k norms (head_norm: parts of n = M * D for q,
 * then as many for k; n_parts each; NULL without qk_norm) and of the norm
 * continue (grad_norms NULL: not wanted here); dx becomes the gradient of the layer's input. scratch as there. */
void weft_k_attention_norm_backward(const struct weft_shape *shape,
                                    const float *norms, int64_t n_rows,
                                    const float *x, int32_t n_parts,
                                    const struct weft_k_part *part,
                                    const struct weft_k_part *head_norm,
                                    float *dx, float *grad_norms,
                                    void *scratch);

/* Copies gradients of KV rows from the lowest block of the range that holds
 * a head to the others of the range; nothing to do when
 * !weft_k_shares_in_range(). */
bool weft_k_shares_in_range(const struct weft_shape *shape,
                            struct weft_range range);
void weft_k_share_range(const struct weft_shape *shape,
                        struct weft_range range, float *const tile[]);

/* ---- Embedding ---------------------------------------------------------- */

/* Rows whose token is in the range's vocabulary; the others are left alone.
 * (weft_k_embed_backward() takes NULL for blocks that are not there.) */
void weft_k_embed_part(const struct weft_shape *shape,
                       struct weft_range range, const void *const table[],
                       int32_t n, const int32_t *token, float *x);
/* x (n, H): each row from the part whose range holds its token; part.roots
 * is (n, H). x may be one of them. */
void weft_k_embed_select(const struct weft_shape *shape, int32_t n,
                         const int32_t *token, int32_t n_parts,
                         const struct weft_k_part *part, float *x);

/* ---- Head --------------------------------------------------------------- */

/* What the range's vocabulary says about n targets: weft_k_head_part_bytes()
 * of softmax states and logits of the targets. */
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
/* Parts in block order that cover [0, T): as weft_k_head_logprob(). */
void weft_k_head_merge(const struct weft_shape *shape,
                       const struct weft_k_targets *targets, int32_t n_parts,
                       const struct weft_k_head_parts *part, float *logp_out,
                       float *entropy_out, float *lse_out);

/* roots (n_roots, n targets, H): gradient before the final norm. scratch:
 * weft_k_head_backward_scratch_bytes(). */
void weft_k_head_backward_part(const struct weft_shape *shape,
                               struct weft_range range,
                               const struct weft_k_head *head, const float *x,
                               const struct weft_k_targets *targets,
                               int32_t n_runs, const int32_t *run_rows,
                               float inv_temperature, const float *lse,
                               const float *entropy, const float *dlogp,
                               const float *dentropy, float *const grad[],
                               float *roots, void *scratch);
/* dx (n_rows, H) is overwritten; grad_final continues (NULL: not wanted
 * here). scratch: n targets * H
 * floats (not needed for one part). */
void weft_k_head_norm_backward(const struct weft_shape *shape,
                               const float *final, int32_t n_rows,
                               const float *x,
                               const struct weft_k_targets *targets,
                               int32_t n_parts,
                               const struct weft_k_part *part, float *dx,
                               float *grad_final, void *scratch);

/* Logits (n, V): only the columns of the range are written. scratch:
 * weft_k_head_scratch_bytes(). */
void weft_k_head_logits_part(const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_k_head *head, int32_t n,
                             const float *x, float *logits, void *scratch);
/* First column and number of columns of a range's vocabulary. */
void weft_k_vocab_range(const struct weft_shape *shape,
                        struct weft_range range, int32_t *first_out,
                        int32_t *n_out);

/* ---- Published weights -------------------------------------------------- */

/* The transposed tile from the forward tile: the bits of weft_k_publish(). */
void weft_k_transpose(const struct weft_layout *layout, enum weft_dtype dtype,
                      const void *fwd, void *bwd);

#endif
