/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/engine/inside.h"

#include <string.h>

#include "base/alloc.h"

/* ---- Life -------------------------------------------------------------- */

bool weft_engine_room(struct weft_engine *e, void *array, int64_t used,
                      int64_t *room, size_t size)
{
    void **list = array;
    if (used < *room)
        return true;
    int64_t more = *room + *room / 2 + 16;
    void *larger = weft_realloc(*list, (size_t) more, size);
    e->full = e->full || !larger;
    if (!larger)
        return false;
    *list = larger;
    *room = more;
    return true;
}

static bool tables_create(struct weft_engine *e)
{
    size_t devices = (size_t) e->job.n_devices;
    size_t places = (size_t) e->job.n_places;
    size_t ranks = (size_t) e->n_ranks, links = (size_t) e->job.n_links;
    e->device = weft_alloc(devices, sizeof *e->device);
    e->gate = weft_alloc(devices * WEFT_N_CHAINS, sizeof *e->gate);
    e->look = weft_alloc(devices / 64 + 1, sizeof *e->look);
    e->place = weft_alloc(places, sizeof *e->place);
    e->rank = weft_alloc(ranks, sizeof *e->rank);
    e->in_lot = weft_alloc(ranks, sizeof *e->in_lot);
    e->lot_room = 1;
    e->link = weft_alloc(links, sizeof *e->link);
    e->gap = weft_alloc((size_t) e->job.n_iterations * WEFT_MAX_CALLS,
                        sizeof *e->gap);
    if (e->job.n_slices > 0)
        e->slice = weft_alloc(places * (size_t) e->job.n_slices,
                              sizeof *e->slice);
    return e->device && e->gate && e->look && e->place && e->rank && e->in_lot
        && e->link && e->gap && (e->slice || e->job.n_slices == 0)
        && weft_timers_room(&e->timers, e->job.n_devices + e->job.n_links
                                            + e->n_ranks + 1);
}

static void tables_init(struct weft_engine *e)
{
    for (int32_t d = 0; d < e->job.n_devices; d++) {
        struct weft_engine_place *p = &e->place[e->job.place_of[d]];
        e->device[d].lane = e->device[d].task = WEFT_ENGINE_NONE;
        if (p->end == 0)
            p->first = d;
        p->end = d + 1;
    }
    for (int32_t p = 0; p < e->job.n_places; p++)
        e->place[p].shared = WEFT_ENGINE_NONE;
    for (int32_t k = 0; k < e->n_ranks; k++)
        e->rank[k].hold = e->rank[k].inserts = WEFT_ENGINE_NONE;
    for (int64_t i = 0; i < (int64_t) e->job.n_devices * WEFT_N_CHAINS; i++)
        e->gate[i].waiting = WEFT_ENGINE_NONE;
}

int weft_engine_create(const struct weft_engine_job *job,
                       const struct weft_recording *r,
                       struct weft_engine **out, struct weft_err *err)
{
    struct weft_engine *e = weft_alloc(1, sizeof *e);
    if (!e)
        return weft_err_nomem(err, "the event engine", sizeof *e);
    *e = (struct weft_engine){.job = *job,
                              .r = r,
                              .n_ranks = job->n_places / job->places_per_rank,
                              .free_hold = WEFT_ENGINE_NONE,
                              .free_flight = WEFT_ENGINE_NONE,
                              .posted = WEFT_ENGINE_NONE,
                              .slice_s = 0x1p-30};
    int rc = 0;
    if (!tables_create(e))
        rc = weft_err_nomem(err, "the event engine",
                            (size_t) job->n_devices * 64);
    if (!rc) {
        tables_init(e);
        rc = weft_engine_extend(e, err);
    }
    if (rc)
        weft_engine_free(e);
    else
        *out = e;
    return rc;
}

void weft_engine_free(struct weft_engine *e)
{
    if (!e)
        return;
    for (int32_t i = 0; e->link && i < e->job.n_links; i++)
        weft_free(e->link[i].load);
    weft_free(e->task);
    weft_free(e->state);
    weft_free(e->access);
    weft_free(e->owner);
    weft_free(e->tile);
    weft_free(e->in_lot);
    weft_free(e->rank);
    weft_free(e->hold);
    weft_free(e->gate);
    weft_free(e->device);
    weft_free(e->look);
    weft_free(e->place);
    weft_free(e->link);
    weft_free(e->flight);
    weft_free(e->idle);
    weft_free(e->could_s);
    weft_free(e->came);
    weft_free(e->waited);
    weft_free(e->gap);
    weft_free(e->slice);
    weft_timers_release(&e->timers);
    weft_free(e);
}

/* ---- Taking in --------------------------------------------------------- */

static void grow(struct weft_engine *e, void *array, int64_t room,
                 size_t size)
{
    void **list = array;
    void *larger = weft_realloc(*list, (size_t) room, size);
    e->full = e->full || !larger;
    if (larger)
        *list = larger;
}

/* What room there is to be for n; as much as is needed, at first. */
static bool grows(int64_t *room, int64_t n)
{
    if (n <= *room)
        return false;
    *room = n > *room + *room / 2 ? n : *room + *room / 2;
    return true;
}

