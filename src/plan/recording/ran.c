/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recording.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/card_memory.h"

enum { READS = 0 };

/* A tile with memory: from when on, and until when; INT64_MAX: not, or for
 * ever. */
struct life {
    int64_t begin, end;
};

/* struct weft_rec_moments, of tasks that were not inserted too */
struct moments {
    int64_t inserted, began, ended;
};

/* A tile gets its memory, or gives it back. */
struct change {
    int64_t at;
    int32_t tile;
    bool gives;
};

struct play {
    const struct weft_recording *r;
    const struct weft_rec_played *played;
    int64_t last;      /* event so far */
    int64_t *inserted; /* (n_tasks + 1) when a task or one after it was */
    struct life *life; /* (n_tiles) */
    bool *written;     /* (n_tiles) so far */
    struct change *change;
    int64_t n_changes;
};

/* ---- When tiles have memory -------------------------------------------- */

static int64_t last_event(const struct play *p)
{
    int64_t last = 0;
    for (int64_t t = 0; t < p->r->n_tasks; t++) {
        const struct weft_rec_moments *m = &p->played->moments[t];
        last = weft_max64(last, weft_max64(m->inserted, m->ended));
        last = weft_max64(last, m->began);
    }
    return last;
}

static struct moments moments_of(struct play *p, int64_t task)
{
    const struct weft_rec_moments *m = &p->played->moments[task];
    if (m->inserted)
        return (struct moments){m->inserted, m->began, m->ended};
    p->last += 3;
    return (struct moments){p->last - 2, p->last - 1, p->last};
}

/* Notes a use of a tile. Memory comes with its first writer: what writes it or
 * a part of it later waits for that, but parts have first writers of their
 * own. */
static void use(struct play *p, struct weft_rec_access a,
                const struct moments *m)
{
    int32_t whole = p->r->tile[a.tile].whole;
    if (whole < 0)
        whole = (int32_t) a.tile;
    struct life *life = &p->life[whole];
    if (a.mode != READS && !p->written[a.tile] && !p->written[whole]
        && m->began)
        life->begin = weft_min64(life->begin, m->began);
    p->written[a.tile] = p->written[a.tile] || a.mode != READS;
    life->end = weft_max64(life->end, m->ended ? m->ended : INT64_MAX);
}

static void follow_tasks(struct play *p)
{
    const struct weft_recording *r = p->r;
    for (int64_t t = 0; t < r->n_tasks; t++) {
        struct moments m = moments_of(p, t);
        p->inserted[t] = m.inserted;
        for (int64_t a = r->task[t].access;
             a < r->task[t].access + r->task[t].n_access; a++)
            use(p, r->access[a], &m);
    }
    p->inserted[r->n_tasks] = INT64_MAX;
}

/* When a tile was released: by when the next task was inserted, if it was not
 * noted; never, if it has not been and only the recording's end releases it. */
static int64_t released_at(const struct play *p, int64_t tile)
{
    int64_t tasks = p->r->tile[tile].released;
    int32_t noted = p->played->released[tile];
    return noted ? noted : p->inserted[tasks];
}

static void bound_lives(struct play *p)
{
    const struct weft_recording *r = p->r;
    for (int64_t i = 0; i < r->n_tiles; i++) {
        const struct weft_rec_tile *t = &r->tile[i];
        struct life *life = &p->life[i];
        if (t->permanent)
            life->begin = t->created > 0 ? p->inserted[t->created - 1] : 0;
        life->end = t->released < 0
                      ? INT64_MAX
                      : weft_max64(life->end, released_at(p, i));
    }
}

