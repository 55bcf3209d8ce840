/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: the algorithms as functions that submit tasks. They turn a model, a
 * layout and samples into instructions of codelets/codelets.h; they never wait
 * (run does) and never compute.
 */
#ifndef WEFT_GRAPHS_GRAPHS_H
#define WEFT_GRAPHS_GRAPHS_H

#include "codelets/codelets.h"
#include "graphs/copies.h"
#include "graphs/layout.h"

/* ---- A model's tiles -------------------------------------------------- */

/* Each place has what its devices need in the home layout (the training
 * call's, or a frozen model's inference call's); with ZeRO (trained models)
 * of some of it only what it owns (graphs/shard.h): of optimizer state from
 * level 1 on, of gradients that wait to be added from 2, of published weights
 * with 3, where there are no transposes and no tied tables. */
struct weft_g_model {
    struct weft_rt *rt;
    const char *name;        /* "actor": in messages and traces */
    struct weft_shape shape; /* partitioned */
    bool trained;            /* has transposed weights and optimizer state */
    struct weft_g_layout home;
    int32_t n_places;
    struct weft_params *fwd, *bwd, *opt; /* (n_places): whole tiles, or what
                                            the place owns of them */
};

/* Creates the tiles (zeroed) of a partitioned shape; `name` is borrowed for
 * the model's life, `home` is copied. A tied model has no optimizer tiles for
 * its embedding. Release with weft_g_model_release(), also after an error. */
int weft_g_model_init(struct weft_rt *rt, const char *name,
                      const struct weft_shape *shape, bool trained,
                      const struct weft_g_layout *home,
                      struct weft_g_model *out, struct weft_err *err);
void weft_g_model_release(struct weft_g_model *model);

/* Adds the bytes that weft_g_model_init() would take, by place and class. */
void weft_g_model_bytes(const struct weft_shape *shape, bool trained,
                        const struct weft_g_layout *home,
                        size_t (*bytes)[WEFT_N_MEM_CLASSES]);

/* The tile of a kind (layer and block where they apply) in a set, or NULL. */
struct weft_tile *weft_g_params_tile(const struct weft_params *params,
                                     enum weft_tile_kind kind, int32_t layer,
                                     int32_t block);
/* The chunks (base/shape.h) of a tile that a place's published one, or its
 * optimizer state, holds where there is one: all, or what it owns. */
struct weft_range weft_g_chunks_at(const struct weft_g_model *model,
                                   bool state, int32_t place,
                                   enum weft_tile_kind kind, int32_t layer,
                                   int32_t block);
/* Bytes of a published forward tile. */
size_t weft_g_fwd_bytes(const struct weft_shape *shape,
                        enum weft_tile_kind kind, int32_t block);

/* A bundle: the tiles of a parameter group that one tp member has; norms
 * belong to member 0's. What an owner has of one is a shard (graphs/shard.h).
 */
struct weft_g_bundle {
    enum weft_param_group group;
    int32_t layer; /* -1: embedding, head */
    int32_t tp;
};
/* Bundle number i of n (groups in the order embedding, layers, head; inside
 * by tp index). */
int32_t weft_g_n_bundles(const struct weft_g_model *model);
struct weft_g_bundle weft_g_bundle_get(const struct weft_g_model *model,
                                       int32_t i);
int32_t weft_g_bundle_stage(const struct weft_g_model *model,
                            const struct weft_g_bundle *bundle);
/* Distinct places of the bundle's replicas, out (dp). */
int32_t weft_g_bundle_places(const struct weft_g_model *model,
                             const struct weft_g_bundle *bundle,
                             int32_t *out);
/* The bundle's tiles in a set. */
struct weft_layer_tiles weft_g_bundle_tiles(
    const struct weft_g_model *model, const struct weft_g_bundle *bundle,
    const struct weft_params *params);

/* ---- Reallocation ------------------------------------------------------ */

/* The published weights as a call with any layout sees them: tiles that its
 * places have anyway, and temporary copies of those they lack (ReaL section
 * 6: moving blocks, never reshaping). */
struct weft_g_view {
    const struct weft_g_model *model;
    struct weft_g_layout layout;
    struct weft_params *fwd; /* (n_places) */
    struct weft_tile **copy; /* (n_copies) */
    int32_t n_copies;
    size_t copied_bytes;
};

