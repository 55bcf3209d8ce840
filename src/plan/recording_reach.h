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

/* A lane at the place that is looked from. */
struct weft_rec_lane {
    int32_t n;    /* tasks so far */
    int64_t last; /* the latest of them */
};

struct weft_rec_reach {
    const struct weft_recording *r;
    struct weft_rec_order order;
    int32_t places_per_rank, n_places, n_devices;
    int64_t *first;  /* (n_tasks + 1) begin of a task's predecessors ... */
    int32_t *before; /* ... here: those that do not follow from others */
    int64_t n_before, before_room;
    /* Tasks of one place that are alike as seen from elsewhere: what comes
     * before one of a group comes before its first, or is in the group. Those
     * that use tiles of other places, messages and answers are the first of
     * their groups. */
    int32_t *group; /* (n_tasks) */
    int32_t *head;  /* (n_groups) its first task; ascending */
    int64_t n_groups;
    int32_t (*rank)[2]; /* (n_groups) of its tasks; of a message's ends */
    int32_t *place_of;  /* (n_tasks) -1: no task of kind WEFT_REC_TASK */
    int32_t *at;        /* tasks of kind WEFT_REC_TASK by place ... */
    int64_t *at_end;    /* (n_places) ... which end here */
    int32_t *number;    /* (n_tasks) among those of its place */
    /* (n_tasks) The first wait that it has ended before: of those that tell
     * every rank, and of those that tell its own rank; or
     * WEFT_REC_NEVER. Of the first of a group: of all of the group. */
    int32_t *wait_all, *wait_local;
    /* as seen from a place: of every group, then of every task there */
    int32_t place, n_lanes;
    int64_t n_nodes, room, node_room;
    int32_t *lane;              /* (n_nodes) -1: none */
    int32_t *has, *leads;       /* (n_nodes, n_lanes) */
    struct weft_rec_lane *open; /* (n_lanes) */
    int32_t *of_device;         /* (device, chain): lane */
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
 * number, from 1 on, of the first that begins after its end. Of a task that uses
 * a tile of the place. */
const int32_t *weft_rec_reach_has(const struct weft_rec_reach *reach,
                                  int64_t task);
const int32_t *weft_rec_reach_leads(const struct weft_rec_reach *reach,
                                    int64_t task);
/* The task's lane; -1: none. */
int32_t weft_rec_reach_lane(const struct weft_rec_reach *reach, int64_t task);
/* The number of the last wait that was over before so many tasks were
 * recorded; early: of those that are not for tiles. 0: none. */
int32_t weft_rec_reach_wait(const struct weft_rec_reach *reach, int64_t tasks,
                            bool early);

/* ---- Of the parts of this ---------------------------------------------- */

/* Whether a task runs in its turn on its device and chain. */
static inline bool weft_rec_reach_is_strict(const struct weft_rec_task *t)
{
    return t->kind == WEFT_REC_TASK && t->position > 0;
}

/* Numbers of waits that are over when tasks are inserted, by what the tasks
 * are. */
struct weft_rec_over {
    int64_t w;
    int32_t all;   /* the last that ends no rank's tasks alone */
    int32_t local; /* the last */
    int32_t early; /* the last that is not for a tile */
    int64_t end;   /* tasks that a wait for all has ended */
};

/* Goes on to the waits before a task. */
void weft_rec_reach_pass(const struct weft_rec_reach *reach, int64_t task,
                         struct weft_rec_over *over);
/* Fills in what comes before the tasks, and their groups. Errors:
 * WEFT_ENOMEM. */
int weft_rec_reach_find(struct weft_rec_reach *reach, struct weft_err *err);

#endif
