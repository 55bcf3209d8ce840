/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of a run (struct weft_trainer of weft.h): its models as tiles,
 * its data and its state. trainer.c opens and closes it, iteration.c runs an
 * iteration, checkpoint.c writes and reads the state.
 */
#ifndef WEFT_RUN_TRAINER_H
#define WEFT_RUN_TRAINER_H

#include "model/arch.h"
#include "text/dataset.h"
#include "text/renderer.h"
#include "text/tokenizer.h"
#include "config/config.h"
#include "plan/dataflow.h"
#include "plan/lengths.h"
#include "graphs/algorithms.h"
#include "graphs/calls/gather.h"
#include "graphs/calls/calls.h"
#include "reward/reward.h"
#include "record/metrics.h"
#include "record/samples.h"
#include "lm/rollout.h"
#include "lm/stops.h"
#include "job/inputs.h"
#include "run/prompts.h"
#include "run/predict/replay.h"

/* One of the run's models. */
struct weft_run_model {
    struct weft_arch arch;
    struct weft_g_model tiles;
    struct weft_g_grads grads; /* of trained models */
    struct weft_g_gather *gather;
    int32_t role; /* in the dataflow graph */
    int32_t home; /* the call whose layout its tiles have */
    const struct weft_optimizer_config *optim; /* of trained models */
    int64_t steps; /* done by the optimizer, or by a frozen model towards the
                      one that it follows; state of the run, which
                      checkpoints contain */
    char *folder;  /* from which its weights were read */
    bool open;
    bool offload; /* frozen: its tiles are released between uses */
    struct weft_g_model host; /* if so: the copies that they are made of */
};

/* A row of the data, tokenised. */
struct weft_run_prompt {
    int32_t *token;
    int32_t n, n_prompt;        /* n > n_prompt: with a response */
    struct weft_range *learned; /* (n_ranges) tokens that are learned;
                                   NULL: all that follow the prompt */
    int32_t n_ranges, n_learned;
    size_t row;  /* in the data set */
    float label; /* KTO: 1 is desirable; a pair's margin */
};

struct weft_trainer {
    struct weft_config config;
    struct weft_settings settings; /* what the configuration makes of the
                                      algorithm */
    struct weft_context *context;
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_plan plan;
    struct weft_g_job job;
    struct weft_dataflow flow;
    struct weft_g_layout layout[WEFT_MAX_CALLS];
    struct weft_g_order order_of_tasks;

    struct weft_run_model model[WEFT_MAX_ROLES];
    struct weft_tokenizer *tokenizer;
    struct weft_renderer renderer;
    struct weft_dataset *data;
    int32_t n_prompts;
    struct weft_run_prompt *prompt; /* a pair's two follow one another */
    int32_t max_prompt;
    bool warned_cut; /* that a conversation does not begin with its prompt */

    int32_t end;             /* id that SFT appends to a plain response */
    struct weft_stops stops; /* what ends a response */
    struct weft_g_generate gen[WEFT_MAX_CALLS]; /* of calls that generate */
    struct weft_tile *kl_state;
    struct weft_rewards *rewards;
    struct weft_reward_text
        *reward_text[WEFT_MAX_REWARDS]; /* reward_text.h; NULL: none */
    struct weft_tile *reward_moments[WEFT_MAX_REWARDS]; /* reward_state.h */

    /* State of the run, which checkpoints contain. */
    int64_t drawn;        /* prompts, also of an iteration that has begun */
    int32_t iteration;    /* iterations finished so far ... */
    int32_t began;        /* ... and when this process started ... */
    int32_t n_iterations; /* ... of so many */
    uint32_t *order;      /* permutation of the prompts ... */
    int64_t order_epoch;  /* ... of this epoch; -1: none yet */

    const struct weft_trainer_opening *opening; /* while it opens */
    struct weft_recording
        *log;   /* notes what is inserted; NULL: nobody asks */
    bool gangs; /* its memory is counted by instructions of tp groups */
    int64_t most_recorded_bytes; /* for that, of a recording; 0: no limit */
    struct weft_replays replays; /* iterations to record as they ran */
    bool in_turn; /* generation's statuses are read in turn, for tests */
    const struct weft_recorded *recorded; /* of a run that is recorded only */
    struct weft_fuse *fuse; /* schedules of fused training; fuse/fuse.h */
    struct weft_iteration
        *next; /* next iteration if its generation has begun */
    struct weft_ahead
        *ahead; /* its samples, from a checkpoint (run/ahead.h); NULL: none */

    struct weft_scorer *scorer;  /* run/scorer.h; NULL: none */
    struct weft_known *known;    /* costs (run/predict/known.h); NULL: none */
    struct weft_again *again;    /* run/predict/again.h; NULL: nothing yet */
    struct weft_lengths lengths; /* rollout.lengths; else the most */
    struct weft_tail
        *tail; /* when samples move (run/tail.h); NULL: nothing is chosen */
    struct weft_times_noted {
        int32_t n;       /* iterations since this process began */
        int64_t n_tasks; /* of the last simulation */
    } noted;             /* run/predict/times.h */
    bool planned;        /* the run before had its plan found */
    struct weft_metrics *metrics;
    struct weft_metrics_writer *metrics_writer;
    double last_save_s;
    bool scores_were_equal;        /* in the last iteration, with a warning */
    struct weft_inputs *inputs;    /* the files that the run reads */
    struct weft_manifest *resumed; /* of the checkpoint, while opening */
    int lock;                      /* of the run directory; 0: not held */
    char *made_dir; /* topmost folder that the run created, or NULL */
};

