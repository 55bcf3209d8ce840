/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event engine: plays a recording on described devices and links. It says
 * when every task begins and ends, if tasks take as long as is said, and what
 * memory tiles take meanwhile. No clock, no chance: equal things happen in the
 * order of their numbers.
 *
 *     insert   the program inserts tasks in their order until it waits (struct
 *              weft_rec_wait); a rank that waits for its own tasks holds back
 *              only its own. Each rank takes some time for each task or message
 *              of its own, one after another, and none begins before
 *     data     a task waits for earlier ones that write what it reads, or
 *              read what it writes
 *     gate     one with a position waits for that before it, of its device
 *              and chain (sched/lanes.c); positions are in the order of
 *              insertion, and a gang's task may stand for several
 *     lane     a free device takes the first of its lane and of its place's
 *              shared one: priority, those with a position, order of insertion
 *     gang     begins when each member is the first of its lane and its device
 *              is free, and ends when its slowest member does
 *
 * At one time, everything that ends does so before anything begins. A message
 * has no device. It begins when its tiles have their turn, as it is posted
 * then (rt/transfer.c), and passes every link on its way at the same time: a
 * link carries all its messages at once and shares its bytes per second evenly
 * among them. It has arrived when the last of its links has carried all of it,
 * and the latency has passed. One that a slow link holds up thus leaves a
 * faster one earlier than it would if that waited for it; the bytes that a link
 * carries in a second are the same, and each event costs O(log n).
 *
 * Where a job's devices have all cores of their machines, whoever else works there
 * takes time from them: while a rank's program inserts a task, or messages are
 * handled, a task of the rank ends so much later, unless a device of it is idle.
 *
 * A recording may grow while it is played: what comes next can then depend on
 * what has ended.
 */
#ifndef WEFT_PLAN_ENGINE_ENGINE_H
#define WEFT_PLAN_ENGINE_ENGINE_H

#include "plan/recording.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_ENGINE_PATH = 4 };

/* What a message takes. */
struct weft_engine_message {
    double bytes, latency_s;
    double
        core_s; /* that a core of either rank is busy with it, see `crowded` */
    int32_t n_links;                /* 0: it takes no more than its latency */
    int32_t link[WEFT_ENGINE_PATH]; /* numbers of links, all different */
};

/* Where a recording is played, and what tasks take there. The arrays live as
 * long as the engine. */
struct weft_engine_job {
    int32_t n_devices; /* of all ranks */
    int32_t n_places, places_per_rank;
    const int32_t *place_of; /* (n_devices) ascending */
    int32_t n_links;
    const double *bytes_per_s; /* (n_links) */
    bool memory;               /* count what tiles take */
    /* note what they take over time, too, in at most so many slices of a
     * place; 0: do not */
    int32_t n_slices;
    bool moves; /* note what devices wait for what moves */
    /* sum up by call what devices do between tasks in so many iterations, from
     * the first on; 0: in none */
    int32_t first_iteration, n_iterations;
    bool crowded; /* no rank has more cores than devices */
    void *ctx;
    /* Seconds of a task on a device (-1: of an answer, from outside); of a
     * gang's member, it alone. >= 0. */
    double (*seconds)(void *ctx, const struct weft_recording *r, int64_t task,
                      int32_t device);
    void (*message)(void *ctx, const struct weft_recording *r, int64_t task,
                    struct weft_engine_message *out);
    /* Seconds that a rank takes to insert a task; of a message, each of its
     * two. >= 0. NULL: none. */
    double (*insert)(void *ctx, const struct weft_recording *r, int64_t task);
};

/* What a device did until now. The rest of the time it waited. */
struct weft_engine_use {
    double busy_s; /* ran tasks */
    double
        moving_s; /* had none, while messages of its place were under way */
};

/* A task could have begun so much earlier if nothing took time that moves
 * (struct weft_where): when it was inserted, its device had computed what came
 * before, and its tiles could have been there. Until its last tile had come, and
 * its device had no more to copy itself, the device waited for moves alone. A
 * task waits so for what comes to its own tiles; not for a task that waits. */
struct weft_engine_waited {
    int64_t task;
    double s;
};

/* What devices did before tasks of a call began, each from the end of the task
 * that it ran before, of whichever call, or from second 0 on. */
struct weft_engine_gap {
    double moving_s; /* as in struct weft_engine_use */
    double waiting_s;
};

struct weft_engine;

/* Borrows r, and what was recorded is played from second 0 on. Errors:
 * WEFT_ENOMEM, also where it has more than 2^31 tasks, or uses of tiles. */
int weft_engine_create(const struct weft_engine_job *job,
                       const struct weft_recording *r,
                       struct weft_engine **out, struct weft_err *err);
void weft_engine_free(struct weft_engine *e); /* NULL is allowed */

/* Goes on to the next time at which something ends, and does all that happens
 * then. False: nothing is under way. */
bool weft_engine_advance(struct weft_engine *e);
/* Takes in what was recorded since. Errors: WEFT_ENOMEM. */
int weft_engine_extend(struct weft_engine *e, struct weft_err *err);
/* Goes on until nothing is under way. Errors: WEFT_ENOMEM; WEFT_EINVAL when
 * tasks are left that can never begin, of which the text names the first. */
int weft_engine_run(struct weft_engine *e, struct weft_err *err);

double weft_engine_now_s(const struct weft_engine *e);
/* When a task ran, and on which device (-1: on none); false: it has not ended.
 */
bool weft_engine_span(const struct weft_engine *e, int64_t task,
                      struct weft_span *out, int32_t *device_out);
struct weft_engine_use weft_engine_use(const struct weft_engine *e,
                                       int32_t device);
/* Of an iteration and call (0: none), among those that job says; summed over
 * devices. */
struct weft_engine_gap weft_engine_gap(const struct weft_engine *e,
                                       int32_t iteration, int32_t call);
/* What waited so, with job.moves, in the order in which it began. */
const struct weft_engine_waited *weft_engine_waited(
    const struct weft_engine *e, int64_t *n_out);
/* The most bytes of a place so far, by class and of those that count together
 * (as weft_recording_memory(), which bounds every order; this is one). */
const int64_t *weft_engine_memory(const struct weft_engine *e, int32_t place);
/* Whether a class is part of a place's memory, and counts together with
 * others. */
bool weft_engine_counts(const struct weft_engine *e, int32_t place, int c);
/* With job.n_slices: into how many slices time until now is cut, from second 0
 * on, each of *s_out seconds; at least half of those that there may be, once
 * time has passed. */
int32_t weft_engine_slices(const struct weft_engine *e, double *s_out);
/* Of slice i, what a place held when that was most, by class and in all; what
 * it held when the slice began counts. Of classes that do not count together
 * 0. */
void weft_engine_slice(const struct weft_engine *e, int32_t place, int32_t i,
                       int64_t out[WEFT_MEM_ALL + 1]);

#ifdef __cplusplus
}
#endif
#endif
