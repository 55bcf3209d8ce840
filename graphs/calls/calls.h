/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: model function calls as functions that submit tasks. They turn a
 * model, a layout and samples into calls of codelets/codelets.h. They never
 * wait for tasks (src/run does) and never compute.
 */
#ifndef WEFT_CALLS_CALLS_H
#define WEFT_CALLS_CALLS_H

#include "codelets/generation.h"
#include "graphs/calls/copies.h"
#include "graphs/calls/layout.h"

/* ---- A model's tiles -------------------------------------------------- */

/* Each place holds what its devices need in the home layout, which is that of
 * the training call, or of the inference call if the model is frozen. With
 * ZeRO, places hold only the part that they own (graphs/shard.h): of the
 * optimizer state from level 1 on, of gradients that wait to be added from
 * level 2 on, of published weights at level 3, where transposes and tied
 * tables are not kept. */
struct weft_g_order;
struct weft_g_model {
    struct weft_rt *rt;
    const char *name;        /* "actor": in messages and traces */
    struct weft_shape shape; /* partitioned */
    bool trained;            /* has transposed weights and optimizer state */
    struct weft_g_layout home;
    int32_t n_places;
    struct weft_params *fwd, *bwd, *opt; /* (n_places): whole tiles, or the
                                            part that the place owns */
    /* (n_places) f32 in flat order, of a frozen model that keeps what fwd
     * rounds (weft_master_apart()); NULL: none */
    struct weft_params *master;
    /* (n_places) where the model has no optimizer state: written when the
     * weights that were moved there are given back (graphs/calls/tiles.h);
     * NULL: none were moved there yet */
    struct weft_tile **given_back;
    /* (n_places) with LoRA adapters: tiles at places that are not the home
     * layout's, which views make and which stay, as frozen weights are where
     * they are needed from the beginning; NULL: there are none */
    struct weft_params *resident;
    /* (n_places) with LoRA adapters and ZeRO 3: of frozen weights the part that
     * the place owns, beside that of adapters in fwd; NULL: all are in fwd */
    struct weft_params *frozen;
    const struct weft_g_model *trunk; /* has its weights; NULL: itself */
    const struct weft_g_model *host;  /* it was brought back from; or NULL */
    /* in which inference and generation run; NULL: in any */
    struct weft_g_order *order;
};

/* Creates the tiles, zeroed, of a partitioned shape. `name` is borrowed until
 * the model is released, `home` is copied. A model with tied weights has no
 * optimizer tiles for its embedding; where home->plan.offload, those of a
 * trained model lie in host memory between optimizer steps. Release with
 * weft_g_model_release(), also after an error. */
int weft_g_model_init(struct weft_rt *rt, const char *name,
                      const struct weft_shape *shape, bool trained,
                      const struct weft_g_layout *home,
                      struct weft_g_model *out, struct weft_err *err);
void weft_g_model_release(struct weft_g_model *model);

/* A frozen model without tiles of its own: its weights are those of `trunk`
 * without adapters, which has some and outlives it. home: of its call. Release
 * with weft_g_model_release(), also after an error. */
int weft_g_model_share(const struct weft_g_model *trunk, const char *name,
                       const struct weft_shape *shape,
                       const struct weft_g_layout *home,
                       struct weft_g_model *out, struct weft_err *err);

/* A frozen model between its uses: tiles of class host, one copy on each rank
 * for all of its places, as a model that has but these (fwd) at the first
 * place that needs them. Release with weft_g_model_release(). */
int weft_g_host_init(struct weft_rt *rt, const char *name,
                     const struct weft_shape *shape,
                     const struct weft_g_layout *home,
                     struct weft_g_model *out, struct weft_err *err);
/* Adds master weights, zeroed, to a frozen model of either kind, for those
 * tiles whose published weights are rounded. */
int weft_g_masters_init(struct weft_g_model *model, bool on_host,
                        struct weft_err *err);