/* ---- What they take ---------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->gives != y->gives)
        return x->gives ? -1 : 1;
    return x->tile < y->tile ? -1 : x->tile > y->tile;
}

static void list_changes(struct play *p)
{
    for (int32_t i = 0; i < (int32_t) p->r->n_tiles; i++) {
        struct life life = p->life[i];
        if (p->r->tile[i].whole >= 0 || life.begin == INT64_MAX)
            continue;
        p->change[p->n_changes++] = (struct change){life.begin, i, false};
        if (life.end != INT64_MAX)
            p->change[p->n_changes++] = (struct change){life.end, i, true};
    }
    qsort(p->change, (size_t) p->n_changes, sizeof *p->change, by_time);
}

static void add(int64_t *now, int64_t *most, int64_t bytes)
{
    *now += bytes;
    *most = weft_max64(*now, *most);
}

/* Slots of a GPU's place that are in use, and the pages that they have. */
struct slots {
    int64_t bytes[WEFT_CARD_KINDS], pages[WEFT_CARD_KINDS];
};

/* What a slot adds to a GPU's pages: a page that has none in use may go back,
 * but which have is not known, so that none does. */
static int64_t pages_added(struct slots *s, int kind, int64_t bytes)
{
    int64_t *pages = &s->pages[kind], before = *pages;
    s->bytes[kind] += bytes;
    *pages = weft_max64(before,
                        weft_ceil_div(s->bytes[kind], WEFT_CARD_PAGE_BYTES));
    return (*pages - before) * WEFT_CARD_PAGE_BYTES;
}

static void make_change(const struct play *p, const struct change *change,
                        bool is_gpu, struct slots *slots, int64_t *now,
                        int64_t *most)
{
    const struct weft_rec_tile *t = &p->r->tile[change->tile];
    int64_t bytes = weft_rec_tile_block_bytes(p->r, t)
                  * (change->gives ? -1 : 1);
    enum weft_mem_class c = (enum weft_mem_class) t->mem;
    add(&now[c], &most[c], bytes);
    if (!weft_mem_class_at_place(c) || (is_gpu && weft_mem_class_on_host(c)))
        return;
    int kind = is_gpu ? weft_card_kind(t->bytes, c) : WEFT_CARD_NO_KIND;
    if (kind != WEFT_CARD_NO_KIND)
        bytes = pages_added(slots, kind, bytes);
    add(&now[WEFT_MEM_ALL], &most[WEFT_MEM_ALL], bytes);
}

static void make_changes(const struct play *p, int32_t places_per_rank,
                         struct slots *slots,
                         int64_t (*now)[WEFT_MEM_ALL + 1],
                         int64_t (*most)[WEFT_MEM_ALL + 1])
{
    for (int64_t i = 0; i < p->n_changes; i++) {
        int32_t place = p->r->tile[p->change[i].tile].place;
        make_change(p, &p->change[i], place % places_per_rank < p->r->n_gpus,
                    &slots[place], now[place], most[place]);
    }
}

int weft_recording_memory_ran(const struct weft_recording *r,
                              const struct weft_rec_played *played,
                              int32_t n_places, int32_t places_per_rank,
                              int64_t (*out)[WEFT_MEM_ALL + 1],
                              struct weft_err *err)
{
    size_t n = (size_t) r->n_tiles, places = (size_t) n_places;
    struct play p = {
        .r = r,
        .played = played,
        .inserted = weft_alloc((size_t) r->n_tasks + 1, sizeof *p.inserted),
        .life = weft_alloc(n, sizeof *p.life),
        .written = weft_alloc(n, sizeof *p.written),
        .change = weft_alloc(2 * n, sizeof *p.change)};
    int64_t(*now)[WEFT_MEM_ALL + 1] = weft_alloc(places, sizeof *now);
    struct slots *slots = weft_alloc(places, sizeof *slots);
    int rc = p.inserted && p.life && p.written && p.change && now && slots
               ? 0
               : weft_err_nomem(err, "a memory plan", n * sizeof *p.change);
    memset(out, 0, places * sizeof *out);
    for (size_t i = 0; i < n && !rc; i++)
        p.life[i].begin = INT64_MAX;
    if (!rc) {
        p.last = last_event(&p);
        follow_tasks(&p);
        bound_lives(&p);
        list_changes(&p);
        make_changes(&p, places_per_rank, slots, now, out);
    }
    weft_free(p.inserted);
    weft_free(p.life);
    weft_free(p.written);
    weft_free(p.change);
    weft_free(now);
    weft_free(slots);
    return rc;
}
