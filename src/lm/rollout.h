/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller of generation. It admits prompts to instances, reads the
 * status of chunk k while chunk k + 1 runs, and retires finished samples as
 * soon as it reads that they are.
 */
#ifndef WEFT_LM_ROLLOUT_H
#define WEFT_LM_ROLLOUT_H

#include "graphs/calls/calls.h"
#include "lm/migration.h"
#include "record/timeline.h"

/* The last samples to end are generation's long tail: so many of them. */
#define WEFT_TAIL_SHARE 0.2

struct weft_sample {
    int32_t prompt;            /* index into the caller's prompts */
    int32_t n_prompt, n_total; /* a recorded sample's n_total is given */
    int32_t limit;             /* tokens at most, prompt included */
    const int32_t *token;      /* the prompt's tokens; borrowed */
    bool finished;
    bool ended; /* by a token that ends responses, not by its limit */
    struct weft_tile *rollout; /* set when generation has ended; the caller
                                  releases it */
};

struct weft_rollout_stats {
    int64_t n_decoded, n_prefilled; /* rows */
    int64_t n_shared; /* rows taken from another sample's cache */
    int64_t n_preempted, n_chunks;
    int32_t most_pages; /* in use at one time, of any instance */
    int32_t n_moved;    /* samples that went on with another instance ... */
    int32_t n_cached;   /* ... of these, with their KV cache ... */
    int32_t n_freed;    /* ... and instances that ended before, for it */
    /* steps of the instance that had most; of these, those that it had while
     * no more than WEFT_TAIL_SHARE of the samples were left */
    int64_t n_turns, n_tail_turns;
};

/* Called for each sample when its generation has ended; may insert tasks that
 * read sample->rollout. */
typedef int (*weft_rollout_fn)(void *ctx, int32_t index,
                               struct weft_sample *sample,
                               struct weft_err *err);
/* The chunk that a status is of. */
struct weft_rollout_turn {
    int32_t instance; /* of those of all jobs */
    int32_t own;      /* of its job's */
    /* what has finished by it leaves the instance when the next has come;
     * false: at once, as no other comes, or the instance has no samples while
     * others have: its last chunk does nothing */
    bool more;
    int32_t n_samples; /* that it had */
    int32_t n_steps;
    int64_t n_prefilled; /* tokens that it read */
    double n_tokens;     /* of all its samples, about */
    size_t told_bytes;   /* of a status: who tells more meanwhile, by
                            weft_seq_tell(), does it in messages of so many, as
                            a rank that cannot go on awaits such */
};
/* Called when a status of samples has been acted on. May insert tasks. */
typedef int (*weft_rollout_turn_fn)(void *ctx,
                                    const struct weft_rollout_turn *turn,
                                    struct weft_err *err);
/* Called when an instance has no samples left to generate, or is left to be
 * freed of them, and others generate on (busy: false); and when it has some
 * again. At first all are busy, and in the end they are again. */
typedef void (*weft_rollout_busy_fn)(void *ctx, int32_t instance, bool busy);

/* Clears the states of all instances. Waits. */
void weft_rollout_reset(struct weft_g_generate *gen);

/* One of several generations. */
struct weft_rollout_job {
    struct weft_g_generate *gen;
    const struct weft_g_view *view;
    const struct weft_gen_args *args;
    int32_t n;
    struct weft_sample *sample; /* (n) */
    const int32_t *order;       /* (n) in which they begin; NULL: their own */
    weft_rollout_fn on_finished;
    weft_rollout_turn_fn on_turn; /* NULL: none */
    weft_rollout_busy_fn on_busy; /* NULL: none */
    void *ctx;
    /* When the samples that are left go on with fewer of the layout's
     * replicas. From then on gen->instance[].freed tells of the others'
     * instances, until all samples have ended. */
    struct weft_migration_when migrate;
    struct weft_migrated *migrated; /* what moved is noted there, which the
                                       caller releases; NULL: not wanted */
    int32_t most; /* tokens that a response may have, as far as that knows */
    struct weft_timeline *seen; /* what is done is noted there, by rank 0;
                                     NULL: not wanted */
    struct weft_rollout_stats stats; /* set */
};

/* In which order statuses of chunks were acted on: the instances that had made
 * them, numbered over all jobs. Which of them is first may differ between runs,
 * and with it where samples are generated, but no number that is learned from.
 * Who follows an order does so as long as it lasts, and then reads instances in
 * turn; a recording knows no other way. */
struct weft_rollout_order {
    int32_t *instance; /* (n) */
    int64_t n, room;
    bool follows; /* it is given */
    int64_t next; /* of those that are followed */
};
/* Errors: WEFT_ENOMEM. */
int weft_rollout_order_add(struct weft_rollout_order *o, int32_t instance,
                           struct weft_err *err);
int weft_rollout_order_copy(const struct weft_rollout_order *from,
                            struct weft_rollout_order *out,
                            struct weft_err *err);
void weft_rollout_order_release(struct weft_rollout_order *o);

/* Generates the samples of n jobs at the same time. Rank 0 reads the statuses
 * as they come, and sends each to the others, so that all ranks submit the same
 * tasks. On return all chunks are submitted, but tasks that copy retired
 * samples may still have to run. order: it is followed, or else noted there;
 * NULL: nobody wants it. Collective. */
int weft_rollout_run_all(struct weft_seq *seq, int32_t n,
                         struct weft_rollout_job *job,
                         struct weft_rollout_order *order,
                         struct weft_err *err);

/* The same of one, in an order that nobody wants. */
int weft_rollout_run(struct weft_seq *seq, struct weft_g_generate *gen,
                     const struct weft_g_view *view,
                     const struct weft_gen_args *args, int32_t n,
                     struct weft_sample *sample, weft_rollout_fn on_finished,
                     void *ctx, struct weft_rollout_stats *stats_out,
                     struct weft_err *err);

#endif
