/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions of the members of a tensor parallel group: what kern/parts.h
 * computes, as tasks. A member reads the published tiles of its range of
 * blocks at its place and contributes roots. A join runs once per place; it
 * reads the parts of all members in block order, which have been copied to its
 * place before.
 *
 * The conventions are those of codelets/codelets.h. Tiles of roots have
 * weft_part_bytes(); the `part` tiles of a join come with their ranges.
 */
#ifndef WEFT_CODELETS_PARTS_H
#define WEFT_CODELETS_PARTS_H

#include "codelets/generation.h"
#include "kern/parts.h"

/* One member's contribution. */
struct weft_part_tile {
    struct weft_range range;
    struct weft_tile *tile;
};

/* ---- Sizes -------------------------------------------------------------- */

/* Bytes of the roots of `range`, each of n floats. */
size_t weft_part_bytes(const struct weft_shape *shape,
                       struct weft_range range, int64_t n);
/* Of what the range keeps for its backward pass, beside x and x_mid. */
size_t weft_part_saved_bytes(const struct weft_shape *shape,
                             struct weft_range range, int64_t n_rows);
/* Of the gradients of its q, k and v. */
size_t weft_part_dqkv_bytes(const struct weft_shape *shape,
                            struct weft_range range, int64_t n_rows);
/* Of its share in the gradients of KV heads that blocks outside of the range
 * read, too; 0: there are none. */
size_t weft_part_shared_bytes(const struct weft_shape *shape,
                              struct weft_range range, int64_t n_rows);
/* Of the roots of the gradients of q's and k's norms; 0 without these. */
size_t weft_part_head_norms_bytes(const struct weft_shape *shape,
                                  struct weft_range range, int64_t n_rows);
/* Of the targets' softmax over its part of the vocabulary. */
size_t weft_part_head_bytes(struct weft_range range, int32_t n_targets);
/* Bytes of the logits that the range's forward pass keeps for its backward
 * pass: of as many targets as have room in 64 MiB. 0: none. */
size_t weft_part_logits_bytes(const struct weft_shape *shape,
                              struct weft_range range, int32_t n_targets);
/* Of a page of the KV cache, of n_layers layers of the range's blocks. */
size_t weft_part_kv_page_bytes(const struct weft_shape *shape,
                               struct weft_range range, int32_t n_layers);
/* Bytes of the gradient of the loss with respect to log-probs and
 * entropies. */
size_t weft_part_dloss_bytes(int32_t n_targets);

/* ---- Embedding ---------------------------------------------------------- */

/* x (W): the rows whose token is in the range's part of the vocabulary; nothing
 * else of it is written. */
void weft_insert_embed_part(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            struct weft_range range,
                            const struct weft_params *fwd,
                            struct weft_tile *batch, struct weft_tile *x);
/* x (W): each row from the part that has its token. */
void weft_insert_embed_select(struct weft_seq *seq,
                              const struct weft_where *where,
                              const struct weft_shape *shape,
                              struct weft_tile *batch, int n_parts,
                              const struct weft_part_tile part[],
                              struct weft_tile *x);
/* Adds to the gradients of those rows of the vocabulary that the range
 * holds. */
void weft_insert_embed_backward_part(struct weft_seq *seq,
                                     const struct weft_where *where,
                                     const struct weft_shape *shape,
                                     struct weft_range range,
                                     struct weft_tile *batch,
                                     struct weft_tile *dx,
                                     const struct weft_params *grad);

/* ---- Layer, forward ---------------------------------------------------- */

/* roots (W): of the product with O, n_rows * H floats each, without bias and
 * residual. saved (W) may be NULL; kv is NULL without a cache. */
void weft_insert_attention_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, int32_t layer, struct weft_tile *batch,
    struct weft_tile *x, const struct weft_part_kv *kv,
    struct weft_tile *saved, struct weft_tile *roots);
/* roots (W): of the down product, without residual; NULL when the task only
 * recomputes what `saved` (RW, may be NULL) holds. */
void weft_insert_mlp_part(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          struct weft_range range,
                          const struct weft_params *fwd, int32_t layer,
                          struct weft_tile *batch, struct weft_tile *x_mid,
                          struct weft_tile *saved, struct weft_tile *roots);
/* Computes y = x + the joined parts, and adds the bias of O after attention. y
 * may be x. */
void weft_insert_join_rows(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           const struct weft_params *fwd, int32_t layer,
                           bool attention, struct weft_tile *batch,
                           int n_parts, const struct weft_part_tile part[],
                           struct weft_tile *x, struct weft_tile *y);
/* Joins the parts of one place before they are sent: writes the roots of the
 * union of their ranges. A root has n floats per batch row (with `targets`:
 * per target); n_sets sets of roots follow one another. */
void weft_insert_join_parts(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            struct weft_tile *batch, bool targets, int64_t n,
                            int n_sets, int n_parts,
                            const struct weft_part_tile part[],
                            struct weft_tile *out);

/* ---- Layer, backward --------------------------------------------------- */

/* dx: the gradient of the layer's output. roots (W): of the gradient of the
 * second norm's output. grad: those of the range's blocks (RW) are added to. */
void weft_insert_mlp_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x_mid,
    struct weft_tile *saved, struct weft_tile *dx,
    const struct weft_params *grad, struct weft_tile *roots);
/* Joins those parts: dx (RW) becomes the gradient of x_mid. grad is NULL where
 * another place of the group keeps the norms' gradients. */
void weft_insert_mlp_norm_backward(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_params *fwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x_mid,
    int n_parts, const struct weft_part_tile part[], struct weft_tile *dx,
    const struct weft_params *grad);
/* The product with O, and attention: dqkv (W) for the next. shared (W) is NULL
 * when no KV head of the range is read outside of it. */
