/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instruction set that graphs are written in: one insert function per
 * operation. Each submits one task to a sequence and does not wait; errors go
 * to the sequence. `where` says device, priority and call. Shapes, weights
 * structs and pointers given here must outlive the sequence's tasks; small
 * arrays are copied.
 *
 * Tiles: x and dx are (n_rows, H) f32, batch is a struct weft_batch; weights,
 * gradients and optimizer state have the layouts of base/shape.h. (W) marks a
 * tile that the task writes, (RW) one that it updates; the others are read.
 * Where a tile "may be NULL", the task then does without it.
 */
#ifndef WEFT_CODELETS_CODELETS_H
#define WEFT_CODELETS_CODELETS_H

#include "codelets/data.h"
#include "kern/losses.h"
#include "rt/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tiles of one parameter group that a task takes together: blocks of one kind
 * (NULL: the task does not take this one), and the group's replicated
 * vectors. */
struct weft_layer_tiles {
    struct weft_tile *norms; /* kind NORMS; FINAL in the head's group */
    struct weft_tile *block[WEFT_MAX_BLOCKS];
};

/* All parameter-shaped tiles of a model for one use (published forward,
 * transposed, gradients, optimizer); NULL where the use has none. */
struct weft_params {
    struct weft_tile *embed[WEFT_MAX_BLOCKS];
    struct weft_layer_tiles *layer; /* (n_layers) */
    struct weft_layer_tiles head;   /* kinds: HEAD in block, FINAL in norms */
};

/* The layers that a stage of a model computes. */
struct weft_stage_layers {
    int32_t first, end;
    bool is_first; /* it embeds tokens */
    bool is_last;  /* it has the head */
};
/* Members of a tp group whose tasks are a gang (weft_insert_gang()): CPU
 * devices of one place, and the blocks of each, of the layers of one stage. One
 * member may be any device. */
struct weft_members {
    int32_t n;
    struct weft_where where[WEFT_MAX_BLOCKS];
    struct weft_range range[WEFT_MAX_BLOCKS];
    struct weft_stage_layers layers;
};
/* Of these, whose blocks are whose, and of which layers. */
struct weft_gang_ranges {
    int32_t n;
    struct weft_range range[WEFT_MAX_BLOCKS];
    struct weft_stage_layers layers;
};

/* Gives temporary tiles (W) their memory when this task runs, after `after`
 * (NULL: nothing) has been written. A message takes the memory of the tile it
 * fills as soon as no earlier task of that tile is pending; inserting this
 * task before it delays that. */
void weft_insert_open(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *after, int n,
                      struct weft_tile *const tile[]);
/* The same for a group's tiles, after `after` and all tiles of another group
 * (NULL: nothing). */
void weft_insert_open_group(struct weft_seq *seq,
                            const struct weft_where *where,
                            struct weft_tile *after,
                            const struct weft_layer_tiles *also_after,
                            const struct weft_layer_tiles *tiles);

/* ---- Micro-batches ---------------------------------------------------- */

enum weft_pack_targets {
    WEFT_TARGETS_RESPONSE, /* rows that predict the response */
    WEFT_TARGETS_ALL,      /* rows that predict tokens 1.. */
    WEFT_TARGETS_LAST      /* a score's row: the last, or before padding */
};

/* The tiles that a packed sample's columns come from; a NULL tile gives
 * zeros. */
struct weft_pack_sample {
    struct weft_tile *rollout;
    struct weft_tile *advantage, *value, *ref;
    int32_t n_prompt, n_total; /* known by the controller */
    /* The tokens that are targets of a response, ascending and not the first;
     * n_learned in all. NULL: all that follow the prompt. Such a sample has no
     * advantages, values and reference. */
    const struct weft_range *learned; /* (n_ranges) */
    int32_t n_ranges, n_learned;
    float
        weight;  /* of each of its tokens in the loss; 0: it counts nowhere */
    float label; /* KTO: > 0 is desirable; BRADLEY_TERRY: a pair's margin */
    bool skips_pad; /* a score's row is that of the last token but `pad` */
    int32_t pad;
};

