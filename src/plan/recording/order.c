/* SPDX-License-Identifier: Apache-2.0 */
/* What the tasks of a recording wait for, and how many are open at a time. */
#include <string.h>

#include "base/alloc.h"
#include "plan/recording.h"

enum { READS = 0 };

/* ---- Data -------------------------------------------------------------- */

void weft_rec_order_release(struct weft_rec_order *o)
{
    weft_free(o->task);
    weft_free(o->before);
    weft_free(o->writer);
    *o = (struct weft_rec_order){.r = NULL};
}

/* The latest access of a tile, and the latest that writes; -1: none. */
struct latest {
    int32_t any, writer;
};

int weft_rec_order_create(const struct weft_recording *r,
                          struct weft_rec_order *out, struct weft_err *err)
{
    size_t n = (size_t) r->n_accesses, tiles = (size_t) r->n_tiles;
    struct weft_rec_order o = {
        .r = r,
        .task = weft_alloc(n, sizeof *o.task),
        .before = weft_alloc(n, sizeof *o.before),
        .writer = weft_alloc(n, sizeof *o.writer),
    };
    struct latest *latest = weft_alloc(tiles, sizeof *latest);
    bool fits = r->n_accesses < INT32_MAX && r->n_tasks < INT32_MAX;
    if (!fits || !o.task || !o.before || !o.writer || !latest) {
        weft_rec_order_release(&o);
        weft_free(latest);
        return weft_err_nomem(err, "the order of tasks", n * 12);
    }
    memset(latest, 0xff, tiles * sizeof *latest);
    for (int64_t t = 0; t < r->n_tasks; t++)
        for (int64_t a = r->task[t].access;
             a < r->task[t].access + r->task[t].n_access; a++) {
            struct latest *tile = &latest[r->access[a].tile];
            o.task[a] = (int32_t) t;
            o.before[a] = tile->any;
            o.writer[a] = tile->writer;
            tile->any = (int32_t) a;
            if (r->access[a].mode != READS)
                tile->writer = (int32_t) a;
        }
    weft_free(latest);
    *out = o;
    return 0;
}

void weft_rec_order_visit(const struct weft_rec_order *o, int64_t task,
                          void (*visit)(void *ctx, int64_t before), void *ctx)
{
    const struct weft_rec_task *t = &o->r->task[task];
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        int64_t last = o->writer[a];
        if (last >= 0 && o->task[last] != task)
            visit(ctx, o->task[last]);
        if (o->r->access[a].mode == READS)
            continue;
        for (int64_t k = o->before[a]; k > last; k = o->before[k])
            if (o->task[k] != task)
                visit(ctx, o->task[k]);
    }
}

/* ---- Open tasks -------------------------------------------------------- */

struct count {
    const struct weft_recording *r;
    struct weft_rec_order order;
    int32_t places_per_rank;
    bool *ended;    /* (n_tasks) */
    int64_t *stack; /* (n_tasks) ended ones whose predecessors are not yet */
    int64_t n_stack;
    int64_t *late; /* (n_tasks) ended, with records that are still there */
    int64_t n_late;
    int64_t *last_writer;       /* (n_tiles) its task so far; -1 */
    int64_t first_open;         /* all tasks before have ended */
    struct weft_rec_open *open; /* (n_ranks) now ... */
    struct weft_rec_open *most; /* (n_ranks) ... and the most so far */
};

size_t weft_rec_task_bytes(int64_t n_accesses)
{
    enum {
        LIST = 32,
        ONE = 3600,
        SHORT = 90,
        LONG = 165
    }; /* lists of StarPU */
    return (size_t) (ONE + n_accesses * (n_accesses > LIST ? LONG : SHORT));
}

static void add_to(struct count *c, int32_t place, int64_t n_accesses,
                   int64_t sign)
{
    struct weft_rec_open *now = &c->open[place / c->places_per_rank];
    struct weft_rec_open *most = &c->most[place / c->places_per_rank];
    int64_t bytes = (int64_t) weft_rec_task_bytes(n_accesses);
    now->tasks += sign;
    now->bytes += sign * bytes;
    most->tasks = now->tasks > most->tasks ? now->tasks : most->tasks;
    most->bytes = now->bytes > most->bytes ? now->bytes : most->bytes;
    most->largest = bytes > most->largest ? bytes : most->largest;
}

