/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the event engine (engine.h). */
#ifndef WEFT_PLAN_ENGINE_INSIDE_H
#define WEFT_PLAN_ENGINE_INSIDE_H

#include "plan/engine/engine.h"
#include "plan/engine/timers.h"

enum { WEFT_ENGINE_NONE = -1 };

/* When a task ran. Before it begins: its neighbours in a heap, or in lists of
 * tasks that ranks hold back or insert, one for each rank of a message. */
struct weft_engine_task {
    union {
        double start_s;
        int32_t link[2];
    };
    double end_s; /* below 0: it has not ended; - its number at its gate */
};

/* States of a task. Above 0: so many accesses, and ranks that hold it back,
 * are missing. Begun: WEFT_ENGINE_BEGUN - device. */
enum {
    WEFT_ENGINE_READY = 0,   /* its turn may not have come */
    WEFT_ENGINE_QUEUED = -1, /* in a lane, or waits for its gang */
    WEFT_ENGINE_BEGUN = -3
};

/* An access in the line of those to a tile. */
struct weft_engine_access {
    uint32_t next : 31;  /* WEFT_ENGINE_LAST, or _SKIPPED */
    uint32_t writes : 1; /* the task or its gang does, with any access */
};
enum {
    WEFT_ENGINE_LAST = 0x7fffffff,
    /* the task or its gang has the tile before */
    WEFT_ENGINE_SKIPPED = 0x7ffffffe
};

struct weft_engine_tile {
    uint32_t head; /* first access that waits; WEFT_ENGINE_LAST: none does */
    uint32_t tail; /* 1 + the last access in line so far */
    uint32_t open; /* accesses that have not ended, also to its parts */
    uint32_t active; /* accesses of tasks that have their turn: see flags */
};
/* When a tile could have been there if nothing took time that moves, and when
 * it was. */
struct weft_engine_came {
    double could_s, at_s;
};
/* In the high bits of `active`. */
#define WEFT_ENGINE_WRITING (1u << 31)
#define WEFT_ENGINE_MEMORY (1u << 30) /* it has its memory */
#define WEFT_ENGINE_PART (1u << 29)
#define WEFT_ENGINE_COUNT (WEFT_ENGINE_PART - 1)

/* Accesses for which it is noted whose the first of them is. */
enum { WEFT_ENGINE_BLOCK = 8 };

/* Of tasks with positions of a device and chain: so many are inserted, and have
 * begun. */
struct weft_engine_gate {
    int32_t inserted, begun;
    int32_t waiting; /* heap; WEFT_ENGINE_NONE: nobody */
};

struct weft_engine_device {
    int32_t lane; /* heap of ready tasks */
    int32_t task; /* that it runs; of a gang, its own; WEFT_ENGINE_NONE */
    struct weft_engine_use use;
    double idle_s;       /* when it last became idle ... */
    double idle_clock_s; /* ... and the place's clock then */
    /* with job.moves: when what it did last ended that moves, and that does
     * not */
    double moved_s, computed_s;
};

struct weft_engine_place {
    int32_t shared;     /* heap of tasks for any of its devices */
    int32_t first, end; /* its devices */
    int32_t n_messages; /* under way */
    double since_s, moved_s;
    int64_t now[WEFT_MEM_ALL + 1], peak[WEFT_MEM_ALL + 1];
    int32_t n_slices; /* that have begun before its last change */
};

/* A rank that waits until all its tasks of the first lots have ended; what it
 * has inserted since the wait is held back. */
struct weft_engine_hold {
    int64_t lots;
    int32_t held; /* list */
    int32_t next; /* a later wait of the rank, or a free one */
};
struct weft_engine_rank {
    int64_t first_open;    /* lots before have ended */
    int64_t lot;           /* of the task that ended last */
    int32_t hold, last;    /* what it waits for, first and last */
    int32_t inserts, then; /* list of tasks: what it inserts, and its end */
    int32_t turn;          /* of its devices, to be delayed */
    double owed_s;         /* that others need a core of it, from now on */
};

struct weft_engine_flight {
    int64_t task;
    double latency_s, core_s;
    int32_t n_links; /* that have not carried all of it */
    int32_t next;    /* a free one */
};
struct weft_engine_load {
    double target; /* the link's work when it has carried the message */
    int64_t task;
    int32_t flight;
};
struct weft_engine_link {
    double work;    /* bytes carried of each message that was there always */
    double since_s; /* at that time */
    struct weft_engine_load *load; /* (n) heap */
    int32_t n, room;
};

/* Idle tiles by the number of tasks before their release. */
struct weft_engine_idle {
    int64_t released;
    int32_t tile;
};

