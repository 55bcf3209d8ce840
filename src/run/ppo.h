/* SPDX-License-Identifier: Apache-2.0 */
/* One PPO iteration's working state, shared by ppo.c and ppo_metrics.c. */
#ifndef WEFT_RUN_PPO_H
#define WEFT_RUN_PPO_H

#include "run/trainer.h"

/* Tiles of one sample beside its rollout, where they are made. */
struct weft_ppo_sample {
    struct weft_tile *ref, *value, *advantage, *score;
    struct weft_tile *model_score[WEFT_MAX_REWARDS];
    struct weft_external *answer; /* fills `score`; NULL once completed */
    /* The same at the first place, where rank 0 reads them; borrowed. */
    struct {
        struct weft_tile *rollout, *ref, *value;
        struct weft_tile *model_score[WEFT_MAX_REWARDS];
    } home;
};

/* An inference call on samples as they finish. */
struct weft_ppo_call {
    enum weft_call call;
    struct weft_run_model *model;
    int32_t reward; /* its number; -1: none */
    bool open;      /* the view */
    struct weft_g_view view;
    int32_t *waiting; /* (n) finished, not yet in a micro-batch */
    int32_t n_waiting, waiting_rows;
    int32_t n_flushed; /* micro-batches */
};

/* What a sample says, decoded. */
struct weft_ppo_text {
    struct weft_row row;
    struct weft_str prompt, response;
    int32_t n_tokens;
    bool ended;
};

/* What a training call left to be read. */
struct weft_ppo_update {
    struct weft_g_stats *stats; /* (n_stats) of all micro-batches */
    int32_t n_stats;
    struct weft_tile **norm; /* (n_norms) one per optimizer step */
    int32_t n_norms;
    int32_t first_stats; /* entries of the very first step */
    double lr;
};

struct weft_ppo {
    struct weft_trainer *t;
    int32_t iteration, n;
    struct weft_sample *sample;            /* (n) */
    struct weft_ppo_sample *extra;         /* (n) */
    const struct weft_run_prompt **prompt; /* (n) */
    struct weft_rollout_stats rollout;
    struct weft_tile *moments;
    struct weft_tile **advantage; /* (n) in index order */
    struct weft_ppo_update actor_update, critic_update;
    struct weft_ppo_text *text;       /* (n) from the rewards on */
    double (*part)[WEFT_MAX_REWARDS]; /* (n) unweighted rewards */
    struct weft_g_view actor;         /* weights as generation sees them */
    struct weft_ppo_call call[2 + WEFT_MAX_REWARDS];
    int32_t n_calls;
    struct weft_g_copies *copies;
    double start_s;           /* of the iteration's own turn, see below */
    struct weft_span rewards; /* weft_ppo_rewards(), on the runtime's clock */
    struct weft_call_time time[WEFT_N_CALLS]; /* of all ranks */
    struct weft_err *err;
};

float weft_ppo_inv_temperature(const struct weft_config *config);

/* Inference calls of the iteration, before generation. */
int weft_ppo_calls_init(struct weft_ppo *p);
/* A sample is finished: it joins the micro-batches of all calls, which are
 * submitted as they fill. */
int weft_ppo_calls_add(struct weft_ppo *p, int32_t index);
/* Submits what waits; the calls need their weights no more. */
int weft_ppo_calls_end(struct weft_ppo *p);
void weft_ppo_calls_release(struct weft_ppo *p);

/* Submits all epochs and mini-batches of actor and critic, a mini-batch of
 * each in turn, or both fused into one schedule; waits while too many of them
 * have not ended (train.mini_batches_ahead), so the rewards must be there. */
int weft_ppo_train(struct weft_ppo *p);
void weft_ppo_update_release(struct weft_ppo_update *update);

/* Computes the rewards that are not models' (rules, programs, callback) and
 * lets the graph go on. On an error answers are still owed. */
int weft_ppo_rewards(struct weft_ppo *p);
void weft_ppo_texts_release(struct weft_ppo *p);

/* Seconds of one batch of samples. Its generation may run while the batch
 * before it trains, so that `step`, from its first task of generation to its
 * last one of training, is longer than its turn: the time between the ends of
 * two iterations. Calls lie inside of `step`, from their first task to their
 * last; `adv` and `gen_work` are the work of tasks, summed over devices. */
struct weft_ppo_times {
    double gen, gen_work, reward, ref, values, adv;
    double update_critic, update_actor, step;
};
/* time: the batch's, of all ranks; rewards: of the host. */
void weft_ppo_times_get(const struct weft_call_time time[WEFT_N_CALLS],
                        const struct weft_span *rewards,
                        struct weft_ppo_times *out);

/* Reads tiles of the finished iteration into the trainer's metrics, and
 * writes samples. The sequence must have been waited for. Rank 0 alone. */
int weft_ppo_report(struct weft_ppo *p);

#endif