static int status(const struct weft_engine *e, struct weft_err *err)
{
    return e->full ? weft_err_nomem(err, "the event engine",
                                    (size_t) e->n_tasks * 40)
                   : 0;
}

int weft_engine_extend(struct weft_engine *e, struct weft_err *err)
{
    const struct weft_recording *r = e->r;
    if (r->n_tasks >= INT32_MAX || r->n_accesses >= WEFT_ENGINE_SKIPPED)
        return weft_err_set(err, WEFT_ENOMEM,
                            "a run of %lld tasks that use %lld tiles is too "
                            "large to simulate: take fewer iterations",
                            (long long) r->n_tasks,
                            (long long) r->n_accesses);
    if (grows(&e->task_room, r->n_tasks)) {
        grow(e, &e->task, e->task_room, sizeof *e->task);
        grow(e, &e->state, e->task_room, sizeof *e->state);
        if (e->job.moves)
            grow(e, &e->could_s, e->task_room, sizeof *e->could_s);
    }
    if (grows(&e->access_room, r->n_accesses)) {
        grow(e, &e->access, e->access_room, sizeof *e->access);
        grow(e, &e->owner, e->access_room / WEFT_ENGINE_BLOCK + 1,
             sizeof *e->owner);
    }
    if (grows(&e->tile_room, r->n_tiles)) {
        grow(e, &e->tile, e->tile_room, sizeof *e->tile);
        if (e->job.moves)
            grow(e, &e->came, e->tile_room, sizeof *e->came);
    }
    if (e->full)
        return status(e, err);
    e->n_tasks = r->n_tasks;
    e->n_tiles = r->n_tiles;
    weft_engine_look_again(e);
    weft_engine_insert(e);
    weft_engine_begin_all(e);
    return status(e, err);
}

/* ---- Going on ---------------------------------------------------------- */

static void timer_ended(struct weft_engine *e, int32_t timer)
{
    int32_t links = e->job.n_devices, ranks = links + e->job.n_links;
    int32_t flights = ranks + e->n_ranks;
    if (timer >= flights)
        weft_engine_flight_ended(e, timer - flights);
    else if (timer >= ranks)
        weft_engine_inserted(e, timer - ranks);
    else if (timer >= links)
        weft_engine_link_ended(e, timer - links);
    else
        weft_engine_device_ended(e, timer);
}

bool weft_engine_advance(struct weft_engine *e)
{
    const struct weft_timers *t = &e->timers;
    if (t->n == 0 || e->full)
        return false;
    e->now_s = t->time[t->heap[0]];
    if (e->slice)
        weft_engine_slice_widen(e);
    while (t->n > 0 && t->time[t->heap[0]] <= e->now_s && !e->full)
        timer_ended(e, t->heap[0]);
    weft_engine_insert(e);
    weft_engine_begin_all(e);
    return true;
}

/* Says why the first task that has not ended never begins. */
static int stuck(const struct weft_engine *e, struct weft_err *err)
{
    int64_t i = 0;
    while (i < e->inserted && e->task[i].end_s >= 0)
        i++;
    if (i == e->inserted)
        return weft_err_set(err, WEFT_EINVAL,
                            "the program waits for what never comes after "
                            "task %lld",
                            (long long) i);
    const struct weft_rec_task *t = &e->r->task[i];
    return weft_err_set(
        err, WEFT_EINVAL, "task %lld (%s, device %d) never begins: %s",
        (long long) i, weft_recording_op(e->r, i), (int) t->device,
        e->state[i] > 0 ? "what it waits for never ends"
                        : "its turn never comes");
}

int weft_engine_run(struct weft_engine *e, struct weft_err *err)
{
    while (weft_engine_advance(e))
        continue;
    if (e->full)
        return status(e, err);
    return e->inserted < e->n_tasks || e->n_open > 0 ? stuck(e, err) : 0;
}

/* ---- What was played --------------------------------------------------- */

double weft_engine_now_s(const struct weft_engine *e)
{
    return e->now_s;
}

bool weft_engine_span(const struct weft_engine *e, int64_t task,
                      struct weft_span *out, int32_t *device_out)
{
    if (task >= e->inserted || e->task[task].end_s < 0)
        return false;
    *out = (struct weft_span){e->task[task].start_s, e->task[task].end_s};
    *device_out = WEFT_ENGINE_BEGUN - e->state[task];
    return true;
}

struct weft_engine_use weft_engine_use(const struct weft_engine *e,
                                       int32_t device)
{
    struct weft_engine_use use = e->device[device].use;
    if (e->device[device].task == WEFT_ENGINE_NONE)
        use.moving_s += weft_engine_moved_s(e, e->job.place_of[device])
                      - e->device[device].idle_clock_s;
    else
        use.busy_s += e->now_s - e->task[e->device[device].task].start_s;
    return use;
}

struct weft_engine_gap weft_engine_gap(const struct weft_engine *e,
                                       int32_t iteration, int32_t call)
{
    int32_t i = iteration - e->job.first_iteration;
    return e->gap[(int64_t) i * WEFT_MAX_CALLS + call];
}

const int64_t *weft_engine_memory(const struct weft_engine *e, int32_t place)
{
    return e->place[place].peak;
}
