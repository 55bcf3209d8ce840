/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs what: the rules of sched/lanes.c, and gangs. A device whose first
 * task is a gang's that cannot begin yet waits for the others; should another
 * task come before it meanwhile, it takes that. The first of all gangs that are
 * ready is so first everywhere, and gangs never wait for one another.
 */
#include "plan/engine/inside.h"

typedef bool (*before_fn)(const struct weft_engine *e, int64_t a, int64_t b);

/* ---- Pairing heaps (as sched/heap.h) ----------------------------------- */

static int32_t meld(struct weft_engine *e, int32_t a, int32_t b,
                    before_fn before)
{
    if (a < 0 || b < 0)
        return a < 0 ? b : a;
    if (before(e, b, a)) {
        int32_t t = a;
        a = b;
        b = t;
    }
    e->task[b].link[1] = e->task[a].link[0];
    e->task[a].link[0] = b;
    return a;
}

static void heap_add(struct weft_engine *e, int32_t *top, int64_t task,
                     before_fn before)
{
    e->task[task].link[0] = e->task[task].link[1] = WEFT_ENGINE_NONE;
    *top = meld(e, *top, (int32_t) task, before);
}

static int32_t heap_take(struct weft_engine *e, int32_t *top,
                         before_fn before)
{
    int32_t first = *top, pairs = WEFT_ENGINE_NONE;
    for (int32_t a = e->task[first].link[0]; a >= 0;) {
        int32_t b = e->task[a].link[1];
        int32_t rest = b >= 0 ? e->task[b].link[1] : WEFT_ENGINE_NONE;
        a = meld(e, a, b, before);
        e->task[a].link[1] = pairs;
        pairs = a;
        a = rest;
    }
    *top = WEFT_ENGINE_NONE;
    while (pairs >= 0) {
        int32_t next = e->task[pairs].link[1];
        *top = meld(e, pairs, *top, before);
        pairs = next;
    }
    return first;
}

/* ---- Order ------------------------------------------------------------- */

/* Members of a gang come where the first of them does. */
static bool ready_before(const struct weft_engine *e, int64_t a, int64_t b)
{
    const struct weft_rec_task *x = weft_engine_rec(e, a);
    const struct weft_rec_task *y = weft_engine_rec(e, b);
    x -= x->member;
    y -= y->member;
    if (x->priority != y->priority)
        return x->priority > y->priority;
    if ((x->position > 0) != (y->position > 0))
        return x->position > 0;
    return x != y ? x < y : a < b;
}

/* Positions are in the order of insertion. */
static bool turn_before(const struct weft_engine *e, int64_t a, int64_t b)
{
    (void) e;
    return a < b;
}

/* Whether all that come before a task at its gate have begun. */
static bool is_turn(const struct weft_engine *e,
                    const struct weft_engine_gate *gate, int64_t task)
{
    return -e->task[task].end_s <= gate->begun + 1;
}

static void look_at(struct weft_engine *e, int32_t device)
{
    if (e->device[device].task == WEFT_ENGINE_NONE)
        e->look[device / 64] |= (uint64_t) 1 << device % 64;
}

static void put_in_lane(struct weft_engine *e, int64_t task)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    if (t->device >= 0) {
        heap_add(e, &e->device[t->device].lane, task, ready_before);
        look_at(e, t->device);
        return;
    }
    weft_assert(t->n_members <= 1);
    struct weft_engine_place *p = &e->place[t->place];
    heap_add(e, &p->shared, task, ready_before);
    for (int32_t d = p->first; d < p->end; d++)
        look_at(e, d);
}

/* A gang is in the lanes when all its members could be. */
static void queue(struct weft_engine *e, int64_t task)
{
    int64_t first, end;
    e->state[task] = WEFT_ENGINE_QUEUED;
    weft_recording_members(e->r, task, &first, &end);
    for (int64_t i = first; i < end; i++)
        if (i >= e->inserted || e->state[i] != WEFT_ENGINE_QUEUED)
            return;
    for (int64_t i = first; i < end; i++)
        put_in_lane(e, i);
}

static void gate_pass(struct weft_engine *e, struct weft_engine_gate *gate)
{
    while (gate->waiting >= 0 && is_turn(e, gate, gate->waiting))
        queue(e, heap_take(e, &gate->waiting, turn_before));
}

void weft_engine_ready(struct weft_engine *e, int64_t task)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    if (t->kind != WEFT_REC_TASK)
        weft_engine_post(e, task);
    else if (t->position > 0 && t->device >= 0
             && !is_turn(e, weft_engine_gate(e, t), task))
        heap_add(e, &weft_engine_gate(e, t)->waiting, task, turn_before);
    else
        queue(e, task);
}

/* ---- Beginning and ending ---------------------------------------------- */

/* The first task for a device, or WEFT_ENGINE_NONE; where it stands. */
static int32_t first_of(struct weft_engine *e, int32_t device,
                        int32_t **top_out)
{
    int32_t *lane = &e->device[device].lane;
    int32_t *shared = &e->place[e->job.place_of[device]].shared;
    *top_out = *shared < 0 || (*lane >= 0 && ready_before(e, *lane, *shared))
                 ? lane
                 : shared;
    return **top_out;
}