/* Submits the copies that `layout` needs beyond what is there; tasks inserted
 * later that use the view wait for what they need only. A place takes them
 * when it is done with the optimizer steps inserted before. `where`: call and
 * iteration. Close also after an error; tasks inserted before find the
 * copies. Errors: WEFT_ENOMEM. */
int weft_g_view_open(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_g_model *model,
                     const struct weft_g_layout *layout,
                     struct weft_g_view *out, struct weft_err *err);
void weft_g_view_close(struct weft_g_view *view);
/* Adds the bytes of the copies, by place (n_places). Errors: WEFT_ENOMEM. */
int weft_g_view_bytes(const struct weft_shape *shape,
                      const struct weft_g_layout *home,
                      const struct weft_g_layout *layout, int32_t n_places,
                      size_t (*bytes)[WEFT_N_MEM_CLASSES],
                      struct weft_err *err);

/* ---- Gradients -------------------------------------------------------- */

/* Accumulators for G gradient groups of dp replicas: each replica has as many
 * sets as its share of the tree over groups ever holds at once (with ZeRO 2
 * and up one). Tiles lie at their member's place. */
struct weft_g_grads {
    int32_t n_groups, dp;
    int32_t *n_sets;          /* (dp) */
    struct weft_params **set; /* (dp): (n_sets) */
};

int weft_g_grads_init(const struct weft_g_model *model, int32_t n_groups,
                      struct weft_g_grads *out, struct weft_err *err);
void weft_g_grads_release(const struct weft_g_model *model,
                          struct weft_g_grads *grads);
/* Sets that replica `d` of dp needs: at most log2(groups it holds) + 1, one
 * more per end that is not aligned. */
int32_t weft_g_grads_needed(int32_t n_groups, int32_t dp, int32_t d);
/* Adds the bytes of all sets, by place. */
void weft_g_grads_bytes(const struct weft_shape *shape,
                        const struct weft_g_layout *home, int32_t n_groups,
                        size_t (*bytes)[WEFT_N_MEM_CLASSES]);

/* ---- Inference -------------------------------------------------------- */

/* Rows of a micro-batch, or of several. */
struct weft_g_rows {
    int64_t n_rows;
    int32_t n_runs, n_targets;
};

enum weft_g_infer_kind {
    WEFT_INFER_LOGPROB,     /* out: float per response token */
    WEFT_INFER_LOGPROB_ALL, /* out: float per token but the first */
    WEFT_INFER_VALUE,       /* out: float per response token */
    WEFT_INFER_SCORE        /* out: one float */
};

struct weft_g_infer_sample {
    struct weft_tile *rollout;
    int32_t n_prompt, n_total;
    struct weft_tile *out; /* written */
};

/* Place at which replica `dp` packs its samples, and at which their `out`
 * tiles must lie. */
int32_t weft_g_infer_pack_place(const struct weft_g_layout *layout,
                                int32_t dp);
int32_t weft_g_infer_out_place(const struct weft_g_layout *layout,
                               int32_t dp);

/* One packed micro-batch of n samples through replica `dp` of the model.
 * Rollouts may lie anywhere. */
void weft_g_infer(struct weft_seq *seq, const struct weft_where *where,
                  const struct weft_g_view *view, int32_t dp,
                  enum weft_g_infer_kind kind, float inv_temperature,
                  int32_t n, const struct weft_g_infer_sample *sample,
                  struct weft_g_copies *copies);

/* Adds the bytes of an inference call's temporary tiles, by place: `all` rows
 * of a replica in n micro-batches may be under way at once. */
void weft_g_infer_bytes(const struct weft_shape *shape,
                        const struct weft_g_layout *layout,
                        const struct weft_g_rows *all,
                        int32_t n_micro_batches,
                        size_t (*bytes)[WEFT_N_MEM_CLASSES]);

/* ---- Training --------------------------------------------------------- */

/* Strict positions on the devices, counted per chain since the last wait. */
struct weft_g_order {
    int64_t *next; /* (n_devices, WEFT_N_CHAINS) */
    int32_t n_devices;
};
int weft_g_order_init(struct weft_rt *rt, struct weft_g_order *out,
                      struct weft_err *err);
