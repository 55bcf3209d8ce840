/* SPDX-License-Identifier: Apache-2.0 */
/* What rollout.c and rollout_turns.c know of one another. */
#ifndef WEFT_LM_ROLLOUT_INSIDE_H
#define WEFT_LM_ROLLOUT_INSIDE_H

#include "lm/migration.h"
#include "lm/rollout.h"

/* An instance of which only the lengths are known. */
struct weft_rollout_played {
    struct weft_gen_play *play;
    struct weft_gen_status *status[2]; /* after the last two chunks */
};

struct weft_rollout_control {
    struct weft_seq *seq;
    struct weft_events *events; /* NULL: none are told here */
    struct weft_g_generate *gen;
    const struct weft_g_view *view;
    struct weft_gen_args args;
    int32_t first; /* instance, of those of all jobs */
    int32_t n, next, n_finished, most;
    struct weft_sample *sample;
    const int32_t *order; /* (n) or NULL */
    int32_t *slot;        /* (n_instances, n_slots): sample or -1 */
    int32_t *in_flight;   /* (n_instances): chunks whose status is unread */
    int32_t *n_read;      /* (n_instances): steps of chunks whose status was
                              read */
    int32_t *n_steps;     /* (n_instances, 2): of the last two chunks */
    int32_t n_taken;      /* of the chunk whose status was taken last */
    int32_t *has;         /* (n) tokens of a sample, as read last */
    struct weft_migration migration;
    int32_t n_leaving;    /* samples on instances that are freed of them */
    int32_t *pages_moved; /* (n_instances, 2) of caches that have left, and
                             that have come */
    struct weft_tile **there; /* (n_instances, 2): copies of statuses at the
                                 first place; NULL: it is their own place */
    struct weft_gen_admit *admit; /* (n_slots) */
    int64_t n_before_tail; /* chunks of an instance, before few were left */
    struct weft_rollout_played
        *played;      /* (n_instances) of a recording; else NULL */
    int32_t *n_total; /* (n) of it: the samples' lengths */
    struct weft_work_rows
        *step;                  /* (args.n_steps) of it: those of the chunk */
    struct weft_timeline *seen; /* NULL: nobody asks */
    weft_rollout_fn on_finished;
    weft_rollout_turn_fn on_turn;
    weft_rollout_busy_fn on_busy;
    void *ctx;
    struct weft_rollout_stats stats;
    struct weft_err *err;
};

int weft_rollout_control_init(struct weft_seq *seq,
                              const struct weft_rollout_job *job,
                              struct weft_err *err,
                              struct weft_rollout_control *c);
void weft_rollout_control_release(struct weft_rollout_control *c);
/* Submits the first two chunks of every instance, which share the samples. */
int weft_rollout_start(struct weft_rollout_control *c);
/* Takes the oldest unread status of an instance; out: the status, where this
 * rank reads it. */
void weft_rollout_take(struct weft_rollout_control *c, int32_t instance,
                       struct weft_gen_status *out);
/* Acts on the status that was taken last. */
int weft_rollout_advance(struct weft_rollout_control *c, int32_t instance,
                         const struct weft_gen_status *status);

/* Samples of an instance, and a slot that is free, if one is. */
int32_t weft_rollout_running(const struct weft_rollout_control *c,
                             int32_t instance, int32_t *free_slot_out);

/* Note, where that is wanted, a chunk whose status was acted on, with what the
 * instance and all had before; a sample that moves between instances; that this
 * was decided. */
void weft_rollout_see_chunk(struct weft_rollout_control *c, int32_t instance,
                            const struct weft_gen_status *status,
                            int32_t samples, int32_t n_finished);
void weft_rollout_see_move(struct weft_rollout_control *c, int32_t sample,
                           int32_t from, int32_t to);
void weft_rollout_see_trigger(struct weft_rollout_control *c, int32_t n_left);

#endif
