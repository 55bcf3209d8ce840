/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run recorded without running: the training loop inserts its iterations
 * into a recorder (weft_rt_record()). What the loop would learn from tiles and
 * from outside while it inserts is the samples' lengths; here they are given.
 */
#ifndef WEFT_RUN_PREDICT_RECORDED_H
#define WEFT_RUN_PREDICT_RECORDED_H

#include "plan/recording.h"
#include "run/seen.h"
#include "run/tail.h"
#include "run/trainer.h"

struct weft_recorded {
    int rank;   /* whose tasks; -1: of all ranks */
    bool saves; /* a checkpoint at the end */
    bool gangs; /* instructions of tp groups, not what they expand to */
    /* as of struct weft_record_options */
    int32_t joined_steps;
    const bool *left_out;
    /* whose tasks are recorded, a set of calls; 0: all. Samples that others
     * would make are there from the beginning. */
    uint32_t calls;
    int32_t first, iterations;
    int64_t drawn; /* prompts before the first iteration */
    /* (iterations, rollout.refills + 1, samples of all sets) tokens of every
     * sample of every round of generation, prompt included, 0 if it is not
     * generated in that round; NULL: every prompt is the longest of the data,
     * and every sample goes to its limit, which gives the most micro-batches */
    const int32_t *n_total;
    /* (n_orders) the first iterations' orders of statuses; others' are not
     * known */
    const struct weft_rollout_order *order;
    int32_t n_orders;
    bool responses; /* n_total is without the prompts */
    /* (iterations, rewards, samples of all sets) tokens of the texts that
     * reward models with a tokenizer of their own read; NULL: the most that
     * they read */
    const int32_t *n_text;
    /* (iterations, and the next one where it begins, WEFT_MAX_CALLS) when
     * samples move, as it was decided; NULL: it is chosen with these costs,
     * which weft_run_record() frees; both NULL: as without costs */
    const struct weft_tail_choice *tail;
    struct weft_costs *costs;
    /* (iterations) filled in where costs are given: what weft_tail_bound()
     * says; NULL: not wanted */
    double *bound_s;
    /* a run's, which are made again as far as its configuration says none;
     * NULL: none */
    const char *decisions;
    struct weft_seen
        *seen; /* filled in, of one iteration; NULL: not wanted */
    int32_t seen_iteration;
    /* of fused training; NULL: they are searched for */
    const struct weft_fuse_planned *fused;
};

/* Records iterations of the run that `t` describes: needs configuration,
 * architectures, prompts and layouts, but no runtime. Errors: WEFT_ENOMEM,
 * those of a schedule's file; WEFT_EINTERRUPTED where out->stop said so. */
int weft_run_record(const struct weft_trainer *t,
                    const struct weft_recorded *how,
                    struct weft_recording *out, struct weft_err *err);

/* Whether a recording is made with unknown lengths: micro-batches then get the
 * largest size there can be. */
static inline bool weft_run_bounds(const struct weft_trainer *t)
{
    return t->recorded && !t->recorded->n_total;
}

/* Whether a call's tasks are inserted: all are in a run. */
static inline bool weft_run_inserts(const struct weft_trainer *t,
                                    int32_t call)
{
    return !t->recorded || !t->recorded->calls
        || t->recorded->calls >> call & 1;
}

/* Records an iteration that ran, as it was, and what the next one began
 * with. rank: as in struct weft_recorded. */
int weft_run_record_again(const struct weft_trainer *t,
                          const struct weft_replay *replay, int rank,
                          struct weft_recording *out, struct weft_err *err);

/* Records an iteration in which all that can overlap does, with the largest
 * micro-batches and the most of them that there can be. Errors: those of
 * weft_run_record(); WEFT_ENOMEM, too, where it takes more than
 * out->most_bytes. */
int weft_run_record_bound(const struct weft_trainer *t, bool gangs,
                          struct weft_recording *out, struct weft_err *err);

#endif
