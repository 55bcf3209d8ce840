/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recording_reach.h"

#include <string.h>

#include "base/alloc.h"

enum { READS = 0, WAITS = 0 };

/* Lanes of tasks without positions. Large recordings get fewer, so that their
 * prediction takes less time and may be less tight. */
static int32_t soft_lanes(const struct weft_recording *r)
{
    return r->n_tasks < 200000 ? 24 : 2;
}

/* A lane at the place that is looked from. */
struct weft_rec_lane {
    int32_t n;    /* tasks so far */
    int64_t last; /* the latest of them */
};

/* ---- Predecessors ------------------------------------------------------ */

struct finder {
    struct weft_rec_reach *x;
    int64_t task;
    int32_t *seen; /* (n_tasks) the last one that it was found for, + 1 */
    /* (n_samples) the samples' earliest tasks, and what these read */
    int32_t *sample;
    int64_t n_samples, sample_room;
    int64_t after_samples; /* the latest one that is after them; -1: none */
    bool full;
};

/* Adds a number to a list. */
static void append(struct finder *f, int32_t **list, int64_t *n,
                   int64_t *room, int64_t number)
{
    if (*n == *room) {
        int64_t more = *room * 2 + 1024;
        int32_t *larger = weft_realloc(*list, (size_t) more, sizeof *larger);
        f->full = f->full || !larger;
        if (!larger)
            return;
        *list = larger;
        *room = more;
    }
    (*list)[(*n)++] = (int32_t) number;
}

static void add_before(struct finder *f, int64_t before)
{
    struct weft_rec_reach *x = f->x;
    if (f->seen[before] == (int32_t) f->task + 1)
        return;
    f->seen[before] = (int32_t) f->task + 1;
    append(f, &x->before, &x->n_before, &x->before_room, before);
}

static void find(void *ctx, int64_t before)
{
    struct finder *f = ctx;
    const struct weft_rec_task *t = &f->x->r->task[f->task];
    const struct weft_rec_task *b = &f->x->r->task[before];
    if (t->when != WEFT_REC_EARLIEST || weft_rec_is_early(b->when)
        || t->iteration != b->iteration)
        add_before(f, before);
    else
        append(f, &f->sample, &f->n_samples, &f->sample_room, before);
}

/* Adds the samples' tasks of its iteration before a task that is after all of
 * them. */
static void find_samples(struct finder *f)
{
    const struct weft_rec_task *t = &f->x->r->task[f->task];
    if (t->when == WEFT_REC_EARLIEST)
        append(f, &f->sample, &f->n_samples, &f->sample_room, f->task);
    if (t->when != WEFT_REC_AFTER_SAMPLES)
        return;
    int64_t last = f->after_samples;
    f->after_samples = f->task;
    if (last >= 0 && f->x->r->task[last].iteration == t->iteration) {
        add_before(f, last);
        return;
    }
    for (int64_t i = 0; i < f->n_samples; i++)
        if (f->x->r->task[f->sample[i]].iteration == t->iteration)
            add_before(f, f->sample[i]);
}

/* The latest task with a position, by device and chain. */
struct turns {
    int64_t *last;  /* (n_devices, WEFT_N_CHAINS) -1: none */
    int64_t all, w; /* tasks that a wait for all has ended; next wait */
};

static void find_turn(struct finder *f, struct turns *turns)
{
    const struct weft_recording *r = f->x->r;
    const struct weft_rec_task *t = &r->task[f->task];
    for (; turns->w < r->n_waits && r->wait[turns->w].task <= f->task;
         turns->w++)
        if (r->wait[turns->w].tile < 0 && !r->wait[turns->w].local)
            turns->all = r->wait[turns->w].ended;
    if (t->kind != WEFT_REC_TASK || t->position <= 0)
        return;
    int64_t *last = &turns->last[t->device * WEFT_N_CHAINS + t->chain];
    if (*last >= turns->all) {
        /* positions begin again only after a wait for all */
        weft_assert(r->task[*last].position < t->position);
        add_before(f, *last);
    }
    *last = f->task;
}