/* A run that is described, and neither starts a runtime nor leaves anything:
 * recordings are made of it (run/predict/recorded.h). Reads models' folders and
 * data as a run would; plan->n_nodes 0: makes a plan. Configuration and plan
 * stay the caller's, who keeps them until weft_trainer_forget(); what the plan
 * gets in between is in (*out)->plan. Errors: those of weft_trainer_open(). */
int weft_trainer_describe(const struct weft_config *config,
                          const struct weft_g_job *job,
                          const struct weft_plan *plan,
                          struct weft_trainer **out, struct weft_err *err);
void weft_trainer_forget(struct weft_trainer *t);
/* Sets plan->memory to the most memory that a run of the configuration needs
 * on such a job; *gangs: counted by instructions of tp groups, which is quicker
 * and no bound (run/predict/recorded.h). So it is, and *gangs set, where tasks
 * recorded one by one take more than most_bytes (0: WEFT_PREDICT_BYTES), three
 * to four times which are needed. Reads models' folders and data as the run
 * would, but starts no runtime. Errors: those of weft_trainer_open(). */
enum { WEFT_PREDICT_BYTES = 1 << 28 };
int weft_trainer_predict(const struct weft_config *config,
                         const struct weft_g_job *job, bool *gangs,
                         int64_t most_bytes, struct weft_plan *plan,
                         struct weft_err *err);

/* What a run has to do with others while it opens; all may be NULL. */
struct weft_trainer_opening {
    struct weft_recording
        *log; /* notes beside running what this rank inserts;
                                   read it after closing */
    /* told on all ranks that rank 0 searches for a plan (plan: auto), and that
     * it has ended, if it was not stopped */
    void (*searches)(bool begins);
    bool (*stop)(
        void *ctx); /* asked meanwhile, of rank 0, whether to give up */
    void *ctx;
};

/* weft_trainer_open() with these, which are the caller's. Errors: those of it;
 * WEFT_EINTERRUPTED where `stop` said so. */
int weft_trainer_open_with(const char *config, int n_override,
                           const char *const *override,
                           const struct weft_trainer_opening *opening,
                           struct weft_trainer **out, struct weft_err *err);

/* The tiles of models, generation and state, and the schedules' order: needs
 * a runtime, layouts and prompts. Release also after an error. */
int weft_trainer_create_tiles(struct weft_trainer *t, struct weft_err *err);
void weft_trainer_release_tiles(struct weft_trainer *t);

/* The layout of every call by t->plan. Errors: those of weft_g_layout_init(),
 * of weft_migration_check(). */
int weft_trainer_lay_out(struct weft_trainer *t, struct weft_err *err);
/* Whether another plan gives a role's tiles another home. */
bool weft_trainer_moves(const struct weft_trainer *t,
                        const struct weft_plan *plan, int32_t role);
/* Goes on by another plan, which was checked for the job, between iterations:
 * numbers stay what they are. Of a next one that has begun the samples are kept
 * (run/ahead.h). Instances are made anew, and models whose home changes move
 * one after the other; meanwhile there are both copies of one. Takes the plan
 * over, also after an error. Collective. Errors: those of creating tiles, after
 * which the run cannot go on. */
int weft_trainer_change_plan(struct weft_trainer *t, struct weft_plan *plan,
                             struct weft_err *err);

/* Between these two calls the tiles of a frozen model hold its weights. If the
 * model is offloaded, begin submits tasks that copy them from the host when
 * devices have nothing else to do, and end releases the tiles after their last
 * use. Otherwise both do nothing. */
int weft_trainer_model_begin(struct weft_trainer *t, struct weft_run_model *m,
                             int32_t iteration, struct weft_err *err);
void weft_trainer_model_end(struct weft_trainer *t, struct weft_run_model *m,
                            int32_t iteration);

/* The tiles that keep a model's weights between uses. */
WEFT_INLINE const struct weft_g_model *weft_trainer_weights(
    const struct weft_run_model *m)
{
    return m->offload ? &m->host : &m->tiles;
}

/* Replaces a tile by its copy at the first place, where rank 0 reads. */
void weft_trainer_fetch(struct weft_trainer *t, struct weft_tile **tile);

/* Whether its mini-batches train as their samples complete. */
bool weft_trainer_as_completed(const struct weft_trainer *t);
/* Warns where they do not, though the configuration says so. */
void weft_trainer_tell_order(const struct weft_trainer *t);
int weft_iteration_run(struct weft_trainer *t, struct weft_err *err);
/* The prompts that finished iterations have drawn. */
int64_t weft_trainer_drawn(const struct weft_trainer *t);
/* Frees the next iteration, if its generation has begun. */
void weft_iteration_forget(struct weft_trainer *t);

#endif
