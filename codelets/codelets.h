/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instruction set that graphs are written in: one insert function per
 * operation. Each submits one task to a sequence and does not wait; errors go
 * to the sequence. `where` says device, priority and call. Shapes, weights
 * structs and pointers given here must outlive the sequence's tasks; small
 * arrays are copied.
 *
 * Tiles: x and dx (n_rows, H) f32; batch: struct weft_batch; weights,
 * gradients and optimizer state in the layouts of base/shape.h. A tile that
 * is null where "may be NULL" is said is left out.
 */
#ifndef WEFT_CODELETS_CODELETS_H
#define WEFT_CODELETS_CODELETS_H

#include "codelets/data.h"
#include "rt/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tiles of one parameter group that a task takes together: blocks of a kind
 * (NULL: not among them), and the group's replicated vectors. */
struct weft_layer_tiles {
    struct weft_tile *block[WEFT_MAX_BLOCKS];
    struct weft_tile *norms; /* NORMS, or FINAL beside the head */
};

/* All parameter-shaped tiles of a model for one use (published forward,
 * transposed, gradients, optimizer); NULL where the use has none. */
struct weft_params {
    struct weft_tile *embed[WEFT_MAX_BLOCKS];
    struct weft_layer_tiles *layer; /* (n_layers) */
    struct weft_layer_tiles head;   /* block: HEAD; norms: FINAL */
};

/* Temporary tiles (W) get their memory in this task's turn, once `after` (NULL:
 * nothing) has been written. A message takes the memory of what it fills as
 * soon as nothing is before it: this is. */
void weft_insert_open(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *after, int n,
                      struct weft_tile *const tile[]);

/* ---- Micro-batches ---------------------------------------------------- */

enum weft_pack_targets {
    WEFT_TARGETS_RESPONSE, /* rows that predict the response */
    WEFT_TARGETS_ALL,      /* rows that predict tokens 1.. */
    WEFT_TARGETS_LAST      /* the last row (a score) */
};

/* Where a packed sample's columns come from; NULL: zero. */
struct weft_pack_sample {
    struct weft_tile *rollout;
    struct weft_tile *advantage, *value, *ref;
    int32_t n_prompt, n_total; /* known by the controller */
    float weight;              /* of each of its tokens in the loss */
};

/* batch (W) from n samples. moments: whitens advantages; may be NULL. */
void weft_insert_pack(struct weft_seq *seq, const struct weft_where *where,
                      enum weft_pack_targets targets, bool columns, int32_t n,
                      const struct weft_pack_sample *sample,
                      struct weft_tile *moments, struct weft_tile *batch);
/* Targets that `n_prompt, n_total` give. */
int32_t weft_pack_n_targets(enum weft_pack_targets targets, int32_t n_prompt,
                            int32_t n_total);

/* ---- Layers ----------------------------------------------------------- */

void weft_insert_embed(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_shape *shape,
                       const struct weft_params *fwd, struct weft_tile *batch,
                       struct weft_tile *x);
/* KV cache of a range of blocks and n_layers layers. */
struct weft_part_kv {
    struct weft_tile *arena;
    int32_t layer; /* index in the arena */
    int32_t n_layers;
};

/* y may be x (inference). kv: NULL without a cache. saved: may be NULL. */
void weft_insert_layer_forward(struct weft_seq *seq,
                               const struct weft_where *where,
                               const struct weft_shape *shape,
                               const struct weft_params *fwd, int32_t layer,
                               struct weft_tile *batch, struct weft_tile *x,
                               const struct weft_part_kv *kv,
                               struct weft_tile *y, struct weft_tile *saved);
/* dx is changed in place; grads continue. saved: may be NULL (recompute). */
void weft_insert_layer_backward(struct weft_seq *seq,
                                const struct weft_where *where,
                                const struct weft_shape *shape,
                                const struct weft_params *fwd,
                                const struct weft_params *bwd, int32_t layer,
                                struct weft_tile *batch, struct weft_tile *x,
                                struct weft_tile *saved, struct weft_tile *dx,
                                const struct weft_params *grad);

/* ---- Heads ------------------------------------------------------------ */

/* out[i] (float per target of sample i) for the batch's samples in order:
 * log-probs, or values of a scalar head. */
