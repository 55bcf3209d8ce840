/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an iteration's samples were generated, for pictures
 * (record/timeline.h): of each set, in all rounds. A run keeps it of iterations
 * after which checkpoints are due, and of its last one; the newest is in its
 * directory. A recording keeps it of one.
 */
#ifndef WEFT_RUN_SEEN_H
#define WEFT_RUN_SEEN_H

#include "plan/dataflow.h"
#include "record/timeline.h"

struct weft_engine;
struct weft_iteration;
struct weft_recording;

struct weft_seen {
    struct weft_timeline g; /* of the first set; the others' are beside it */
    int32_t n_sets, n_devices;
    int32_t *row_of;                   /* (n_sets, n_devices) -1: none */
    int32_t call[WEFT_TIMELINE_CALLS]; /* that infer */
    int32_t generates[WEFT_MAX_CALLS]; /* (n_sets) the call of each */
};
void weft_seen_release(struct weft_seen *seen);
/* A set's. seen NULL: NULL. */
struct weft_timeline *weft_seen_of(struct weft_seen *seen, int32_t set);

/* Before a round: begins p->seen, where it is wanted, in the first one. Errors:
 * WEFT_ENOMEM. */
int weft_seen_round(struct weft_iteration *p);
/* After it: notes the lengths of its samples. */
void weft_seen_samples(struct weft_iteration *p);
/* Of a run's iteration that has ended: adds what devices inferred, and writes
 * the file. Collective. Errors: WEFT_ENOMEM, those of writing. */
int weft_seen_write(struct weft_iteration *p, struct weft_err *err);
/* Of a recorded iteration that was played: sets all times. Errors:
 * WEFT_ENOMEM. */
int weft_seen_play(struct weft_seen *seen, const struct weft_recording *r,
                   const struct weft_engine *engine, int32_t iteration,
                   struct weft_err *err);

#endif