struct weft_engine {
    struct weft_engine_job job;
    const struct weft_recording *r;
    double now_s;
    bool full; /* memory ran out */
    bool owes; /* some rank does, see struct weft_engine_rank */
    int64_t n_tasks, n_tiles; /* taken in */
    int64_t task_room, access_room, tile_room;
    struct weft_engine_task *task;
    int32_t *state;
    struct weft_engine_access *access;
    uint32_t *owner; /* (n_accesses / WEFT_ENGINE_BLOCK + 1) */
    struct weft_engine_tile *tile;
    int64_t inserted, n_open; /* tasks; those that have not ended */
    int64_t wait;             /* the next one */
    int64_t tiles;            /* so many were created */
    int64_t lots;             /* that have begun */
    int64_t lot_room;
    uint32_t *in_lot; /* (lots + 1, n_ranks) open tasks */
    int32_t n_ranks;
    struct weft_engine_rank *rank;
    struct weft_engine_hold *hold;
    int32_t n_holds, hold_room, free_hold;
    struct weft_engine_gate *gate; /* (n_devices, WEFT_N_CHAINS) */
    struct weft_engine_device *device;
    uint64_t *look; /* bits: devices that may have something to begin */
    int32_t posted; /* list of messages and answers that begin now */
    struct weft_engine_place *place;
    struct weft_engine_link *link;
    struct weft_engine_flight *flight;
    int32_t n_flights, flight_room, free_flight;
    struct weft_engine_idle *idle; /* (n_idle) heap */
    int64_t n_idle, idle_room;
    /* with job.moves */
    double *could_s;               /* (n_tasks) when it was inserted; of what
                                      moves, from its beginning on, when it
                                      could have ended */
    struct weft_engine_came *came; /* (n_tiles) */
    struct weft_engine_waited *waited; /* (n_waited) */
    int64_t n_waited, waited_room;
    double slice_s;
    int64_t (*slice)[WEFT_MEM_ALL + 1]; /* (n_places, job.n_slices) */
    struct weft_engine_gap *gap; /* (job.n_iterations, WEFT_MAX_CALLS) */
    struct weft_timers timers;   /* of devices, links, ranks, then flights */
};

/* Makes room for more elements of an array; else the engine is full. */
bool weft_engine_room(struct weft_engine *e, void *array, int64_t used,
                      int64_t *room, size_t size);

/* data.c: what tasks wait for. */
void weft_engine_enter(struct weft_engine *e, int64_t task, int64_t end);
void weft_engine_leave(struct weft_engine *e, int64_t task);
bool weft_engine_is_written(const struct weft_engine *e, int32_t tile);
/* One thing less is missing. */
void weft_engine_arrive(struct weft_engine *e, int64_t task);

/* insert.c: the program. */
void weft_engine_insert(struct weft_engine *e);
void weft_engine_inserted(struct weft_engine *e, int32_t rank);
void weft_engine_ended(struct weft_engine *e, int64_t task); /* for waits */

/* A rank's tasks and messages have one or two ranks, a message's sender first:
 * how many. */
int weft_engine_ranks(const struct weft_engine *e, int64_t task,
                      int32_t out[2]);

/* lanes.c: who runs what. */
/* Something else needs a core of the rank for so long. */
void weft_engine_owe(struct weft_engine *e, int32_t rank, double s);
void weft_engine_ready(struct weft_engine *e, int64_t task);
void weft_engine_begin_all(struct weft_engine *e);
void weft_engine_device_ended(struct weft_engine *e, int32_t device);
void weft_engine_begun(struct weft_engine *e, int64_t task, int32_t device);
void weft_engine_end(struct weft_engine *e, int64_t task);
double weft_engine_moved_s(const struct weft_engine *e, int32_t place);

/* links.c: messages. */
void weft_engine_post(struct weft_engine *e, int64_t task);
void weft_engine_begin_posted(struct weft_engine *e);
void weft_engine_link_ended(struct weft_engine *e, int32_t link);
void weft_engine_flight_ended(struct weft_engine *e, int32_t flight);

/* moves.c: what devices wait for; device -1: none's. */
void weft_engine_moves_begin(struct weft_engine *e, int64_t task,
                             int32_t device);
void weft_engine_moves_end(struct weft_engine *e, int64_t task);

/* memory.c */
void weft_engine_create_tiles(struct weft_engine *e);
void weft_engine_release_tiles(struct weft_engine *e);
void weft_engine_take(struct weft_engine *e, int64_t task); /* it begins */
/* A gang's, which has ended, gives back what it took for itself. */
void weft_engine_give_temps(struct weft_engine *e, int64_t task);
void weft_engine_is_idle(struct weft_engine *e, int32_t tile);
/* Looks for tiles that were released since they became idle. */
void weft_engine_look_again(struct weft_engine *e);

/* slices.c, with job.n_slices. Before what a place holds changes: where it is
 * noted, after the change. */
int64_t *weft_engine_slice_of_now(struct weft_engine *e, int32_t place);
void weft_engine_slice_note(const struct weft_engine *e, int32_t place,
                            int64_t *slice);
/* Time has gone on. */
void weft_engine_slice_widen(struct weft_engine *e);

static inline struct weft_engine_gate *weft_engine_gate(
    const struct weft_engine *e, const struct weft_rec_task *t)
{
    return &e->gate[(int64_t) t->device * WEFT_N_CHAINS + t->chain];
}

static inline const struct weft_rec_task *weft_engine_rec(
    const struct weft_engine *e, int64_t task)
{
    return &e->r->task[task];
}

#endif