static int find_all(struct weft_rec_reach *x, struct weft_err *err)
{
    size_t n = (size_t) x->r->n_tasks;
    size_t n_lanes = (size_t) x->n_devices * WEFT_N_CHAINS;
    struct finder f = {
        .x = x, .seen = weft_alloc(n, sizeof *f.seen), .after_samples = -1};
    struct turns turns = {.last = weft_alloc(n_lanes, sizeof *turns.last)};
    f.full = !f.seen || !turns.last;
    if (!f.full)
        memset(turns.last, 0xff, n_lanes * sizeof *turns.last);
    for (; f.task < x->r->n_tasks && !f.full; f.task++) {
        x->first[f.task] = x->n_before;
        weft_rec_order_visit(&x->order, f.task, find, &f);
        find_samples(&f);
        find_turn(&f, &turns);
    }
    x->first[x->r->n_tasks] = x->n_before;
    weft_free(f.seen);
    weft_free(f.sample);
    weft_free(turns.last);
    return f.full ? weft_err_nomem(err, "the order of tasks", n * 16) : 0;
}

/* The last task that had written the tile of each wait. */
static int find_writers(struct weft_rec_reach *x, struct weft_err *err)
{
    const struct weft_recording *r = x->r;
    int32_t *last = weft_alloc((size_t) r->n_tiles, sizeof *last);
    int64_t w = 0;
    if (!last)
        return weft_err_nomem(err, "the order of tasks",
                              (size_t) r->n_tiles * sizeof *last);
    memset(last, 0xff, (size_t) r->n_tiles * sizeof *last);
    for (int64_t t = 0; t <= r->n_tasks; t++) {
        for (; w < r->n_waits && r->wait[w].task <= t; w++)
            x->writer[w] = r->wait[w].tile < 0 ? -1 : last[r->wait[w].tile];
        for (int64_t a = t < r->n_tasks ? r->task[t].access : 0;
             t < r->n_tasks && a < r->task[t].access + r->task[t].n_access;
             a++)
            if (r->access[a].mode != READS)
                last[r->access[a].tile] = (int32_t) t;
    }
    weft_free(last);
    return 0;
}

int weft_rec_reach_create(const struct weft_recording *r,
                          int32_t places_per_rank, struct weft_rec_reach *out,
                          struct weft_err *err)
{
    size_t n = (size_t) r->n_tasks;
    *out = (struct weft_rec_reach){.r = r,
                                   .places_per_rank = places_per_rank};
    weft_assert(r->n_tasks < INT32_MAX);
    for (int64_t t = 0; t < r->n_tasks; t++)
        if (r->task[t].device >= out->n_devices)
            out->n_devices = r->task[t].device + 1;
    out->first = weft_alloc(n + 1, sizeof *out->first);
    out->lane = weft_alloc(n, sizeof *out->lane);
    out->writer = weft_alloc((size_t) r->n_waits, sizeof *out->writer);
    out->of_device = weft_alloc((size_t) out->n_devices * WEFT_N_CHAINS,
                                sizeof *out->of_device);
    int rc = weft_rec_order_create(r, &out->order, err);
    if (!rc && (!out->first || !out->lane || !out->writer || !out->of_device))
        rc = weft_err_nomem(err, "the order of tasks", n * 16);
    if (!rc)
        rc = find_all(out, err);
    if (!rc)
        rc = find_writers(out, err);
    if (rc)
        weft_rec_reach_release(out);
    return rc;
}

void weft_rec_reach_release(struct weft_rec_reach *x)
{
    weft_rec_order_release(&x->order);
    weft_free(x->first);
    weft_free(x->before);
    weft_free(x->writer);
    weft_free(x->lane);
    weft_free(x->has);
    weft_free(x->leads);
    weft_free(x->open);
    weft_free(x->of_device);
    *x = (struct weft_rec_reach){.r = NULL};
}

/* ---- From a place ------------------------------------------------------ */