/* Packs n samples into batch (W). Whitens their advantages by moments, which
 * may be NULL. */
void weft_insert_pack(struct weft_seq *seq, const struct weft_where *where,
                      enum weft_pack_targets targets, bool columns, int32_t n,
                      const struct weft_pack_sample *sample,
                      struct weft_tile *moments, struct weft_tile *batch);
/* The number of a sample's targets. */
int32_t weft_pack_n_targets(enum weft_pack_targets targets,
                            const struct weft_pack_sample *sample);

/* ---- Layers ----------------------------------------------------------- */

/* x (W): the rows of the batch's tokens. */
void weft_insert_embed(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_shape *shape,
                       const struct weft_params *fwd, struct weft_tile *batch,
                       struct weft_tile *x);
/* The KV cache of n_layers layers for a range of blocks. */
struct weft_part_kv {
    struct weft_tile *arena;
    int32_t layer; /* index in the arena */
    int32_t n_layers;
};

/* y (W) may be x (inference). kv: NULL without a cache. saved (W) may be NULL:
 * weft_layer_saved_bytes(). */
void weft_insert_layer_forward(struct weft_seq *seq,
                               const struct weft_where *where,
                               const struct weft_shape *shape,
                               const struct weft_params *fwd, int32_t layer,
                               struct weft_tile *batch, struct weft_tile *x,
                               const struct weft_part_kv *kv,
                               struct weft_tile *y, struct weft_tile *saved);
/* dx is changed in place; gradients are added to grad. saved may be NULL: the
 * forward pass is then recomputed. */
void weft_insert_layer_backward(struct weft_seq *seq,
                                const struct weft_where *where,
                                const struct weft_shape *shape,
                                const struct weft_params *fwd,
                                const struct weft_params *bwd, int32_t layer,
                                struct weft_tile *batch, struct weft_tile *x,
                                struct weft_tile *saved, struct weft_tile *dx,
                                const struct weft_params *grad);

/* ---- Heads ------------------------------------------------------------ */

/* Writes a float per target of the batch's sample i into out[i]: log-probs, or
 * values of the score vector. */
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

/* What a micro-batch passes in a stage, as one task of each member: x (RW, or W
 * in the first stage) is embedded there, and passes the stage's layers; the
 * last one writes log-probs of the targets, or values of the score vector, to
 * out (n). */
void weft_insert_infer_stage(struct weft_seq *seq,
                             const struct weft_members *members,
                             const struct weft_shape *shape,
                             const struct weft_params *fwd,
                             struct weft_tile *batch, struct weft_tile *x,
                             bool values, float inv_temperature, int32_t n,
                             struct weft_tile *const out[]);

/* Statistics: enum weft_policy_stat of POLICY and SFT, weft_value_stat of
 * VALUE, weft_preference_stat of the others. VALUE and BRADLEY_TERRY are
 * losses of a scalar head. */
enum weft_loss {
    WEFT_LOSS_POLICY,
    WEFT_LOSS_SFT,
    WEFT_LOSS_VALUE,
    /* Runs 2 i and 2 i + 1 of a micro-batch are the chosen and the rejected
     * response of a pair and have the pair's weight. */
    WEFT_LOSS_PAIRS,
    WEFT_LOSS_KTO,          /* runs by themselves, with labels */
    WEFT_LOSS_BRADLEY_TERRY /* pairs with one score (WEFT_TARGETS_LAST) each */
};

struct weft_loss_args {
    enum weft_loss loss;
    float inv_temperature;
    struct weft_k_policy policy;
    float value_clip;
    bool exact_first; /* the first update: ratios must be 1 exactly */
    struct weft_k_pairs pairs;
    struct weft_k_kto kto;
    float center; /* of BRADLEY_TERRY */
    /* Tiles that the task reads, at the place of its device. gate: a float
     * that multiplies the weights; NULL: 1. kto_kl: a double, for KTO. */
    struct weft_tile *gate, *kto_kl;
};
/* Runs head forward, loss and head backward; writes dx (W) and adds to the
 * head's gradients. stats (W): double[n_runs][weft_loss_n_stats(loss)]. A run
 * whose weight, times the gate, is 0 adds nothing: its gradients are 0 and
 * its statistics stay 0. logits (W): memory for what the forward pass keeps of
 * them (weft_part_logits_bytes()), on a CPU; NULL: nothing. */