/* Submits bringing it back: makes the model's tiles, which get their memory
 * when tasks copy the host's into them, layer by layer; what reads a tile
 * waits for that one. A place begins when it is done with the optimizer steps
 * of `trained` inserted before or, if it makes none, with what was brought back
 * before. `where`: call, iteration and priority. `out` is zeroed, or what an
 * earlier call brought back and was released since, with tasks that may not
 * have ended. The tiles are given back by weft_g_give_back(), also after an
 * error; the host's stay. */
int weft_g_restore(struct weft_seq *seq, const struct weft_where *where,
                   const struct weft_g_model *host,
                   const struct weft_g_model *trained,
                   struct weft_g_model *out, struct weft_err *err);
/* Releases a model that was brought back, after the tasks inserted before. */
void weft_g_give_back(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_g_model *model);

/* The tile of a kind in `params`, or NULL. layer and block are ignored where
 * the kind has none. */
struct weft_tile *weft_g_params_tile(const struct weft_params *params,
                                     enum weft_tile_kind kind, int32_t layer,
                                     int32_t block);
/* Which chunks (base/shape.h) of a tile the place's published weights hold, or
 * its optimizer state if `state`: all of them, or those that the place
 * owns. */
struct weft_range weft_g_chunks_at(const struct weft_g_model *model,
                                   bool state, int32_t place,
                                   enum weft_tile_kind kind, int32_t layer,
                                   int32_t block);
/* Bytes of a published forward tile. */
size_t weft_g_fwd_bytes(const struct weft_shape *shape,
                        enum weft_tile_kind kind, int32_t block);

/* A bundle: the tiles of a parameter group that belong to one tp member; norms
 * belong to member 0. The part of a bundle that a place owns is a shard
 * (graphs/shard.h). */
struct weft_g_bundle {
    enum weft_param_group group;
    int32_t layer; /* -1: embedding, head */
    int32_t tp;
};
/* Number of bundles, and bundle number i. They are ordered by group
 * (embedding, layers, head), then by tp index. */
int32_t weft_g_n_bundles(const struct weft_g_model *model);
struct weft_g_bundle weft_g_bundle_get(const struct weft_g_model *model,
                                       int32_t i);
int32_t weft_g_bundle_stage(const struct weft_g_model *model,
                            const struct weft_g_bundle *bundle);
/* Distinct places of the bundle's replicas. */
struct weft_g_places weft_g_bundle_places(const struct weft_g_model *model,
                                          const struct weft_g_bundle *bundle);
/* The bundle's tiles in `params`. */
struct weft_layer_tiles weft_g_bundle_tiles(
    const struct weft_g_model *model, const struct weft_g_bundle *bundle,
    const struct weft_params *params);

/* ---- Reallocation ------------------------------------------------------ */

/* The published weights for a call with another layout: tiles that the call's
 * places have anyway, and temporary copies of those that they lack. Blocks are
 * moved, never reshaped (parameter reallocation, ReaL section 6). With LoRA
 * adapters only these are copied: places have the frozen weights for good. */
struct weft_g_view {
    const struct weft_g_model *model;
    struct weft_seq *seq;
    struct weft_where where;
    struct weft_g_layout layout;
    struct weft_params *fwd; /* (n_places) */
    struct weft_tile **copy; /* (n_copies) */
    int32_t n_copies;
    size_t copied_bytes;
};

/* Submits the copies that `layout` needs. Tasks that use the view and are
 * inserted later wait only for the tiles that they read. A place allocates its
 * copies after the optimizer steps that were inserted before or, if it makes
 * none, after giving back the copies of the model's views that were closed
 * before. `where`: call and iteration. Close the view also after an error;
 * tasks that are inserted before that can still use the copies. Errors:
 * WEFT_ENOMEM. */
int weft_g_view_open(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_g_model *model,
                     const struct weft_g_layout *layout,
                     struct weft_g_view *out, struct weft_err *err);
/* The same of weights that stay as they are now: all tiles that the layout
 * needs are copies, also of those that its places have. */