/* Whether every member of a task's gang can begin. */
static bool can_begin(struct weft_engine *e, int64_t first, int64_t end)
{
    int32_t *top;
    for (int64_t i = first; i < end && end - first > 1; i++) {
        int32_t device = weft_engine_rec(e, i)->device;
        if (e->device[device].task != WEFT_ENGINE_NONE
            || first_of(e, device, &top) != i)
            return false;
    }
    return true;
}

static void occupy(struct weft_engine *e, int32_t device, int64_t task)
{
    struct weft_engine_device *d = &e->device[device];
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    double moving_s = weft_engine_moved_s(e, e->job.place_of[device])
                    - d->idle_clock_s;
    int32_t i = t->iteration - e->job.first_iteration;
    d->use.moving_s += moving_s;
    d->task = (int32_t) task;
    if (i < 0 || i >= e->job.n_iterations)
        return;
    struct weft_engine_gap *gap =
        &e->gap[(int64_t) i * WEFT_MAX_CALLS + t->call];
    gap->moving_s += moving_s;
    gap->waiting_s += e->now_s - d->idle_s - moving_s;
}

void weft_engine_begun(struct weft_engine *e, int64_t task, int32_t device)
{
    e->state[task] = WEFT_ENGINE_BEGUN - device;
    e->task[task].start_s = e->now_s;
    if (e->job.moves)
        weft_engine_moves_begin(e, task, device);
    if (e->job.memory)
        weft_engine_take(e, task);
}

static void begin_on(struct weft_engine *e, int32_t device, int64_t task)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    occupy(e, device, task);
    weft_engine_begun(e, task, device);
    if (t->position > 0) {
        struct weft_engine_gate *gate = weft_engine_gate(e, t);
        gate->begun++;
        gate_pass(e, gate);
    }
}

/* Begins the first task of a device, if it can. */
static void begin_first(struct weft_engine *e, int32_t device)
{
    int32_t *top;
    int32_t task = first_of(e, device, &top);
    int64_t first, end;
    if (task < 0 || e->device[device].task != WEFT_ENGINE_NONE)
        return;
    weft_recording_members(e->r, task, &first, &end);
    if (!can_begin(e, first, end))
        return;
    double longest = 0;
    for (int64_t i = first; i < end; i++) {
        int32_t d = end - first > 1 ? weft_engine_rec(e, i)->device : device;
        double s = e->job.seconds(e->job.ctx, e->r, i, d);
        longest = s > longest ? s : longest;
        first_of(e, d, &top);
        heap_take(e, top, ready_before);
        begin_on(e, d, i);
    }
    if (end - first > 1)
        device = weft_engine_rec(e, first)->device;
    weft_timers_set(&e->timers, device, e->now_s + longest);
}

void weft_engine_owe(struct weft_engine *e, int32_t rank, double s)
{
    if (!e->job.crowded)
        return;
    e->rank[rank].owed_s += s;
    e->owes = true;
}

/* Whatever needed a core of a rank now had an idle device's, or a task ends so
 * much later. Devices take turns; of a gang only that of the first member,
 * whose timer is that of all. */
static void settle(struct weft_engine *e, int32_t rank)
{
    struct weft_engine_rank *k = &e->rank[rank];
    int32_t places = e->job.places_per_rank, n = 0, turn;
    const struct weft_engine_place *place = &e->place[rank * places];
    int32_t from = place->first, end = place[places - 1].end;
    double s = k->owed_s;
    k->owed_s = 0;
    for (int32_t d = from; d < end; d++) {
        if (e->device[d].task == WEFT_ENGINE_NONE)
            return;
        n += weft_timers_is_set(&e->timers, d);
    }
    if (n == 0 || !(s > 0))
        return;
    turn = k->turn++ % n;
    for (int32_t d = from; d < end; d++)
        if (weft_timers_is_set(&e->timers, d) && turn-- == 0)
            weft_timers_set(&e->timers, d, e->timers.time[d] + s);
}

void weft_engine_begin_all(struct weft_engine *e)
{
    weft_engine_begin_posted(e);
    for (int32_t w = 0; w <= (e->job.n_devices - 1) / 64; w++)
        while (e->look[w]) {
            int32_t device = w * 64 + WEFT_LOWEST_BIT(e->look[w]);
            e->look[w] &= e->look[w] - 1;
            begin_first(e, device);
        }
    for (int32_t k = 0; k < e->n_ranks && e->owes; k++)
        settle(e, k);
    e->owes = false;
}

void weft_engine_end(struct weft_engine *e, int64_t task)
{
    e->task[task].end_s = e->now_s;
    if (e->job.moves)
        weft_engine_moves_end(e, task);
    weft_engine_leave(e, task);
    if (e->job.memory)
        weft_engine_give_temps(e, task);
    weft_engine_ended(e, task);
}

void weft_engine_device_ended(struct weft_engine *e, int32_t device)
{
    int64_t first, end;
    weft_recording_members(e->r, e->device[device].task, &first, &end);
    weft_timers_remove_first(&e->timers);
    for (int64_t i = first; i < end; i++) {
        int32_t number = WEFT_ENGINE_BEGUN - e->state[i];
        struct weft_engine_device *d = &e->device[number];
        d->task = WEFT_ENGINE_NONE;
        d->use.busy_s += e->now_s - e->task[i].start_s;
        d->idle_s = e->now_s;
        d->idle_clock_s = weft_engine_moved_s(e, e->job.place_of[number]);
        look_at(e, number);
    }
    for (int64_t i = first; i < end; i++)
        weft_engine_end(e, i);
}