void weft_insert_loss(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_shape *shape,
                      const struct weft_params *fwd,
                      const struct weft_params *bwd,
                      const struct weft_loss_args *args,
                      struct weft_tile *batch, struct weft_tile *x,
                      struct weft_tile *logits, struct weft_tile *dx,
                      const struct weft_params *grad,
                      struct weft_tile *stats);
int32_t weft_loss_n_stats(enum weft_loss loss);

/* Closes the gate (RW, a float that somebody sets to 1 before) when the mean
 * KL from the old policy of all samples of `stats` is above limit
 * (weft_k_kl_gate()); it never opens one. stats[k].tile: statistics of n runs
 * of a policy loss, which are those of the n samples of these indices; no
 * index comes twice. Sums run over samples by index, so the gate does not
 * depend on the cut into micro-batches. */
struct weft_gate_stats {
    struct weft_tile *tile;
    int32_t n;
    const int32_t *sample; /* (n) */
};
void weft_insert_kl_gate(struct weft_seq *seq, const struct weft_where *where,
                         float limit, int32_t n,
                         const struct weft_gate_stats *stats,
                         struct weft_tile *gate);
/* Writes kl (W, a double), KTO's estimate from n responses of n_tokens[i]
 * tokens to the prompts of others. logp, ref: log-probs of their tokens under
 * policy and reference. */
void weft_insert_kto_kl(struct weft_seq *seq, const struct weft_where *where,
                        int32_t n, const int32_t *n_tokens,
                        struct weft_tile *const logp[],
                        struct weft_tile *const ref[], struct weft_tile *kl);

/* out (W, weft_rollout_bytes() of its tokens) is the rollout with other
 * log-probs (float per response token) in place of its own. */
void weft_insert_reread(struct weft_seq *seq, const struct weft_where *where,
                        struct weft_tile *rollout, struct weft_tile *logp,
                        struct weft_tile *out);

/* ---- Advantages ------------------------------------------------------- */

enum { WEFT_MAX_MODEL_SCORES = 8 };

/* A sample's score is the weighted sum of its rewards, minus the penalties for
 * a missing end and for length, then clipped to +-reward_clip. */
struct weft_gae_args {
    float gamma, lambda;
    enum weft_kl kl; /* estimator of the KL penalty; NONE: no penalty */
    float missing_eos_penalty;
    float reward_clip; /* 0: off */
    int32_t n_models;  /* reward tiles that are summed ... */
    float weight[WEFT_MAX_MODEL_SCORES]; /* ... with these weights */
    int32_t iteration, sample; /* for the error message about a wrong score */
    float overlong_factor;     /* of weft_k_overlong(); 0: off */
    int32_t overlong_max, overlong_cache; /* response tokens */
};
/* Computes advantage (W) of one sample from its rollout, reference log-probs
 * (NULL: no KL), values (NULL: zeros), the outside score (double; NULL: none),
 * reward models' scores (float each), and the KL state. baseline: the struct
 * weft_advantage of another response, whose score is then subtracted from the
 * returns, in place of values (ReMax); NULL: none. */
void weft_insert_gae(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_gae_args *args,
                     struct weft_tile *rollout, struct weft_tile *ref,
                     struct weft_tile *value, struct weft_tile *score,
                     struct weft_tile *const model_score[],
                     struct weft_tile *kl_state, struct weft_tile *baseline,
                     struct weft_tile *advantage);

