/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a run (struct weft_trainer of weft.h): its models as tiles,
 * its data, and where it stands. ppo.c and sft.c advance it by an iteration,
 * checkpoint.c writes and reads its state, trainer.c opens and closes it.
 */
#ifndef WEFT_RUN_TRAINER_H
#define WEFT_RUN_TRAINER_H

#include "graphs/gather.h"
#include "graphs/graphs.h"
#include "model/arch.h"
#include "model/dataset.h"
#include "model/tokenizer.h"
#include "run/config.h"
#include "run/inputs.h"
#include "run/metrics.h"
#include "run/prompts.h"
#include "run/renderer.h"
#include "run/reward.h"
#include "run/rollout.h"
#include "run/samples.h"

/* One of the run's models. */
struct weft_run_model {
    struct weft_arch arch;
    struct weft_g_model tiles;
    struct weft_g_grads grads; /* trained models */
    struct weft_g_gather *gather;
    enum weft_call home;         /* the call whose layout its tiles have */
    struct weft_g_layout layout; /* reward models: of the call they share */
    char *folder;                /* where its weights came from */
    bool open;
    bool offload; /* no memory holds it between uses */
};

/* A row of the data, tokenised. */
struct weft_run_prompt {
    int32_t *token;
    int32_t n, n_prompt; /* sft: prompt and response; else n == n_prompt */
    size_t row;          /* in the data set */
};

struct weft_trainer {
    struct weft_config config;
    struct weft_context *context;
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_plan plan;
    struct weft_g_job job;
    struct weft_g_layout layout[WEFT_N_CALLS]; /* of the calls it makes, but
                                                  REWARD_INFER */
    struct weft_g_order order_of_tasks;

    struct weft_run_model actor, critic, reference;
    struct weft_run_model reward[WEFT_MAX_REWARDS]; /* type: model */
    struct weft_tokenizer *tokenizer;
    struct weft_renderer renderer;
    struct weft_dataset *data;
    int32_t n_prompts;
    struct weft_run_prompt *prompt;
    int32_t max_prompt;
    bool warned_cut; /* of conversations that change their prompts */

    int32_t end; /* what SFT puts after a plain response */
    int32_t n_stop;
    int32_t stop[16]; /* ids that end a response */
    struct weft_g_generate gen;
    struct weft_tile *kl_state;
    struct weft_rewards *rewards;

    /* State of the run: all of it is in a checkpoint. */
    int32_t iteration; /* finished so far ... */
    int32_t began;     /* ... when this process took it up */
    int64_t actor_steps, critic_steps;
    uint32_t *order;     /* permutation of the prompts ... */
    int64_t order_epoch; /* ... of this epoch; -1: none yet */

    struct weft_recording
        *log; /* notes what is inserted; NULL: nobody asks */
    const struct weft_recorded *recorded; /* of a run that is recorded only */
    struct weft_fuse *fuse; /* schedules of fused training; run/fuse.h */
    struct weft_ppo *next;  /* the next iteration, generated ahead; or NULL */

    struct weft_metrics *metrics;
    struct weft_metrics_writer *metrics_writer;
    double last_save_s;
    bool scores_were_equal;     /* in the last iteration, and that was said */
    struct weft_inputs *inputs; /* the files it reads */
    struct weft_manifest *resumed; /* from whose checkpoint, while opening */
    int lock;                      /* of the run directory; 0: not held */
    char *made_dir; /* highest folder made for the run directory; or NULL */
};

/* Fills plan->memory with what a run of the configuration on such a job will
 * take at most. Nothing is started; models' folders and data are read, as the
 * run would. Errors: those of opening a run. */
int weft_trainer_predict(const struct weft_config *config,
                         const struct weft_g_job *job, struct weft_plan *plan,
                         struct weft_err *err);

/* weft_trainer_open() of a run that notes beside running what this rank
 * inserts. `log` is the caller's, who reads it after closing. */
int weft_trainer_open_logged(const char *config, int n_override,
                             const char *const *override,
                             struct weft_recording *log,
                             struct weft_trainer **out, struct weft_err *err);

/* The tiles of models, generation and state, and the schedules' order: needs
 * a runtime, layouts and prompts. Release also after an error. */
int weft_trainer_create_tiles(struct weft_trainer *t, struct weft_err *err);
void weft_trainer_release_tiles(struct weft_trainer *t);

/* The prompt that the run's k-th draw takes (epochs of permutations). */
const struct weft_run_prompt *weft_trainer_draw(struct weft_trainer *t,
                                                int64_t k);

/* A frozen model's weights are there between these two: an offloaded one is
 * read from its folder (the operating system's memory, if it is still there)
 * while other calls run, and gives its tiles back at the end; otherwise
 * nothing happens. A folder that cannot be read fails the sequence. */
int weft_trainer_model_begin(struct weft_trainer *t, struct weft_run_model *m,
                             struct weft_err *err);
void weft_trainer_model_end(struct weft_trainer *t, struct weft_run_model *m);

/* The layout of a call with a model: reward models, which may differ in
 * layers and blocks, have one each. */
const struct weft_g_layout *weft_trainer_layout(
    const struct weft_trainer *t, enum weft_call call,
    const struct weft_run_model *m);

/* Replaces a tile by its copy at the first place, where rank 0 reads. */
void weft_trainer_fetch(struct weft_trainer *t, struct weft_tile **tile);

/* AdamW's settings at optimizer step `step` (from 0) out of n_steps, which
 * the learning rate depends on. */
struct weft_k_adamw weft_adamw_at(const struct weft_optimizer_config *o,
                                  int64_t step, int64_t n_steps);

int weft_ppo_iteration(struct weft_trainer *t, struct weft_err *err);
/* Drops what was generated ahead. */
void weft_ppo_forget(struct weft_trainer *t);
int weft_sft_step(struct weft_trainer *t, struct weft_err *err);

#endif
