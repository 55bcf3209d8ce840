/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Destructive lower bounds. A makespan T is assumed, which gives every
 * operation a latest end; rules then raise heads and tails until nothing
 * changes any more. If an operation has no time left between them, no schedule
 * has makespan T.
 *
 * Every rule is written for heads. Side 1 is time reversed: there heads are
 * tails, and predecessors are successors.
 */
#ifndef WEFT_SCHEDULE_REFUTE_H
#define WEFT_SCHEDULE_REFUTE_H

#include "schedule/jobshop.h"

/* A clash: a micro-batches of stage u and b of stage v on one device do not
 * fit together, so they are never held at the same time. */
struct weft_refute_clash {
    int32_t u, v, a, b;
};

struct weft_refute_job {
    double head, time, due, risen; /* risen: the head to be */
    uint32_t local;
};

struct weft_refute_node {
    double time, end, time1, end1;
    int32_t time_of, end_of; /* the one beside; -1 */
};

struct weft_refute {
    const struct weft_jobshop *shop;
    double makespan; /* T */
    /* a tolerance above rounding and below any difference that matters */
    double eps;
    double *head[2]; /* (n_ops) heads, tails */
    bool refuted;
    bool *dirty; /* (n_devices) a head or tail of it has changed */
    int64_t steps;
    int32_t *at[2]; /* (n_ops + 1) */
    struct weft_jobshop_arc
        *arc[2];        /* before, after: series' and memory's too */
    int32_t *order;     /* (n_ops) topological */
    int32_t *sorted[2]; /* device_at: by rising head */
    int32_t *local;     /* (n_ops) number on its device */
    uint64_t *first[2]; /* (n_ops, n_words) what goes before (after) on its
                           device, whatever T: bits by local number */
    size_t n_words;
    struct weft_refute_job *job;   /* room: of a device, by rising head */
    int32_t *place;                /* room: of local numbers among them */
    struct weft_refute_node *node; /* room: a tree over them */
    int32_t *clash_at;             /* (n_devices + 1) */
    struct weft_refute_clash *clash;
};

/* Operation x starts (side 0), or is followed by (side 1), at least so
 * much. */
static inline void weft_refute_raise(struct weft_refute *r, int side,
                                     int32_t x, double head)
{
    if (head <= r->head[side][x] + r->eps)
        return;
    r->head[side][x] = head;
    if (r->shop->op[x].device >= 0)
        r->dirty[r->shop->op[x].device] = true;
    if (r->head[0][x] + r->shop->op[x].time + r->head[1][x]
        > r->makespan + r->eps)
        r->refuted = true;
}

/* All rules of one device, heads and tails. */
void weft_refute_device(struct weft_refute *r, int32_t device);

#endif