void weft_insert_logprob(struct weft_seq *seq, const struct weft_where *where,
                         const struct weft_shape *shape,
                         const struct weft_params *fwd,
                         struct weft_tile *batch, struct weft_tile *x,
                         float inv_temperature, int32_t n,
                         struct weft_tile *const out[]);
void weft_insert_value(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_shape *shape,
                       const struct weft_params *fwd, struct weft_tile *batch,
                       struct weft_tile *x, int32_t n,
                       struct weft_tile *const out[]);

enum weft_loss { WEFT_LOSS_POLICY, WEFT_LOSS_SFT, WEFT_LOSS_VALUE };

struct weft_loss_args {
    enum weft_loss loss;
    float inv_temperature;
    struct weft_k_policy policy;
    float value_clip;
    bool exact_first; /* the first update: ratios must be 1 exactly */
};
/* Head forward, loss, head backward: dx (W), gradients of the head; stats (W):
 * double[n_runs][weft_loss_n_stats(loss)]. */
void weft_insert_loss(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_shape *shape,
                      const struct weft_params *fwd,
                      const struct weft_params *bwd,
                      const struct weft_loss_args *args,
                      struct weft_tile *batch, struct weft_tile *x,
                      struct weft_tile *dx, const struct weft_params *grad,
                      struct weft_tile *stats);
int32_t weft_loss_n_stats(enum weft_loss loss);

/* ---- Generation ------------------------------------------------------- */

struct weft_gen_args {
    struct weft_k_sampling sampling;
    int32_t iteration; /* with first_sample + sample: keys the draws */
    int32_t first_sample;
    int32_t n_steps;        /* decode steps of a chunk */
    int32_t prefill_tokens; /* prompt rows per step, at most */
    int32_t n_stop;
    int32_t stop[16]; /* token ids that end a response */
};

struct weft_gen_admit {
    int32_t slot, sample, n_prompt, limit;
    const int32_t *token; /* (n_prompt) */
};

/* Admits prompts into free slots, then runs n_steps decode steps of the
 * instance; status (W). Rows that finish are skipped from then on. */
void weft_insert_gen_chunk(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           const struct weft_params *fwd,
                           const struct weft_gen_args *args, int32_t n_admit,
                           const struct weft_gen_admit *admit,
                           struct weft_tile *state, struct weft_tile *arena,
                           struct weft_tile *status);
/* Copies the finished sample of a slot into `rollout` (W) and frees slot and
 * pages. */
void weft_insert_gen_retire(struct weft_seq *seq,
                            const struct weft_where *where, int32_t slot,
                            struct weft_tile *state,
                            struct weft_tile *rollout);

/* ---- Advantages ------------------------------------------------------- */

struct weft_gae_args {
    float gamma, lambda;
    enum weft_kl kl; /* penalty in the reward; NONE: no penalty */
    float missing_eos_penalty;
    float reward_clip;         /* 0: off */
    int32_t n_models;          /* reward tiles that are summed ... */
    float weight[8];           /* ... with these weights */
    int32_t iteration, sample; /* for the sentence on a wrong score */
};
/* advantage (W) of one sample from its rollout, reference log-probs (NULL:
 * no KL), values (NULL: zeros), the outside score (double; NULL: none),
 * reward models' scores (float each), and the KL state. */
void weft_insert_gae(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_gae_args *args,
                     struct weft_tile *rollout, struct weft_tile *ref,
                     struct weft_tile *value, struct weft_tile *score,
                     struct weft_tile *const model_score[],
                     struct weft_tile *kl_state, struct weft_tile *advantage);
/* moments (W) over n samples in the order given (their index order). whiten
 * false: mean 0, rstd 1. */
void weft_insert_moments(struct weft_seq *seq, const struct weft_where *where,
                         bool whiten, int32_t n,
                         struct weft_tile *const advantage[],
                         struct weft_tile *moments);
/* Adaptive KL controller (Ziegler et al. 2019): coef *= 1 + clip(kl/target -
 * 1, +-0.2) * n / horizon, with the mean KL of n samples. adaptive false:
 * records the KL only. */
void weft_insert_kl_update(struct weft_seq *seq,
                           const struct weft_where *where, bool adaptive,
                           float target, int32_t horizon, int32_t n,
                           struct weft_tile *const advantage[],
                           struct weft_tile *kl_state);