void weft_g_order_release(struct weft_g_order *order);
/* After weft_seq_wait(). */
void weft_g_order_reset(struct weft_g_order *order);

struct weft_g_train {
    const struct weft_g_model *model;
    const struct weft_g_grads *grads;
    struct weft_g_gather *gather; /* graphs/gather.h */
    struct weft_g_order *order;
    struct weft_g_copies *copies;
    struct weft_loss_args loss;
    struct weft_k_adamw adamw;
    float grad_clip;
    int32_t micro_batch_rows; /* where the layout has no number of them */
    enum weft_call call;
    int32_t chain;
    int priority;
    int32_t iteration;
    struct weft_tile *moments; /* whitening; NULL: none */
};

/* Statistics of one micro-batch: double[n][weft_loss_n_stats], sample[i] is
 * the index given to the mini-batch. The caller releases tile and array. */
struct weft_g_stats {
    struct weft_tile *tile;
    int32_t n;
    int32_t *sample;
};

/* What bounds a training call's memory. */
struct weft_g_train_size {
    struct weft_g_rows most; /* the largest micro-batch */
    int32_t n_flights;       /* micro-batches of a replica in a step */
    bool fused;              /* not 1F1B: all of them may be in flight */
    int32_t n_groups;        /* gradient groups */
    int32_t n_steps;         /* submitted together */
    bool messages; /* places are of several ranks: what was received is given
                      back a little after its last reader */
    size_t stats_bytes; /* statistics of all of them */
};

/* Adds the bytes of a training call's temporary tiles, by place: micro-batches
 * in flight, gradients on their way to their owners, statistics; and apart
 * (`ahead`) what may be there before and after: for the first messages, as
 * soon as they are submitted. */
void weft_g_train_bytes(const struct weft_shape *shape,
                        const struct weft_g_layout *home,
                        const struct weft_g_train_size *size,
                        size_t (*ahead)[WEFT_N_MEM_CLASSES],
                        size_t (*bytes)[WEFT_N_MEM_CLASSES]);

/* Bytes that a micro-batch of n_rows holds on a stage's places between its
 * forward and its backward there. */
size_t weft_g_held_bytes(const struct weft_shape *shape,
                         const struct weft_g_layout *home, int32_t stage,
                         int64_t n_rows);

/* One optimizer step on a mini-batch of n samples: deals them to gradient
 * groups, groups to replicas and micro-batches, submits forward and backward
 * (1F1B), the tree over groups, the norm and AdamW. stats_out (capacity n)
 * receives *n_stats_out entries; norm_out the tile of struct weft_grad_norm
 * (the caller releases it); both lie where they are made. Submits; does not
 * wait. Errors: WEFT_ENOMEM. */
int weft_g_train_step(struct weft_seq *seq, const struct weft_g_train *train,
                      int32_t n, const struct weft_pack_sample *sample,
                      struct weft_g_stats *stats_out, int32_t *n_stats_out,
                      struct weft_tile **norm_out, struct weft_err *err);

/* The same in three parts, so that steps of several models can be submitted
 * together. begin: errors WEFT_ENOMEM; after an error, here or below, the step
 * goes by weft_g_step_abandon(). `train` and `sample` are borrowed until the
 * end. */
struct weft_g_step;
int weft_g_step_begin(struct weft_seq *seq, const struct weft_g_train *train,
                      int32_t n, const struct weft_pack_sample *sample,
                      struct weft_g_step **out, struct weft_err *err);
/* Micro-batches of replica dp, and the cost of one (plan/deal.h) and its rows.
 */
int32_t weft_g_step_n(const struct weft_g_step *step, int32_t dp);
double weft_g_step_cost(const struct weft_g_step *step, int32_t dp,
                        int32_t micro_batch, int64_t *n_rows_out);

/* Before submitting: `span` is to hold the tree, norm and AdamW. */
void weft_g_step_watch(struct weft_g_step *step, struct weft_span *span);