int weft_g_view_keep(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_g_model *model,
                     const struct weft_g_layout *layout,
                     struct weft_g_view *out, struct weft_err *err);
void weft_g_view_close(struct weft_g_view *view);

/* Submits moving a frozen model's weights (`own`, or the host's copy of it) to
 * mix times those of `from` and 1 - mix times its own, after all tasks that
 * were inserted before and use either. Both have the same shape. The published
 * weights of `from` come to the home layout of `own` as a view's do; there
 *
 *     master += mix (from - master), each operation rounded to f32,
 *     fwd = master, rounded to the run's dtype;
 *
 * without masters fwd is f32, or mix is 1, which makes it a copy. where: call,
 * iteration and priority. */
int weft_g_follow(struct weft_seq *seq, const struct weft_where *where,
                  const struct weft_g_model *from, float mix,
                  const struct weft_g_model *own, struct weft_err *err);

/* ---- Gradients -------------------------------------------------------- */

/* Accumulators for n_groups gradient groups that dp replicas share. A replica
 * has as many sets of gradient tiles as its part of the tree over groups needs
 * at a time; from ZeRO 2 on it has one. Tiles lie at their member's place. */
struct weft_g_grads {
    int32_t n_groups, dp;
    int32_t *n_sets;          /* (dp) */
    struct weft_params **set; /* (dp): (n_sets) */
};

/* Release with weft_g_grads_release(), also after an error (WEFT_ENOMEM). */
int weft_g_grads_init(const struct weft_g_model *model, int32_t n_groups,
                      struct weft_g_grads *out, struct weft_err *err);
void weft_g_grads_release(const struct weft_g_model *model,
                          struct weft_g_grads *grads);
/* How many sets a replica with such a range of groups needs: at most log2(n) +
 * 1, and one more for each end that is not aligned. */
int32_t weft_g_grads_needed(struct weft_range groups);
/* ---- Inference -------------------------------------------------------- */

/* Size of a micro-batch, or of several. */
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

/* The place at which the `out` tiles of replica `dp`'s samples must lie. */
int32_t weft_g_infer_out_place(const struct weft_g_layout *layout,
                               int32_t dp);

/* Submits the choice of the products that a call on GPUs needs (kern_cuda.h),
 * on each of its devices; before tiles take their memory. */
void weft_g_choose_products(struct weft_seq *seq,
                            const struct weft_g_layout *layout, int32_t call,
                            const struct weft_shape *shape, bool generates,
                            bool backward);

/* Submits inference of one packed micro-batch of n samples by replica `dp` of
 * the model. Rollout tiles may lie at any place. most: for recordings, the
 * size that the micro-batch's tiles get; NULL: that of its samples. */
void weft_g_infer(struct weft_seq *seq, const struct weft_where *where,
                  const struct weft_g_view *view, int32_t dp,
                  enum weft_g_infer_kind kind, float inv_temperature,
                  int32_t n, const struct weft_g_infer_sample *sample,
                  struct weft_g_copies *copies,
                  const struct weft_g_rows *most);

/* ---- Training --------------------------------------------------------- */

/* Numbers the tasks of a strict order on every device, per chain
 * (plan/task.h), since the last wait. */
struct weft_g_order {
    int64_t *next; /* (n_devices, WEFT_N_CHAINS) */
    int32_t n_devices;
};
int weft_g_order_init(struct weft_rt *rt, struct weft_g_order *out,
                      struct weft_err *err);
void weft_g_order_release(struct weft_g_order *order);
/* Starts again at 0; to be called after weft_seq_wait(). */
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
    int32_t micro_batch_rows; /* used if the plan sets no number of them */
    int32_t unit; /* samples that stay together, like a pair's two; 0: 1 */
    int32_t call;
    int32_t chain;
    int priority;
    int32_t iteration;
    struct weft_tile *moments; /* whitening; NULL: none */
    /* for recordings: the size that every micro-batch's tiles get; NULL: that
     * of its samples */
    const struct weft_g_rows *most;
};