/* ---- Gradients and the optimizer -------------------------------------- */

/* Tiles are updated together by parameter group: a layer, the embedding, or
 * the head. */
enum weft_param_group { WEFT_GROUP_LAYER, WEFT_GROUP_EMBED, WEFT_GROUP_HEAD };

/* The tiles of a group. An embedding has no norms, a scalar head no blocks. */
WEFT_INLINE struct weft_layer_tiles weft_params_group(
    const struct weft_params *p, enum weft_param_group group, int32_t layer)
{
    struct weft_layer_tiles tiles = {{NULL}, NULL};
    if (group == WEFT_GROUP_LAYER)
        return p->layer[layer];
    if (group == WEFT_GROUP_HEAD)
        return p->head;
    for (int b = 0; b < WEFT_MAX_BLOCKS; b++)
        tiles.block[b] = p->embed[b];
    return tiles;
}

void weft_insert_zero(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_layer_tiles *grad);
/* left += right: one node of the tree over gradient groups. */
void weft_insert_grad_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_layer_tiles *left,
                          const struct weft_layer_tiles *right);
/* Which chunks (base/shape.h) tiles of a group hold: by block, then the norms.
 * Such a tile is a part of a whole one, or lies apart. */
enum { WEFT_GROUP_TILES = WEFT_MAX_BLOCKS + 1 };
struct weft_chunks {
    struct weft_range of[WEFT_GROUP_TILES];
};

/* Tied weights: the embedding's gradient is added into the head's, of the
 * same chunks. */
void weft_insert_tied_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          const struct weft_chunks *chunks,
                          const struct weft_layer_tiles *head,
                          const struct weft_layer_tiles *embed);
/* partial (W): sums of squares of the gradient's chunks, of whole tiles their
 * sum. number: of the group, ascending in the order of the norm. */
void weft_insert_sum_squares(struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_shape *shape,
                             enum weft_param_group group, int32_t number,
                             const struct weft_chunks *chunks,
                             const struct weft_layer_tiles *grad,
                             struct weft_tile *partial);
size_t weft_squares_bytes(const struct weft_shape *shape,
                          enum weft_param_group group,
                          const struct weft_chunks *chunks);

struct weft_grad_norm {
    double norm;
    float scale; /* 1, or clip / norm */
    float reserved;
};
/* norm (W) = sqrt of the sum over groups in order, inside a group over blocks
 * and then norms, inside a tile over its chunks. partial (n): by group; those
 * of a group in the order of what they hold. Fails the sequence when it is not
 * finite. */
void weft_insert_grad_norm(struct weft_seq *seq,
                           const struct weft_where *where, float clip,
                           int32_t n, struct weft_tile *const partial[],
                           struct weft_tile *norm);
/* One AdamW step of chunks of a group: optimizer tiles (per tile flat f32:
 * [master, bf16 runs only] m, v), and published forward weights. What is made
 * of whole tiles of these is not: weft_insert_transpose(),
 * weft_insert_tied_table(). */
void weft_insert_adamw(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_k_adamw *adamw,
    enum weft_param_group group, const struct weft_chunks *chunks,
    const struct weft_layer_tiles *grad, struct weft_tile *norm,
    const struct weft_layer_tiles *opt, const struct weft_layer_tiles *fwd);

/* ---- Emulation ---------------------------------------------------------- */

enum { WEFT_EMULATE_BEFORE = 4 };
/* Sleeps for `seconds`, from latency_s after the end of those `before` that
 * are far; span (W): a struct weft_span on weft_clock_s(). */
void weft_insert_emulate(struct weft_seq *seq, const struct weft_where *where,
                         double seconds, double latency_s, int32_t n_before,
                         struct weft_tile *const before[],
                         const bool is_far[], struct weft_tile *span);

/* Is the master copy kept in the optimizer tile (else the forward tile is the
 * master)? Matrices of bf16 runs. */
bool weft_master_apart(const struct weft_shape *shape,
                       enum weft_tile_kind kind);
/* Bytes of the optimizer tile of so many elements. */
size_t weft_opt_bytes(const struct weft_shape *shape,
                      enum weft_tile_kind kind, size_t n_elements);

#ifdef __cplusplus
}
#endif
#endif