static int32_t rank_of(const struct weft_rec_reach *x, int32_t place)
{
    return place / x->places_per_rank;
}

/* Whether a task, or an end of a message, is of the rank. */
static bool is_of(const struct weft_rec_reach *x, int64_t task, int32_t rank)
{
    const struct weft_rec_task *t = &x->r->task[task];
    if (t->kind == WEFT_REC_TASK)
        return rank_of(x, t->place) == rank;
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (rank_of(x, x->r->tile[x->r->access[a].tile].place) == rank)
            return true;
    return false;
}

/* The lanes of devices at the place; the waits' is number 0. */
static int32_t strict_lanes(struct weft_rec_reach *x, int32_t place)
{
    int32_t n = 1;
    memset(x->of_device, 0xff,
           (size_t) x->n_devices * WEFT_N_CHAINS * sizeof *x->of_device);
    for (int64_t i = 0; i < x->r->n_tasks; i++) {
        const struct weft_rec_task *t = &x->r->task[i];
        if (t->kind != WEFT_REC_TASK || t->position <= 0 || t->place != place)
            continue;
        int32_t *lane = &x->of_device[t->device * WEFT_N_CHAINS + t->chain];
        if (*lane < 0)
            *lane = n++;
    }
    return n;
}

static int make_room(struct weft_rec_reach *x, int32_t n_lanes,
                     struct weft_err *err)
{
    x->n_lanes = n_lanes;
    if (n_lanes > x->room_lanes) {
        size_t n = (size_t) x->r->n_tasks * (size_t) n_lanes;
        weft_free(x->has);
        weft_free(x->leads);
        weft_free(x->open);
        x->has = weft_alloc(n, sizeof *x->has);
        x->leads = weft_alloc(n, sizeof *x->leads);
        x->open = weft_alloc((size_t) n_lanes, sizeof *x->open);
        x->room_lanes = n_lanes;
        if (!x->has || !x->leads || !x->open) {
            x->room_lanes = 0;
            return weft_err_nomem(err, "the order of tasks", n * 8);
        }
    }
    memset(x->open, 0, (size_t) n_lanes * sizeof *x->open);
    return 0;
}

/* The lane of a task without a position: the latest one whose tasks have all
 * ended before it, or a new one; -1: there are too many. */
static int32_t soft_lane(const struct weft_rec_reach *x, int32_t first,
                         const int32_t *has)
{
    int32_t best = -1;
    for (int32_t l = first; l < x->n_lanes; l++) {
        if (x->open[l].n == 0)
            return best >= 0 ? best : l;
        if (has[l] == x->open[l].n
            && (best < 0 || x->open[l].last > x->open[best].last))
            best = l;
    }
    return best;
}

static int32_t lane_of(const struct weft_rec_reach *x, int64_t task,
                       int32_t place, int32_t n_strict, const int32_t *has)
{
    const struct weft_rec_task *t = &x->r->task[task];
    if (t->kind != WEFT_REC_TASK || t->place != place)
        return -1;
    return t->position > 0
             ? x->of_device[t->device * WEFT_N_CHAINS + t->chain]
             : soft_lane(x, n_strict, has);
}

/* Waits that are over when tasks are inserted, by what the tasks are. */
struct over {
    int64_t w;
    int32_t all;   /* the last that ends no rank's tasks alone */
    int32_t local; /* the last */
    int32_t early; /* the last that is not for a tile */
};

static void pass_waits(const struct weft_rec_reach *x, int64_t task,
                       struct over *o)
{
    for (; o->w < x->r->n_waits && x->r->wait[o->w].task <= task; o->w++) {
        const struct weft_rec_wait *w = &x->r->wait[o->w];
        o->local = (int32_t) o->w + 1;
        if (!w->local)
            o->all = o->local;
        if (w->tile < 0)
            o->early = o->local;
    }
}