/* Advantages of the n responses to one prompt. */
struct weft_group_args {
    enum weft_group_advantage kind;
    /* As for weft_insert_gae(), but gamma and lambda are not used, and
     * `sample` is the index of the group's first sample. */
    struct weft_gae_args reward;
};
struct weft_group_sample {
    struct weft_tile *rollout;
    struct weft_tile *ref, *score; /* NULL for all of the group, or none */
    struct weft_tile *model_score[WEFT_MAX_MODEL_SCORES]; /* (n_models) */
    struct weft_tile *advantage;                          /* (W) */
};
/* Computes the advantages of the n samples of a group, which are given in the
 * order of their indices. A sample is compared by its score minus the KL
 * penalties of its tokens (reward_sum), and every token has the advantage of
 * its sample. */
void weft_insert_group_advantage(struct weft_seq *seq,
                                 const struct weft_where *where,
                                 const struct weft_group_args *args,
                                 int32_t n,
                                 const struct weft_group_sample *sample,
                                 struct weft_tile *kl_state);

/* Brings one reward model's scores of n samples into one unit: shaped[i] (W,
 * float) = weft_k_reward() of score[i] (float). moments (RW, a struct
 * weft_k_moments) are of these scores; with `running` they are those of all
 * calls, and 0 before the first. NULL: scores are only clipped. Samples are
 * given in the order of their indices. */
struct weft_reward_shape_args {
    bool running;
    float low, high; /* clip; low >= high: off */
};
void weft_insert_reward_shape(struct weft_seq *seq,
                              const struct weft_where *where,
                              const struct weft_reward_shape_args *args,
                              int32_t n, struct weft_tile *const score[],
                              struct weft_tile *moments,
                              struct weft_tile *const shaped[]);

/* Computes moments (W) over n samples, which must be given in the order of
 * their indices. Without `whiten` mean is 0 and rstd 1. */
void weft_insert_moments(struct weft_seq *seq, const struct weft_where *where,
                         bool whiten, int32_t n,
                         struct weft_tile *const advantage[],
                         struct weft_tile *moments);
/* Adaptive KL controller (Ziegler et al. 2019): coef *= 1 + clip(kl/target -
 * 1, +-0.2) * n / horizon, with the mean KL of n samples. Without `adaptive`
 * it records the KL only. */
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
    struct weft_layer_tiles tiles = {NULL, {NULL}};
    if (group == WEFT_GROUP_LAYER)
        return p->layer[layer];
    if (group == WEFT_GROUP_HEAD)
        return p->head;
    for (int b = 0; b < WEFT_MAX_BLOCKS; b++)
        tiles.block[b] = p->embed[b];
    return tiles;
}

/* All gradients of a group (W) become 0. */
void weft_insert_zero(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_layer_tiles *grad);
/* Computes left += right: one node of the tree that sums the gradients of the
 * gradient groups. */
void weft_insert_grad_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_layer_tiles *left,
                          const struct weft_layer_tiles *right);
/* Which chunks (base/shape.h) each tile of a group holds: first the blocks,
 * then the norms. Such a tile may be a part of a whole tile, or a tile of its
 * own. */
enum { WEFT_GROUP_TILES = WEFT_MAX_BLOCKS + 1 };
struct weft_chunks {
    struct weft_range of[WEFT_GROUP_TILES];
};

/* Tied weights: adds the embedding's gradient to the head's. Both hold the
 * same chunks. */
void weft_insert_tied_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          const struct weft_chunks *chunks,
                          const struct weft_layer_tiles *head,
                          const struct weft_layer_tiles *embed);
/* Writes into partial (W) the sum of squares of each of the gradient's chunks,
 * or one sum for a tile that holds all its chunks. `number` identifies the
 * group; weft_insert_grad_norm() takes groups in ascending order of it. */
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
    float skip;  /* 1: the step is not made, its gate is closed */
};
/* Computes norm (W), the square root of the sum of all partial sums. The order
 * is fixed: groups in order, in a group the blocks and then the norms, in a
 * tile its chunks. partial (n) must be sorted by group, and in a group by the
 * chunks that they hold. Fails the sequence when the norm is not finite. gate:
 * a float (NULL: 1); 0 makes weft_insert_adamw() do nothing. */