/* Forward or backward of a micro-batch on a stage of step number `step`. */
struct weft_g_subtask {
    int32_t step, dp, stage, micro_batch;
    bool backward;
    double start;           /* planned */
    struct weft_span *span; /* of its tasks; may be NULL */
};
/* What one device (tp group) does, in order. */
struct weft_g_queue {
    const struct weft_g_subtask *subtask;
    int32_t n;
    int32_t next; /* 0 */
};
/* Submits the subtasks of the steps, forwards and backwards; what ends a step
 * (tree, norm, AdamW) is submitted as soon as all of its subtasks are. With
 * queue NULL the steps follow each other by 1F1B; else the order is that of
 * the queues, all steps with one chain, and among queues by planned start. Of
 * several steps of a model each waits for the one before. Subtasks of steps or
 * micro-batches that do not exist are left out. Errors: WEFT_EINVAL when the
 * queues lack a subtask, or wait for one another. */
int weft_g_step_submit(struct weft_g_step *const step[], int32_t n_steps,
                       struct weft_g_queue *queue, int32_t n_queues,
                       struct weft_err *err);
void weft_g_step_abandon(struct weft_g_step *step); /* NULL is allowed */
/* Outputs as above. Frees the step. */
void weft_g_step_end(struct weft_g_step *step, struct weft_g_stats *stats_out,
                     int32_t *n_stats_out, struct weft_tile **norm_out);

/* ---- Generation ------------------------------------------------------- */

/* An instance: a replica of the actor with a share of the slots; a replica of
 * pp stages serves pp instances, one in each stage. */
struct weft_g_instance {
    int32_t dp;
    int32_t home; /* device that keeps the state */
    struct weft_tile *state;
    struct weft_tile *status[2]; /* of even and odd chunks */
    struct weft_tile **arena;    /* (pp, tp) */
    int64_t n_chunks;            /* submitted so far */
};

struct weft_g_generate {
    const struct weft_g_model *model;
    struct weft_g_layout layout;
    int32_t n_instances, n_slots, max_total;
    struct weft_g_instance *instance;
};

/* Tiles of the instances of `layout` (at most max_instances; n_slots each).
 * The states must then be cleared by the caller (weft_gen_state_clear). */
int weft_g_generate_init(const struct weft_g_model *model,
                         const struct weft_g_layout *layout,
                         int32_t max_instances, int32_t n_slots,
                         int32_t max_total, struct weft_g_generate *out,
                         struct weft_err *err);
void weft_g_generate_release(struct weft_g_generate *gen);
/* Instances that a layout has for n samples. */
int32_t weft_g_generate_instances(const struct weft_g_layout *layout,
                                  int32_t n);
/* Adds the bytes of what weft_g_generate_init() creates, by place. */
void weft_g_generate_bytes(const struct weft_shape *shape,
                           const struct weft_g_layout *layout,
                           int32_t n_instances, int32_t n_slots,
                           int32_t max_total,
                           size_t (*bytes)[WEFT_N_MEM_CLASSES]);

struct weft_g_decode_size {
    int32_t n_instances, n_slots, max_total;
    int32_t prefill_tokens, n_steps; /* of a step, of a chunk */
    int32_t n_chunks;                /* submitted at once */
};
/* Adds the bytes of decode steps' temporary tiles, by place; apart (`ahead`)
 * what waits for messages as soon as it is submitted. */
void weft_g_decode_bytes(const struct weft_shape *shape,
                         const struct weft_g_layout *layout,
                         const struct weft_g_decode_size *size,
                         size_t (*ahead)[WEFT_N_MEM_CLASSES],
                         size_t (*bytes)[WEFT_N_MEM_CLASSES]);

/* Submits the next chunk of an instance; its status goes to
 * instance->status[chunk % 2], at the place of instance->home. */
void weft_g_generate_chunk(struct weft_seq *seq, struct weft_g_generate *gen,
                           const struct weft_g_view *view, int32_t instance,
                           const struct weft_gen_args *args, int32_t n_admit,
                           const struct weft_gen_admit *admit);
/* The sample in `slot` is finished: into its rollout tile, at the place of
 * instance->home. */
void weft_g_generate_retire(struct weft_seq *seq,
                            const struct weft_g_generate *gen,
                            int32_t instance, int32_t slot, int32_t iteration,
                            struct weft_tile *rollout);
int32_t weft_g_generate_place(const struct weft_g_generate *gen,
                              int32_t instance);

#endif