static void look_back(struct weft_rec_reach *x, int32_t place,
                      int32_t n_strict)
{
    struct over over = {0};
    size_t n = (size_t) x->n_lanes;
    for (int64_t t = 0; t < x->r->n_tasks; t++) {
        int32_t *has = x->has + (size_t) t * n;
        memset(has, 0, n * sizeof *has);
        for (int64_t k = x->first[t]; k < x->first[t + 1]; k++) {
            const int32_t *b = x->has + (size_t) x->before[k] * n;
            for (size_t l = 0; l < n; l++)
                has[l] = b[l] > has[l] ? b[l] : has[l];
        }
        pass_waits(x, t, &over);
        int32_t waits = weft_rec_is_early(x->r->task[t].when) ? over.early
                      : is_of(x, t, rank_of(x, place))        ? over.local
                                                              : over.all;
        has[WAITS] = waits > has[WAITS] ? waits : has[WAITS];
        int32_t lane = lane_of(x, t, place, n_strict, has);
        x->lane[t] = lane;
        if (lane >= 0) {
            x->open[lane].last = t;
            has[lane] = ++x->open[lane].n;
        }
    }
}

/* Notes for every task the first wait that it has ended before. */
static void first_waits(struct weft_rec_reach *x, int32_t place)
{
    size_t n = (size_t) x->n_lanes;
    int32_t rank = rank_of(x, place);
    int64_t done = 0, local = 0;
    for (int64_t i = 0; i < x->r->n_waits; i++) {
        const struct weft_rec_wait *w = &x->r->wait[i];
        int32_t number = (int32_t) i + 1;
        int64_t *from = w->local ? &local : &done;
        for (; *from < w->ended; ++*from) {
            int32_t *leads = x->leads + (size_t) *from * n;
            if (leads[WAITS] == WEFT_REC_NEVER
                && (!w->local || is_of(x, *from, rank)))
                leads[WAITS] = number;
        }
        if (x->writer[i] < 0)
            continue;
        int32_t *leads = x->leads + (size_t) x->writer[i] * n;
        leads[WAITS] = leads[WAITS] < number ? leads[WAITS] : number;
    }
}

static void look_ahead(struct weft_rec_reach *x, int32_t place)
{
    size_t n = (size_t) x->n_lanes;
    for (int64_t i = 0; i < x->r->n_tasks * (int64_t) n; i++)
        x->leads[i] = WEFT_REC_NEVER;
    first_waits(x, place);
    for (int64_t t = x->r->n_tasks - 1; t >= 0; t--) {
        int32_t *leads = x->leads + (size_t) t * n;
        if (x->lane[t] >= 0)
            leads[x->lane[t]] = x->has[(size_t) t * n + (size_t) x->lane[t]];
        for (int64_t k = x->first[t]; k < x->first[t + 1]; k++) {
            int32_t *b = x->leads + (size_t) x->before[k] * n;
            for (size_t l = 0; l < n; l++)
                b[l] = leads[l] < b[l] ? leads[l] : b[l];
        }
    }
}

int weft_rec_reach_look(struct weft_rec_reach *x, int32_t place,
                        struct weft_err *err)
{
    int32_t n_strict = strict_lanes(x, place);
    int rc = make_room(x, n_strict + soft_lanes(x->r), err);
    if (rc)
        return rc;
    look_back(x, place, n_strict);
    look_ahead(x, place);
    return 0;
}

const int32_t *weft_rec_reach_has(const struct weft_rec_reach *x,
                                  int64_t task)
{
    return x->has + (size_t) task * (size_t) x->n_lanes;
}

const int32_t *weft_rec_reach_leads(const struct weft_rec_reach *x,
                                    int64_t task)
{
    return x->leads + (size_t) task * (size_t) x->n_lanes;
}

int32_t weft_rec_reach_wait(const struct weft_rec_reach *x, int64_t tasks,
                            bool early)
{
    int64_t low = 0, high = x->r->n_waits;
    while (low < high) {
        int64_t half = (low + high) / 2;
        if (x->r->wait[half].task < tasks)
            low = half + 1;
        else
            high = half;
    }
    while (early && low > 0 && x->r->wait[low - 1].tile >= 0)
        low--;
    return (int32_t) low;
}
