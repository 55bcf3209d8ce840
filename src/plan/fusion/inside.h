/* SPDX-License-Identifier: Apache-2.0 */
/* Of overlap.h, between its files: the state of a simulation. */
#ifndef WEFT_PLAN_FUSION_INSIDE_H
#define WEFT_PLAN_FUSION_INSIDE_H

#include "plan/fusion/overlap.h"

/* A sample on its way. Those of an instance are in two lists: of those that are
 * active, in the order in which they began, and of those that have not. */
struct weft_overlap_state {
    int32_t instance, has;
    int32_t cached; /* tokens in its instance's KV cache ... */
    int32_t ready;  /* ... when the last step began */
    int32_t common; /* of those cached, what its prompt's `held` counts */
    int32_t prompt; /* its record; -1: it shares none */
    int32_t next;   /* in its list; -1: none */
    double ready_s; /* from when on its instance can begin it */
    double end_s;   /* -1: it has not ended */
};

/* A prompt that samples of an instance share. */
struct weft_overlap_prompt {
    int32_t instance;
    int32_t next; /* record of the same prompt elsewhere; -1: none */
    int32_t kept; /* tokens that one which has ended left, where there is room
                     that nobody wants */
    int32_t held; /* tokens that samples have in common ... */
    int32_t n_uses; /* ... of which so many have not ended */
};

/* Numbers of samples; -1: none. */
struct weft_overlap_list {
    int32_t first, last;
};

/* Samples that are active have a slot; where the memory has run out some wait
 * there, with nothing cached. */
struct weft_overlap_instance {
    double now_s;
    struct weft_overlap_list active, queue;
    int32_t n_active, slots;
    double held; /* tokens cached of all, those in common once */
};

/* It can be copied, and both go on as one would. */
struct weft_overlap_run {
    const struct weft_overlap_job *job;
    struct weft_overlap_state *state;       /* (n_samples) */
    struct weft_overlap_instance *instance; /* (n_instances) */
    double *free_s;  /* (n_instances) from when on it can infer; -1: it still
                        generates */
    int32_t *record; /* (n_samples + 1) the first of each prompt's records */
    struct weft_overlap_prompt *prompt; /* (n_prompts) records */
    int32_t n_prompts;
    double room;         /* tokens that an instance can hold */
    int32_t other_batch; /* to be tried in place of BS_max ... */
    bool matters;        /* ... as it would be another choice */
    struct weft_overlapped out;
};

/* Without its samples: begin or copy it. Release it also after an error.
 * Errors: WEFT_ENOMEM. */
int weft_overlap_run_init(struct weft_overlap_run *run,
                          const struct weft_overlap_job *job,
                          struct weft_err *err);
void weft_overlap_run_release(struct weft_overlap_run *run);
/* All samples wait where the job says. */
void weft_overlap_run_begin(struct weft_overlap_run *run);
/* Of the same job. */
void weft_overlap_run_copy(struct weft_overlap_run *run,
                           const struct weft_overlap_run *from);

/* Goes on with an instance until it has nothing left, or to the end of the
 * first step that ends at stop_s or later. */
void weft_overlap_generate(struct weft_overlap_run *run, int32_t instance,
                           double stop_s);
/* Puts a sample, which is in no list, at the end of its instance's queue. */
void weft_overlap_queue(struct weft_overlap_run *run, int32_t sample);

/* Inference by workers that are free from free_s on; sets all_s and
 * infer_s. */
int weft_overlap_infer(struct weft_overlap_run *run, struct weft_err *err);

/* ---- Many simulations that begin alike ---------------------------------- */

/* Of a job, with the same first migrations, as many as n_before, and then each
 * with others: the trunk is what they have in common, and goes on with the
 * latest of them, so that those whose next migration comes later are best tried
 * later. */
struct weft_overlap_trial {
    struct weft_overlap_run start; /* after the first migrations */
    struct weft_overlap_run trunk; /* the same, later: at_s */
    struct weft_overlap_run ended; /* the same without any more */
    struct weft_overlap_run run;   /* the one that is tried */
    struct weft_overlap_run spare;
    int32_t n_before;
    bool goes_on; /* the first migrations all came */
    double at_s;
    /* (2 n_samples) when samples end with the first migrations alone, ascending;
     * and scratch */
    double *end_s;
};

/* Release it also after an error. Errors: those of weft_overlap_simulate(). */
int weft_overlap_trial_init(struct weft_overlap_trial *trial,
                            const struct weft_overlap_job *job,
                            int32_t other_batch, struct weft_err *err);
void weft_overlap_trial_release(struct weft_overlap_trial *trial);
/* Begins with the first n migrations of `when`. */
int weft_overlap_trial_begin(struct weft_overlap_trial *trial,
                             const struct weft_overlap_when *when, int32_t n,
                             struct weft_err *err);
/* Generates all samples with the migrations of `when`, of which the first are
 * those that it was begun with; sets generated_s and n_stay of run.out. */
int weft_overlap_trial_generate(struct weft_overlap_trial *trial,
                                const struct weft_overlap_when *when,
                                struct weft_err *err);
/* And then the rest of run.out. */
int weft_overlap_trial_infer(struct weft_overlap_trial *trial,
                             struct weft_err *err);

#endif