void weft_insert_grad_norm(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape, float clip,
                           int32_t n, struct weft_tile *const partial[],
                           struct weft_tile *gate, struct weft_tile *norm);
/* Does one AdamW step on chunks of a group: updates optimizer tiles (each flat
 * f32: [master, bf16 runs only] m, v) and published forward weights. It does
 * not update what is derived from whole weight tiles; weft_insert_transpose()
 * and weft_insert_tied_table() do. */
void weft_insert_adamw(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_k_adamw *adamw,
    enum weft_param_group group, const struct weft_chunks *chunks,
    const struct weft_layer_tiles *grad, struct weft_tile *norm,
    const struct weft_layer_tiles *opt, const struct weft_layer_tiles *fwd);

/* Whether a kind's published tile has another order on GPUs than on CPUs. */
bool weft_reorders(const struct weft_shape *shape, enum weft_tile_kind kind);
/* Writes to (W): a published tile in the order of the other kind of device, as
 * weft_k_reorder(). */
void weft_insert_reorder(struct weft_seq *seq, const struct weft_where *where,
                         const struct weft_shape *shape,
                         enum weft_tile_kind kind, int32_t block,
                         bool to_rows, struct weft_tile *from,
                         struct weft_tile *to);

/* A micro-batch as tasks at GPUs see it: sizes that it has at most. */
struct weft_gpu_pass {
    const struct weft_shape *shape;
    struct weft_range range; /* a member's blocks */
    int32_t n_rows, n_runs, n_targets;
    size_t batch_bytes; /* of its batch, of which tasks copy parts; 0: the GPU
                           has a copy already */
    bool generates;     /* it is a decode step */
    bool backward, recompute;
};
/* The most that one of its tasks takes of a GPU's memory beside its tiles,
 * while it runs; with backward also those of the update. 0: not known, as this
 * build has no CUDA, or no memory. Local. */
size_t weft_gpu_scratch_bytes(const struct weft_gpu_pass *pass);
/* Whether this build has CUDA, and so knows that. */
bool weft_gpu_scratch_is_known(void);

/* On a GPU: chooses and proves the algorithms of all products of a model, as
 * weft_k_choose_products_cuda(). What the first tasks would do in their turn is
 * then done while the GPU's memory is still free. */
void weft_insert_choose_products(struct weft_seq *seq,
                                 const struct weft_where *where,
                                 const struct weft_shape *shape,
                                 bool generates, bool backward);

/* Moves a tile of a frozen model towards that of a model of the same shape:
 * from is published. master (flat f32): what fwd is rounded from; NULL: fwd is
 * f32, or mix is 1. */
void weft_insert_mix(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_shape *shape, enum weft_tile_kind kind,
                     int32_t block, float mix, struct weft_tile *from,
                     struct weft_tile *fwd, struct weft_tile *master);

/* Whether the master copy is kept in the optimizer tile, as for matrices of
 * bf16 runs; else the forward tile is the master. */
bool weft_master_apart(const struct weft_shape *shape,
                       enum weft_tile_kind kind);
/* Bytes of the optimizer tile for n_elements parameters. */
size_t weft_opt_bytes(const struct weft_shape *shape,
                      enum weft_tile_kind kind, size_t n_elements);

/* ---- Emulation ---------------------------------------------------------- */

enum { WEFT_EMULATE_BEFORE = 4 };
/* Waits until all of `before` have ended, and latency_s longer for those that
 * are far, then sleeps for `seconds`. span (W): a struct weft_span of that
 * sleep on weft_clock_s(). */
void weft_insert_emulate(struct weft_seq *seq, const struct weft_where *where,
                         double seconds, double latency_s, int32_t n_before,
                         struct weft_tile *const before[],
                         const bool is_far[], struct weft_tile *span);
/* Keeps a core busy for so long, as a task that computes. tile (RW): what it
 * waits for and what waits for it; its bytes stay. */
void weft_insert_spin(struct weft_seq *seq, const struct weft_where *where,
                      double seconds, struct weft_tile *tile);

#ifdef __cplusplus
}
#endif
#endif
