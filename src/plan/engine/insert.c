/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that inserts. One for all ranks stands for theirs, as they insert
 * the same; a rank that waits for its own tasks alone is not waited for, but
 * what it has inserted since is held back.
 */
#include "plan/engine/inside.h"

#include <string.h>

/* ---- Ranks ------------------------------------------------------------- */

int weft_engine_ranks(const struct weft_engine *e, int64_t task,
                      int32_t out[2])
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    int n = 0;
    if (t->kind == WEFT_REC_TASK) {
        out[0] = t->place / e->job.places_per_rank;
        return 1;
    }
    for (int32_t i = 0; i < t->n_access && n < 2; i++) {
        int64_t tile = e->r->access[t->access + i].tile;
        int32_t rank = e->r->tile[tile].place / e->job.places_per_rank;
        if (n == 0 || rank != out[0])
            out[n++] = rank;
    }
    return n;
}

/* Open tasks of a rank in a lot; lot 0 comes before the first. */
static uint32_t *in_lot(const struct weft_engine *e, int64_t lot,
                        int32_t rank)
{
    return &e->in_lot[lot * e->n_ranks + rank];
}

static void begin_lots(struct weft_engine *e, int64_t task)
{
    while (e->lots < e->r->n_lots && e->r->lot[e->lots] <= task
           && weft_engine_room(e, &e->in_lot, e->lots + 1, &e->lot_room,
                               (size_t) e->n_ranks * sizeof *e->in_lot)) {
        e->lots++;
        memset(in_lot(e, e->lots, 0), 0,
               (size_t) e->n_ranks * sizeof *e->in_lot);
    }
}

/* Whether all that a rank has inserted in the first lots has ended. */
static bool have_ended(struct weft_engine *e, int32_t rank, int64_t lots)
{
    struct weft_engine_rank *k = &e->rank[rank];
    while (k->first_open < lots && *in_lot(e, k->first_open, rank) == 0)
        k->first_open++;
    return k->first_open >= lots;
}

static void hold_back(struct weft_engine *e, int32_t rank, int64_t lots)
{
    struct weft_engine_rank *k = &e->rank[rank];
    int64_t room = e->hold_room;
    int32_t i = e->free_hold;
    if (k->hold == WEFT_ENGINE_NONE && have_ended(e, rank, lots))
        return;
    if (i != WEFT_ENGINE_NONE) {
        e->free_hold = e->hold[i].next;
    } else {
        if (!weft_engine_room(e, &e->hold, e->n_holds, &room,
                              sizeof *e->hold))
            return;
        e->hold_room = (int32_t) room;
        i = e->n_holds++;
    }
    e->hold[i] = (struct weft_engine_hold){lots, WEFT_ENGINE_NONE,
                                           WEFT_ENGINE_NONE};
    if (k->hold == WEFT_ENGINE_NONE)
        k->hold = i;
    else
        e->hold[k->last].next = i;
    k->last = i;
}

/* A rank has inserted a task; of a message, the last of its two counts. */
static void is_inserted(struct weft_engine *e, int64_t task)
{
    if (e->job.moves)
        e->could_s[task] = e->now_s;
    weft_engine_arrive(e, task);
}

/* The next one in a list of tasks of a rank. */
static int32_t *next_of(struct weft_engine *e, int64_t task, int32_t rank)
{
    int32_t ranks[2];
    int n = weft_engine_ranks(e, task, ranks);
    return &e->task[task].link[n > 1 && ranks[1] == rank];
}

/* Tasks are inserted one after another; those that take no time, now. */
static void insert_more(struct weft_engine *e, int32_t rank)
{
    struct weft_engine_rank *k = &e->rank[rank];
    while (k->inserts != WEFT_ENGINE_NONE) {
        int32_t task = k->inserts;
        double s = e->job.insert(e->job.ctx, e->r, task);
        if (s > 0) {
            weft_timers_set(&e->timers,
                            e->job.n_devices + e->job.n_links + rank,
                            e->now_s + s);
            weft_engine_owe(e, rank, s);
            return;
        }
        k->inserts = *next_of(e, task, rank);
        is_inserted(e, task);
    }
}

/* The rank inserts a task after those before. */
static void add_to_insert(struct weft_engine *e, int64_t task, int32_t rank)
{
    struct weft_engine_rank *k = &e->rank[rank];
    *next_of(e, task, rank) = WEFT_ENGINE_NONE;
    bool first = k->inserts == WEFT_ENGINE_NONE;
    *(first ? &k->inserts : next_of(e, k->then, rank)) = (int32_t) task;
    k->then = (int32_t) task;
    if (first)
        insert_more(e, rank);
}

void weft_engine_inserted(struct weft_engine *e, int32_t rank)
{
    struct weft_engine_rank *k = &e->rank[rank];
    int32_t task = k->inserts;
    weft_timers_remove_first(&e->timers); /* it has just gone off */
    k->inserts = *next_of(e, task, rank);
    is_inserted(e, task);
    insert_more(e, rank);
}

