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
 *
 * In a large recording only the tasks of near places are looked at: those that
 * exchange data with the place, or are in a gang with it. What comes before
 * what by way of others is then not known, so that more may be there together
 * than can be: a bound is still one. Replies come by the way that data went, so
 * little is missing. Where what is known of these tasks would still take more
 * than a limit, only those at the place itself are looked at, with messages
 * and copies that use its tiles.
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
    bool large;
    int64_t most_bytes; /* of what is known of tasks */
    bool own;           /* only those at the place are looked at */
    int64_t *first;  /* (n_tasks + 1) begin of the predecessors of a task, or
                        of a gang's first, ... */
    int32_t *before; /* ... here: those that do not follow from others */
    int32_t *before_group; /* (n_before) their groups */
    int64_t n_before, before_room;
    /* Tasks of one place, or gangs of the same places, that are alike as seen
     * from elsewhere: what comes before one of a group comes before its first,
     * or is in the group. Those that use tiles of other places, messages and
     * answers are the first of their groups. */
    int32_t *group; /* (n_tasks) */
    int32_t *head;  /* (n_groups) its first task; ascending */
    int64_t n_groups;
    int32_t (*ends)[2]; /* (n_groups) place of its first task, of a message's
                           ends, or of both tiles of a copy; twice the same:
                           there is one; -1: none */
    int32_t (
        *over)[2];     /* (n_groups) the last wait that is over when its first
                           task is inserted: at every rank, at its own */
    int32_t *gang;     /* groups of gangs by the places of members ... */
    int64_t *gang_end; /* (n_places) ... which end here */
    int64_t n_gang;
    int32_t *touch; /* other groups by their ends, the lesser first ... */
    struct weft_rec_pair {
        int32_t other; /* the greater end */
        int64_t end;   /* ... which end here */
    } * pair;
    int64_t *pair_end; /* (n_places) pairs of a lesser end end here */
    int64_t n_touch;
    uint64_t *near; /* (n_places, near_words) bits: places to look at */
    size_t near_words;
    int32_t *place_of; /* (n_tasks) -1: it has none */
    int32_t *at;       /* tasks that have one by place ... */
    int64_t *at_end;   /* (n_places) ... which end here */
    int32_t *number;   /* (n_tasks) among those of its place */
    /* (n_tasks) The first wait that it has ended before: of those that tell
     * every rank, and of those that tell its own rank; or
     * WEFT_REC_NEVER. Of the first of a group: of all of the group. */
    int32_t *wait_all, *wait_local;
    int32_t *no_tile; /* (n_waits + 1) the last up to a wait that is for no
                         tile, by number; 0: none */
    /* as seen from a place: of the tasks there, and of the first tasks of
     * groups elsewhere */
    int32_t place, n_lanes;
    uint64_t *seen; /* (n_tasks) bits */
    int32_t *walk;  /* (n_nodes) tasks, in order */
    int64_t n_nodes, room, node_room;
    int32_t *node_of;   /* (n_groups) number from 1 on; 0: none */
    int32_t *node_here; /* (tasks there) number from 0 on */
    int32_t *lane; /* (n_nodes) -1: none; -2: nothing here comes before it */
    int64_t *first_node; /* (n_nodes + 1) begin of the nodes before one ... */
    int32_t *node_before; /* ... here */
    int64_t node_before_room;
    int32_t *has, *leads;       /* (n_nodes, n_lanes) */
    struct weft_rec_lane *open; /* (n_lanes) */
    int32_t *of_device;         /* (device, chain): lane */
};

/* Borrows r. large: it gets fewer lanes, and only near places are looked at, so
 * that it takes less time and says less. Errors: WEFT_ENOMEM. */
int weft_rec_reach_create(const struct weft_recording *r,
                          int32_t places_per_rank, bool large,
                          int64_t most_bytes, struct weft_rec_reach *out,
                          struct weft_err *err);
void weft_rec_reach_release(struct weft_rec_reach *reach);

/* Looks from a place. Errors: WEFT_ENOMEM. */
int weft_rec_reach_look(struct weft_rec_reach *reach, int32_t place,
                        struct weft_err *err);
/* The tasks at the place that is looked from, in their order: `number` counts
 * them. */
const int32_t *weft_rec_reach_here(const struct weft_rec_reach *reach,
                                   int64_t *n_out);
/* For every lane: how many tasks have ended when the task begins; and the
 * number, from 1 on, of the first that begins after its end. Of a task that
 * uses a tile of the place. */
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
/* Fills in wait_all, wait_local and no_tile. Errors: WEFT_ENOMEM. */
int weft_rec_reach_find_waits(struct weft_rec_reach *x, struct weft_err *err);
/* Fills in what comes before the tasks, and their groups. Errors:
 * WEFT_ENOMEM. */
int weft_rec_reach_find(struct weft_rec_reach *reach, struct weft_err *err);
/* Fills in the groups' ends, what is near, and lists of both. Errors:
 * WEFT_ENOMEM. */
int weft_rec_reach_find_near(struct weft_rec_reach *reach,
                             struct weft_err *err);

/* weft_recording_memory() where it is said whether the recording is large, and
 * how many bytes what is known of tasks may take (struct weft_rec_reach). */
int weft_recording_memory_of(const struct weft_recording *r, int32_t n_places,
                             int32_t places_per_rank, bool large,
                             int64_t most_bytes,
                             int64_t (*out)[WEFT_MEM_ALL + 1],
                             struct weft_err *err);

/* Bits of a place: those that are near. */
static inline uint64_t *weft_rec_reach_near(const struct weft_rec_reach *x,
                                            int32_t place)
{
    return x->near + (size_t) place * x->near_words;
}
static inline void weft_rec_set_bit(uint64_t *word, size_t i)
{
    word[i / 64] |= (uint64_t) 1 << i % 64;
}
static inline bool weft_rec_has_bit(const uint64_t *word, size_t i)
{
    return word[i / 64] >> i % 64 & 1;
}

#endif