/* Adds to the ranks that hold a record of the task; a message has one at
 * either end. */
static void add(struct count *c, int64_t task, int64_t sign)
{
    const struct weft_rec_task *t = &c->r->task[task];
    if (t->kind == WEFT_REC_TASK) {
        add_to(c, t->place, t->n_access, sign);
        return;
    }
    for (int32_t i = 0; i < t->n_access; i++) {
        int64_t tile = c->r->access[t->access + i].tile;
        add_to(c, c->r->tile[tile].place, 1, sign);
    }
}

static void end(void *ctx, int64_t task)
{
    struct count *c = ctx;
    if (c->ended[task])
        return;
    c->ended[task] = true;
    c->late[c->n_late++] = task;
    c->stack[c->n_stack++] = task;
}

/* A task has ended, and so has all that it waited for. */
static void end_all(struct count *c, int64_t task)
{
    end(c, task);
    while (c->n_stack > 0)
        weft_rec_order_visit(&c->order, c->stack[--c->n_stack], end, c);
}

static void give_back(struct count *c)
{
    while (c->n_late > 0)
        add(c, c->late[--c->n_late], -1);
}

/* Who waits for a tile may go on before the records of what has ended are
 * given back, so these count until the next wait. Who waits for a lot waits
 * for its records. */
static void wait(struct count *c, const struct weft_rec_wait *w)
{
    give_back(c);
    for (; c->first_open < w->ended; c->first_open++)
        end(c, c->first_open);
    give_back(c);
    c->n_stack = 0; /* what they waited for is among them */
    if (w->tile >= 0 && c->last_writer[w->tile] >= 0)
        end_all(c, c->last_writer[w->tile]);
}

static void insert(struct count *c, int64_t task)
{
    const struct weft_rec_task *t = &c->r->task[task];
    add(c, task, 1);
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (c->r->access[a].mode != READS)
            c->last_writer[c->r->access[a].tile] = task;
}

static int count_init(struct count *c, int32_t n_ranks, struct weft_err *err)
{
    size_t n = (size_t) c->r->n_tasks, tiles = (size_t) c->r->n_tiles;
    c->ended = weft_alloc(n, sizeof *c->ended);
    c->stack = weft_alloc(n, sizeof *c->stack);
    c->late = weft_alloc(n, sizeof *c->late);
    c->last_writer = weft_alloc(tiles, sizeof *c->last_writer);
    c->open = weft_alloc((size_t) n_ranks, sizeof *c->open);
    if (!c->ended || !c->stack || !c->late || !c->last_writer || !c->open)
        return weft_err_nomem(err, "counting open tasks", n * 8);
    memset(c->last_writer, 0xff, tiles * sizeof *c->last_writer);
    return weft_rec_order_create(c->r, &c->order, err);
}

static void count_release(struct count *c)
{
    weft_free(c->ended);
    weft_free(c->stack);
    weft_free(c->late);
    weft_free(c->last_writer);
    weft_free(c->open);
    weft_rec_order_release(&c->order);
}

int weft_recording_open(const struct weft_recording *r, int32_t n_ranks,
                        int32_t places_per_rank,
                        struct weft_rec_open *most_out, struct weft_err *err)
{
    struct count c = {
        .r = r, .places_per_rank = places_per_rank, .most = most_out};
    int64_t w = 0;
    int rc = count_init(&c, n_ranks, err);
    memset(most_out, 0, (size_t) n_ranks * sizeof *most_out);
    for (int64_t t = 0; t < r->n_tasks && !rc; t++) {
        for (; w < r->n_waits && r->wait[w].task <= t; w++)
            wait(&c, &r->wait[w]);
        insert(&c, t);
    }
    count_release(&c);
    return rc;
}