/* Statistics of one micro-batch: double[n][weft_loss_n_stats], sample[i] is
 * the index given to the mini-batch. The caller releases tile and array. */
struct weft_g_stats {
    struct weft_tile *tile;
    int32_t n;
    int32_t *sample;
};

/* Bytes that a micro-batch of n_rows holds at a stage's places between the
 * stage's forward and backward pass. */
size_t weft_g_held_bytes(const struct weft_shape *shape,
                         const struct weft_g_layout *home, int32_t stage,
                         int64_t n_rows);

/* The same in three parts, so that steps of several models can be submitted
 * together. After an error of weft_g_step_begin() (WEFT_ENOMEM) or a later
 * function, free the step by weft_g_step_abandon(). `train` and `sample` are
 * borrowed until weft_g_step_end(). */
struct weft_g_step;
int weft_g_step_begin(struct weft_seq *seq, const struct weft_g_train *train,
                      int32_t n, const struct weft_pack_sample *sample,
                      struct weft_g_step **out, struct weft_err *err);
/* The number of micro-batches of replica dp; and the cost (plan/deal.h) and
 * number of rows of one. */
int32_t weft_g_step_n(const struct weft_g_step *step, int32_t dp);
double weft_g_step_cost(const struct weft_g_step *step, int32_t dp,
                        int32_t micro_batch, int64_t *n_rows_out);

/* Call it before submitting: `span` then records when the tasks of the tree
 * over groups, the norm and AdamW run. */
void weft_g_step_watch(struct weft_g_step *step, struct weft_span *span);

/* Forward or backward of a micro-batch on a stage of step number `step`. */
struct weft_g_subtask {
    int32_t step, dp, stage, micro_batch;
    bool backward;
    double start;           /* by the plan */
    struct weft_span *span; /* records when its tasks run; may be NULL */
};
/* The subtasks of one device (tp group), in order. */
struct weft_g_queue {
    const struct weft_g_subtask *subtask;
    int32_t n;
    int32_t next; /* 0 at first */
};
/* Submits the forward and backward subtasks of the steps. When all subtasks of
 * a step are submitted, its tree, norm and AdamW follow at once. With queue
 * NULL the steps are submitted one after another, each by 1F1B. Otherwise
 * every queue keeps its order, subtasks of different queues are submitted by
 * planned start, and all steps have the same chain. Of several steps of one
 * model, each starts after the one before. Subtasks of steps or micro-batches
 * that do not exist are skipped. Errors: WEFT_EINVAL when a subtask is in no
 * queue, or when queues wait for each other. */
int weft_g_step_submit(struct weft_g_step *const step[], int32_t n_steps,
                       struct weft_g_queue *queue, int32_t n_queues,
                       struct weft_err *err);
void weft_g_step_abandon(struct weft_g_step *step); /* NULL is allowed */
/* stats_out (capacity: the mini-batch's samples) receives *n_stats_out entries;
 * norm_out receives the tile of struct weft_grad_norm, which the caller
 * releases. Both lie at the places where they are computed. Frees the step. */
void weft_g_step_end(struct weft_g_step *step, struct weft_g_stats *stats_out,
                     int32_t *n_stats_out, struct weft_tile **norm_out);

/* ---- Generation ------------------------------------------------------- */

/* The CUDA graphs of a member's decode steps, and their memory, which is
 * reserved; what it has for the others of a tp group, or NULL. */
struct weft_g_decode_graphs {
    struct weft_gen_graphs *of;
    struct weft_tile *memory, *exchange;
};

/* An instance generates on a replica of the actor, with slots of its own. A
 * replica of pp stages serves pp instances, so that all its stages work at the
 * same time. */
