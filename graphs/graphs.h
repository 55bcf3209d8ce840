/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: the algorithms as functions that submit tasks. They turn a model, a
 * layout and samples into instructions of codelets/codelets.h; they never wait
 * (run does) and never compute.
 */
#ifndef WEFT_GRAPHS_GRAPHS_H
#define WEFT_GRAPHS_GRAPHS_H

#include "codelets/codelets.h"

/* ---- A model's tiles -------------------------------------------------- */

struct weft_g_model {
    struct weft_rt *rt;
    const char *name;        /* "actor": in messages and traces */
    struct weft_shape shape; /* partitioned */
    bool trained;            /* has transposed weights and optimizer state */
    struct weft_params fwd, bwd, opt;
};

/* Creates the tiles (zeroed) of a partitioned shape; `name` is borrowed for
 * the model's life. A tied model has no optimizer tiles for its embedding.
 * Release with weft_g_model_release(), also after an error. */
int weft_g_model_init(struct weft_rt *rt, const char *name,
                      const struct weft_shape *shape, bool trained,
                      struct weft_g_model *out, struct weft_err *err);
void weft_g_model_release(struct weft_g_model *model);

/* Adds the bytes that weft_g_model_init() would take, by class. */
void weft_g_model_bytes(const struct weft_shape *shape, bool trained,
                        size_t bytes[WEFT_N_MEM_CLASSES]);

/* The tile of a kind (layer and block where they apply) in a set, or NULL. */
struct weft_tile *weft_g_params_tile(const struct weft_params *params,
                                     enum weft_tile_kind kind, int32_t layer,
                                     int32_t block);

/* ---- Gradients -------------------------------------------------------- */

/* Accumulators for G gradient groups on dp devices: each device has as many
 * sets as its share of the tree over groups ever holds at once. */
struct weft_g_grads {
    int32_t n_groups, dp;
    int32_t n_sets[64];          /* per device */
    struct weft_params *set[64]; /* per device: (n_sets) */
};

int weft_g_grads_init(const struct weft_g_model *model, int32_t n_groups,
                      int32_t dp, struct weft_g_grads *out,
                      struct weft_err *err);
void weft_g_grads_release(const struct weft_g_model *model,
                          struct weft_g_grads *grads);
/* Sets that device `d` needs: at most log2(groups it holds) + 1, one more per
 * end that is not aligned. */
int32_t weft_g_grads_needed(int32_t n_groups, int32_t dp, int32_t d);
/* Bytes of all sets together. */
size_t weft_g_grads_bytes(const struct weft_shape *shape, int32_t n_groups,
                          int32_t dp);

/* ---- Inference -------------------------------------------------------- */

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

/* One packed micro-batch of n samples through the model. */
void weft_g_infer(struct weft_seq *seq, const struct weft_where *where,
                  const struct weft_g_model *model,
                  enum weft_g_infer_kind kind, float inv_temperature,
                  int32_t n, const struct weft_g_infer_sample *sample);

/* ---- Training --------------------------------------------------------- */

struct weft_g_train {
    const struct weft_g_model *model;
    const struct weft_g_grads *grads;
    struct weft_loss_args loss;
    struct weft_k_adamw adamw;
    float grad_clip;
    int32_t micro_batch_rows;
    bool recompute;
    enum weft_call call;
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

/* Activation bytes of one micro-batch of n_rows rows in flight. */
size_t weft_g_train_bytes(const struct weft_shape *shape, int64_t n_rows,
                          bool recompute);

/* One optimizer step on a mini-batch of n samples: deals them to gradient
 * groups, groups to devices and micro-batches, submits forward and backward,
 * the tree over groups, the norm and AdamW. stats_out (capacity n) receives
 * *n_stats_out entries; norm_out the tile of struct weft_grad_norm (the
 * caller releases it). Submits; does not wait. Errors: WEFT_ENOMEM. */
int weft_g_train_step(struct weft_seq *seq, const struct weft_g_train *train,
                      int32_t n, const struct weft_pack_sample *sample,
                      struct weft_g_stats *stats_out, int32_t *n_stats_out,
                      struct weft_tile **norm_out, struct weft_err *err);

/* ---- Generation ------------------------------------------------------- */

struct weft_g_generate {
    const struct weft_g_model *model;
    int32_t n_instances, n_slots, max_total;
    struct weft_g_instance {
        struct weft_tile *state, *arena;
        struct weft_tile *status[2]; /* of even and odd chunks */
        int64_t n_chunks;            /* submitted so far */
    } * instance;
};

/* Tiles of n_instances replicas, instance i on device i. The states must then
 * be cleared by the caller (weft_gen_state_clear). */
int weft_g_generate_init(const struct weft_g_model *model,
                         int32_t n_instances, int32_t n_slots,
                         int32_t max_total, struct weft_g_generate *out,
                         struct weft_err *err);
void weft_g_generate_release(struct weft_g_generate *gen);
/* Bytes of one instance's KV arena. */
size_t weft_g_generate_kv_bytes(const struct weft_shape *shape,
                                int32_t n_slots, int32_t max_total);

/* Submits the next chunk of an instance; its status goes to
 * instance->status[chunk % 2]. */
void weft_g_generate_chunk(struct weft_seq *seq, struct weft_g_generate *gen,
                           int32_t instance, const struct weft_gen_args *args,
                           int32_t n_admit,
                           const struct weft_gen_admit *admit);
/* The sample in `slot` is finished: into its rollout tile. */
void weft_g_generate_retire(struct weft_seq *seq,
                            const struct weft_g_generate *gen,
                            int32_t instance, int32_t slot, int32_t iteration,
                            struct weft_tile *rollout);

#endif