void weft_insert_heads_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *saved,
    struct weft_tile *dx, const struct weft_params *grad,
    struct weft_tile *dqkv, struct weft_tile *shared);
/* shared: tiles of all members in block order, NULL for a member without one.
 * dqkv (RW) is used up. roots (W): of the gradient of the first norm's output.
 * head_norms (W) is NULL without norms of q and k. */
void weft_insert_qkv_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x,
    struct weft_tile *saved, int n_members,
    const struct weft_part_tile shared[], struct weft_tile *dqkv,
    const struct weft_params *grad, struct weft_tile *roots,
    struct weft_tile *head_norms);
/* Joins those parts: dx (RW) becomes the gradient of the layer's input. grad is
 * NULL as above, and head_norms with it or without norms of q and k. */
void weft_insert_attention_norm_backward(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_params *fwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x, int n_parts,
    const struct weft_part_tile part[],
    const struct weft_part_tile head_norms[], struct weft_tile *dx,
    const struct weft_params *grad);
/* Gives replicas of KV rows inside the range the gradient of their
 * representative; inserts nothing when there are no replicas. */
void weft_insert_share_kv(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          struct weft_range range,
                          const struct weft_params *grad, int32_t layer);

/* ---- Head -------------------------------------------------------------- */

/* out (W): weft_part_head_bytes(). logits (W): weft_part_logits_bytes(), for
 * weft_insert_head_backward_part(); NULL: none are kept. */
void weft_insert_head_part(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           struct weft_range range,
                           const struct weft_params *fwd,
                           struct weft_tile *batch, struct weft_tile *x,
                           float inv_temperature, struct weft_tile *logits,
                           struct weft_tile *out);
/* Log-probs of the targets, into the tiles of n samples (W). */
void weft_insert_logprob_merge(struct weft_seq *seq,
                               const struct weft_where *where,
                               const struct weft_shape *shape,
                               struct weft_tile *batch, int n_parts,
                               const struct weft_part_tile part[], int32_t n,
                               struct weft_tile *const out[]);
/* Writes dloss (W, weft_part_dloss_bytes()), and stats (W) as
 * weft_insert_loss() unless it is NULL. */
void weft_insert_loss_merge(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            const struct weft_loss_args *args,
                            struct weft_tile *batch, int n_parts,
                            const struct weft_part_tile part[],
                            struct weft_tile *dloss, struct weft_tile *stats);
/* roots (W): of the gradient of the final norm's output. logits (RW, may be
 * NULL) are used up. */
void weft_insert_head_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    const struct weft_loss_args *args, struct weft_tile *batch,
    struct weft_tile *x, struct weft_tile *logits, struct weft_tile *dloss,
    const struct weft_params *grad, struct weft_tile *roots);
/* Joins those parts: dx (W) is the gradient of x. grad is NULL where another
 * place keeps the final norm's gradient. */
void weft_insert_head_norm_backward(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_params *fwd,
    struct weft_tile *batch, struct weft_tile *x, int n_parts,
    const struct weft_part_tile part[], struct weft_tile *dx,
    const struct weft_params *grad);

/* ---- Published weights ------------------------------------------------- */

/* Makes bwd's transposed tiles of the range from fwd's. group: LAYER or
 * HEAD. */
void weft_insert_transpose(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           struct weft_range range,
                           enum weft_param_group group, int32_t layer,
                           const struct weft_params *fwd,
                           const struct weft_params *bwd);

/* Makes a tied embedding's tables of the range from the published head. When
 * head is NULL, the tables hold the head's weights and are converted in
 * place. */
void weft_insert_tied_table(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            struct weft_range range,
                            struct weft_tile *const head[],
                            struct weft_tile *const table[]);

/* ---- Generation by steps ----------------------------------------------- */

/* Begins a decode step: chooses rows of running sequences and writes them into
 * batch (W) as weft_step_layout() lays it out. admit is as in
 * weft_insert_gen_chunk(); first says that it is the chunk's first step. */
void weft_insert_gen_begin(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_gen_args *args, int32_t n_admit,
                           const struct weft_gen_admit *admit, bool first,
                           struct weft_tile *state, struct weft_tile *status,
                           struct weft_tile *batch);
/* Computes the columns of logits (n_slots, V) that belong to the range. */
void weft_insert_logits_part(struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_params *fwd,
                             struct weft_tile *batch, struct weft_tile *x,
                             struct weft_tile *logits);
/* Draws the step's tokens from the columns of all members; status (RW) is
 * complete after the chunk's last step. */
void weft_insert_gen_sample(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            const struct weft_gen_args *args,
                            struct weft_tile *batch, int n_parts,
                            const struct weft_part_tile logits[],
                            struct weft_tile *state,
                            struct weft_tile *status);

/* The same at a GPU's place, in two tasks. drawn (W, then read): of class
 * samples, weft_gen_drawn_bytes(). scratch (W) has
 * weft_gen_draw_scratch_bytes() for n_slots rows; NULL where these are 0. The
 * first part's tile gets the columns of all parts. */
size_t weft_gen_drawn_bytes(int32_t n_slots);
size_t weft_gen_draw_scratch_bytes(const struct weft_shape *shape,
                                   const struct weft_gen_args *args,
                                   int32_t n_slots);
void weft_insert_gen_draw(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          const struct weft_gen_args *args, int32_t n_slots,
                          struct weft_tile *batch, int n_parts,
                          const struct weft_part_tile logits[],
                          struct weft_tile *scratch, struct weft_tile *drawn);
void weft_insert_gen_settle(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_gen_args *args, int32_t n_slots,
                            struct weft_tile *batch, struct weft_tile *drawn,
                            struct weft_tile *state,
                            struct weft_tile *status);

#endif
