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
    double held;  /* tokens cached of all, those in common once */
    bool touched; /* by the last migration: what it generates then differs */
};

/* What decisions of all runs of a job ask for again and again, as far as it has
 * been asked: of samples of so many tokens. */
struct weft_overlap_known {
    /* 0: not asked; -1: they move as caches; 1: they are read again */
    signed char *reads;
    int32_t *expected; /* 0: not asked; by tokens of the response */
};

/* It can be copied, and both go on as one would. */
struct weft_overlap_run {
    const struct weft_overlap_job *job;
    struct weft_overlap_state *state;       /* (n_samples) */
    struct weft_overlap_instance *instance; /* (n_instances) */
    double *free_s;  /* (n_instances) from when on a migration has freed it;
                        -1: none has */
    int32_t *record; /* (n_samples + 1) the first of each prompt's records */
    struct weft_overlap_prompt *prompt; /* (n_prompts) records */
    int32_t n_prompts;
    double room;                      /* tokens that an instance can hold */
    int32_t other_batch;              /* to be tried in place of BS_max ... */
    bool matters;                     /* ... as it would be another choice */
    struct weft_overlap_known *known; /* borrowed; NULL: it is not kept */
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
void weft_overlap_generate_all(struct weft_overlap_run *run, double stop_s);
/* Puts a sample, which is in no list, at the end of its instance's queue. */
void weft_overlap_queue(struct weft_overlap_run *run, int32_t sample);

/* Errors: WEFT_EINVAL of weft_overlap_simulate(). */
int weft_overlap_check(const struct weft_overlap_job *job,
                       struct weft_err *err);

/* ---- Migrations ---------------------------------------------------------- */

struct weft_overlap_step {
    int32_t n_left, instances; /* n_left: samples, at most */
};

/* The migrations of `when`, in their order; returns how many. */
int32_t weft_overlap_steps(const struct weft_overlap_job *job,
                           const struct weft_overlap_when *when,
                           struct weft_overlap_step out[]);
/* When samples end (n_samples), ascending, of a run that has come to its
 * end. */
void weft_overlap_ends(const struct weft_overlap_run *run, double *out);
/* When the last of those that have ended did. */
double weft_overlap_last_end(const struct weft_overlap_run *run);
/* When no more than so many are left, by what weft_overlap_ends() found; 0:
 * there is no such moment. */
double weft_overlap_when_left(const struct weft_overlap_job *job,
                              const double *end_s, int32_t n_left);
/* Generates until then, and migrates what is left. */
int weft_overlap_migrate(struct weft_overlap_run *run,
                         const struct weft_overlap_step *step, double at_s,
                         int32_t most_batch, struct weft_err *err);

/* ---- Inference ----------------------------------------------------------- */

/* Sets all_s and infer_s; generated_s is known. Errors: WEFT_ENOMEM. */
int weft_overlap_infer(struct weft_overlap_run *run, struct weft_err *err);
/* Seconds that all_s will be, at least. end_s (n_samples): ascending, about when
 * samples end. Errors: WEFT_ENOMEM. */
int weft_overlap_infer_least(const struct weft_overlap_run *run,
                             const double *end_s, double *out,
                             struct weft_err *err);

/* ---- Many simulations that begin alike ---------------------------------- */

/* Of a job, with the same first migrations, as many as n_before, and then each
 * with others: the trunk is what they have in common, and goes on with the
 * latest of them, so that those whose next migration comes later are best tried
 * later. An instance that a migration leaves as it is ends as it does without
 * that migration, so that it is not simulated again. */
struct weft_overlap_trial {
    /* without migrations, to its end, and what its inference takes */
    struct weft_overlap_run whole;
    struct weft_overlap_run start; /* after the first migrations */
    struct weft_overlap_run trunk; /* the same, later: at_s */
    struct weft_overlap_run ended; /* the same without any more, to its end */
    struct weft_overlap_run run;   /* the one that is tried */
    struct weft_overlap_run spare[2];
    int32_t n_before;
    bool goes_on; /* the first migrations all came */
    double at_s;
    /* (3 n_samples) when samples end without migrations, and with the first of
     * them alone, ascending; and scratch */
    double *end_s;
    struct weft_overlap_known known;
    struct weft_overlap_rest
        *rest; /* (n_instances) of the one that is tried */
    int32_t n_rest;
};

/* An instance that is still to be simulated, and how many tokens one of its
 * samples still gets, at most. */
struct weft_overlap_rest {
    int32_t instance, tokens;
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
/* Goes on with the other migrations of `when`; sets n_stay of run.out. From then
 * on run.out.generated_s is what generation takes at least. */
int weft_overlap_trial_migrate(struct weft_overlap_trial *trial,
                               const struct weft_overlap_when *when,
                               struct weft_err *err);
/* Generates what one more instance has left. false: there was none, and all
 * samples have ended. */
bool weft_overlap_trial_generate(struct weft_overlap_trial *trial);
/* weft_overlap_infer_least() and weft_overlap_infer() of the run. */
int weft_overlap_trial_least(const struct weft_overlap_trial *trial,
                             double *out, struct weft_err *err);
int weft_overlap_trial_infer(struct weft_overlap_trial *trial,
                             struct weft_err *err);

#endif