struct weft_g_instance {
    int32_t dp;
    int32_t home; /* device that keeps the state */
    struct weft_tile *state;
    struct weft_tile *status[2]; /* of even and odd chunks */
    struct weft_tile **arena;    /* (pp, tp) */
    /* (pp, tp) where members are GPUs that have a step as a task; else NULL */
    struct weft_g_decode_graphs *graphs;
    int64_t n_chunks; /* submitted so far */
    bool freed;       /* it takes no more samples, others generate the rest */
    bool idle; /* it has no samples left, and none will come but those that
                  others leave */
};

struct weft_g_generate {
    const struct weft_g_model *model;
    struct weft_g_layout layout;
    int32_t call; /* its tasks' number in the dataflow graph; 0 until set */
    int32_t first_chain; /* of its instances', where others generate, too */
    int32_t n_instances, n_slots, max_total;
    int32_t prefill_tokens; /* of a step, at most */
    int32_t n_pages;        /* of an instance's KV cache */
    struct weft_g_instance *instance;
    int32_t n_freed; /* of them */
};

/* Creates the tiles of the instances of `layout`: at most max_instances, with
 * n_slots slots each, and a KV cache of kv_blocks pages; 0: as many as the
 * slots' longest texts need together. prefill_tokens: the most that a chunk's
 * arguments have. The caller must then clear their states
 * (weft_gen_state_clear()). Errors: WEFT_EINVAL when one text needs more. */
int weft_g_generate_init(const struct weft_g_model *model,
                         const struct weft_g_layout *layout,
                         int32_t max_instances, int32_t n_slots,
                         int32_t max_total, int32_t prefill_tokens,
                         int32_t kv_blocks, struct weft_g_generate *out,
                         struct weft_err *err);
/* When its tasks have ended. */
void weft_g_generate_release(struct weft_g_generate *gen);
/* How many instances a layout has for n samples. */
int32_t weft_g_generate_instances(const struct weft_g_layout *layout,
                                  int32_t n);
/* Of n samples those that an instance begins with, by the shares of its
 * replica; and the most that one does. */
int32_t weft_g_generate_share(const struct weft_g_layout *layout, int32_t n,
                              int32_t instance);
int32_t weft_g_generate_slots(const struct weft_g_layout *layout, int32_t n);
/* Submits the next chunk of an instance; its status goes to
 * instance->status[chunk % 2], at the place of instance->home. */
void weft_g_generate_chunk(struct weft_seq *seq, struct weft_g_generate *gen,
                           const struct weft_g_view *view, int32_t instance,
                           const struct weft_gen_args *args, int32_t n_admit,
                           const struct weft_gen_admit *admit);
/* Copies the finished sample in `slot` to its rollout tile, which lies at the
 * place of instance->home. */
void weft_g_generate_retire(struct weft_seq *seq,
                            const struct weft_g_generate *gen,
                            int32_t instance, int32_t slot, int32_t iteration,
                            struct weft_tile *rollout);
/* Pages of an instance that may leave it so, and that may come to it. */
int32_t weft_g_generate_moved_pages(const struct weft_g_generate *gen);
/* Moves the unfinished sample of n_total tokens from a slot of one instance to
 * a free one, admit->slot, of another, with its KV cache (`cache`, as far as it
 * has one and there are pages for it), or to be read again there. Each member's
 * pages go to the same member of the other instance; those of members that lie
 * at one place in both go in one message. Errors: those of creating a tile. */
int weft_g_generate_move(struct weft_seq *seq,
                         const struct weft_g_generate *gen, int32_t from,
                         int32_t from_slot, int32_t iteration,
                         int32_t n_total, int32_t to,
                         const struct weft_gen_admit *admit, bool cache,
                         struct weft_err *err);
int32_t weft_g_generate_place(const struct weft_g_generate *gen,
                              int32_t instance);
/* What instances do next waits, on each of their devices, for the training of a
 * model that was submitted before and shares the device: chunks in between hold
 * up all stages of its pipeline, and its weights would move when generation has
 * ended, beside nothing. */
void weft_g_generate_behind(struct weft_seq *seq,
                            const struct weft_g_generate *gen,
                            const struct weft_g_model *trained,
                            int32_t iteration);

#endif
