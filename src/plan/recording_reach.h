/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tasks of a recording have ended before others begin, whatever the
 * order in which devices come to run them. What always holds is
 *
 *     data        a task waits for those whose accesses come before its own
 *                 (struct weft_rec_order)
 *     positions   tasks of a device and chain that have positions run in
 *                 their order
 *     waits       what the program inserts after a wait runs after what it
 *                 waited for
 *
 * Priorities and the order of insertion do not: a task that is not ready lets
 * later ones pass.
 *
 * The relation is looked at from one place. Its tasks are put into lanes,
 * each of which is a chain of tasks that run one after another: one for each
 * device and chain with positions, and others that are found task by task. A
 * task then has, for every lane, the number of tasks at its beginning that
 * have ended before it begins, itself included; and the first task that
 * begins after it has ended. Two numbers say whether a comes before b: it
 * does if in one lane the first after a is not later than the last before b.
 * Lane 0 holds the program's waits.
 */
#ifndef WEFT_PLAN_RECORDING_REACH_H
#define WEFT_PLAN_RECORDING_REACH_H

#include "plan/recording.h"

enum { WEFT_REC_NEVER = INT32_MAX };

struct weft_rec_reach {
    const struct weft_recording *r;
    struct weft_rec_order order;
    int32_t n_ranks, places_per_rank;
    int64_t *first;  /* (n_tasks + 1) begin of a task's predecessors ... */
    int32_t *before; /* ... here */
    int64_t n_before, before_room;
    int32_t *writer; /* (n_waits) last task that writes the wait's tile */
    /* as seen from a place */
    int32_t n_lanes, room_lanes;
    int32_t *lane;        /* (n_tasks) -1: none */
    int32_t *has, *leads; /* (n_tasks, n_lanes) */
    struct weft_rec_lane *open;
    int32_t *of_device; /* (device, chain): lane */
    int32_t n_devices;
};

/* Borrows r. Errors: WEFT_ENOMEM. */
int weft_rec_reach_create(const struct weft_recording *r,
                          int32_t places_per_rank, struct weft_rec_reach *out,
                          struct weft_err *err);
void weft_rec_reach_release(struct weft_rec_reach *reach);

/* Looks from a place. Errors: WEFT_ENOMEM. */
int weft_rec_reach_look(struct weft_rec_reach *reach, int32_t place,
                        struct weft_err *err);
/* For every lane: how many tasks have ended when the task begins; and the
 * number, from 1 on, of the first that begins after its end. */
const int32_t *weft_rec_reach_has(const struct weft_rec_reach *reach,
                                  int64_t task);
const int32_t *weft_rec_reach_leads(const struct weft_rec_reach *reach,
                                    int64_t task);
/* The number of the last wait that was over before so many tasks were
 * recorded; early: of those that are not for tiles. 0: none. */
int32_t weft_rec_reach_wait(const struct weft_rec_reach *reach, int64_t tasks,
                            bool early);

#endif