/* A rank of a task holds it back if the rank waits, and until it has inserted
 * it. */
static void hold_task(struct weft_engine *e, int64_t task, int32_t rank)
{
    bool waits = e->rank[rank].hold != WEFT_ENGINE_NONE;
    if (!waits && !e->job.insert)
        return;
    e->state[task]++;
    if (!waits) {
        add_to_insert(e, task, rank);
        return;
    }
    struct weft_engine_hold *hold = &e->hold[e->rank[rank].last];
    *next_of(e, task, rank) = hold->held;
    hold->held = (int32_t) task;
}

/* What a rank has held back comes in the order of insertion. The list has the
 * last one first. */
static void let_go_held(struct weft_engine *e, int32_t rank, int32_t held)
{
    int32_t first = WEFT_ENGINE_NONE;
    while (held != WEFT_ENGINE_NONE) {
        int32_t next = *next_of(e, held, rank);
        *next_of(e, held, rank) = first;
        first = held;
        held = next;
    }
    while (first != WEFT_ENGINE_NONE) {
        int32_t next = *next_of(e, first, rank);
        if (e->job.insert)
            add_to_insert(e, first, rank);
        else
            is_inserted(e, first);
        first = next;
    }
}

static void let_go(struct weft_engine *e, int32_t rank)
{
    struct weft_engine_rank *k = &e->rank[rank];
    while (k->hold != WEFT_ENGINE_NONE
           && have_ended(e, rank, e->hold[k->hold].lots)) {
        int32_t i = k->hold, held = e->hold[i].held;
        k->hold = e->hold[i].next;
        e->hold[i].next = e->free_hold;
        e->free_hold = i;
        let_go_held(e, rank, held);
    }
}

/* The lot of a task that has ended, next to that of the rank's last one. */
static int64_t lot_of(struct weft_engine *e, int64_t task, int32_t rank)
{
    int64_t lot = e->rank[rank].lot;
    while (lot > 0 && e->r->lot[lot - 1] > task)
        lot--;
    while (lot < e->lots && e->r->lot[lot] <= task)
        lot++;
    e->rank[rank].lot = lot;
    return lot;
}

void weft_engine_ended(struct weft_engine *e, int64_t task)
{
    int32_t rank[2];
    int n = weft_engine_ranks(e, task, rank);
    e->n_open--;
    for (int i = 0; i < n; i++)
        if (--*in_lot(e, lot_of(e, task, rank[i]), rank[i]) == 0
            && e->rank[rank[i]].hold != WEFT_ENGINE_NONE)
            let_go(e, rank[i]);
}

/* ---- The program ------------------------------------------------------- */

/* What a task waits for before its data. */
static void announce(struct weft_engine *e, int64_t task)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    int32_t rank[2];
    int n = weft_engine_ranks(e, task, rank);
    e->n_open++;
    e->task[task].end_s = t->position > 0 && t->device >= 0
                            ? -(double) ++weft_engine_gate(e, t)->inserted
                            : -1;
    e->state[task] = 1; /* until all is said */
    for (int i = 0; i < n; i++) {
        ++*in_lot(e, e->lots, rank[i]);
        hold_task(e, task, rank[i]);
    }
}

/* Inserts a task, or all of a gang. */
static void insert_next(struct weft_engine *e)
{
    int64_t first, end;
    begin_lots(e, e->inserted);
    if (e->full)
        return;
    weft_recording_members(e->r, e->inserted, &first, &end);
    end = end < e->n_tasks ? end : e->n_tasks;
    for (int64_t i = first; i < end; i++)
        announce(e, i);
    e->inserted = end;
    weft_engine_enter(e, first, end);
    for (int64_t i = first; i < end; i++)
        is_inserted(e, i);
}

/* Whether the program can go on after its next wait. */
static bool is_over(struct weft_engine *e)
{
    const struct weft_rec_wait *w = &e->r->wait[e->wait];
    if (w->tile >= 0)
        return !weft_engine_is_written(e, w->tile);
    if (!w->local)
        return e->n_open == 0;
    begin_lots(e, w->ended);
    for (int32_t k = 0; k < e->n_ranks && !e->full; k++)
        hold_back(e, k, lot_of(e, w->ended, k));
    return true;
}

static bool pass_waits(struct weft_engine *e)
{
    while (e->wait < e->r->n_waits
           && e->r->wait[e->wait].task <= e->inserted) {
        if (!is_over(e))
            return false;
        e->wait++;
    }
    return true;
}

void weft_engine_insert(struct weft_engine *e)
{
    while (pass_waits(e) && e->inserted < e->n_tasks && !e->full) {
        weft_engine_create_tiles(e);
        insert_next(e);
        weft_engine_release_tiles(e);
    }
}
