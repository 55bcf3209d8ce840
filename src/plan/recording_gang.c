/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gangs: what was recorded since an instruction of a tp group began is its
 * expansion. When it ends, one task per member takes the expansion's place,
 * here of two members that exchange the tiles a and b:
 *
 *     device 0   part (W a), message a   \    layer (x, W y) (W temporaries)
 *                join (x, a, b', W y)     \
 *     device 1   part (W b), message b    /   layer (x', W y') (W temporaries)
 *                join (x', a', b, W y')  /
 *
 * Tiles that were created and released within are no more; instead each member
 * has one tile of a class, of all their bytes together: no order of its tasks
 * and messages takes more. Gangs within are taken one after another, so that
 * only the largest counts.
 */
#include <string.h>

#include "base/alloc.h"
#include "plan/recording.h"

enum { READS, WRITES, BOTH };

/* What becomes one task. */
struct member {
    struct weft_rec_task first; /* the first of its tasks with a device */
    int64_t n_expanded, received_bytes;
    int64_t sum[WEFT_N_MEM_CLASSES], within[WEFT_N_MEM_CLASSES];
    int64_t access, n_access;         /* in fold.access */
    int32_t tile[WEFT_N_MEM_CLASSES]; /* its temporaries; -1: none */
};

struct fold {
    struct weft_recording *r;
    struct weft_rec_mark from;
    struct member *member;
    int64_t n;
    int32_t *of;                    /* (tasks) member, by task - from.task */
    struct weft_rec_access *access; /* of all members, one after another */
    int64_t n_accesses;
    int32_t *slot; /* (n_tiles) from 1 on: where a tile is in `access` */
};

/* ---- Members ----------------------------------------------------------- */

/* Tasks of a device are a member's; what has none, like a message, belongs to
 * the first member at its place. */
static int64_t find_member(const struct fold *f,
                           const struct weft_rec_task *t)
{
    int64_t k = 0;
    while (k < f->n
           && (t->device >= 0 ? f->member[k].first.device != t->device
                              : f->member[k].first.place != t->place))
        k++;
    return k;
}

static void find_members(struct fold *f)
{
    const struct weft_recording *r = f->r;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = f->from.task; i < r->n_tasks; i++) {
            const struct weft_rec_task *t = &r->task[i];
            if ((t->device >= 0) != (pass == 0))
                continue;
            int64_t k = find_member(f, t);
            if (k == f->n)
                f->member[f->n++].first = *t;
            if (!f->member[k].first.position)
                f->member[k].first.position = t->position;
            f->of[i - f->from.task] = (int32_t) k;
        }
}

/* ---- What a member takes ----------------------------------------------- */

static int32_t whole_of(const struct weft_recording *r, int32_t tile)
{
    return r->tile[tile].whole < 0 ? tile : r->tile[tile].whole;
}

static bool is_within(const struct fold *f, int32_t tile)
{
    int32_t whole = whole_of(f->r, tile);
    return whole >= f->from.tile && f->r->tile[whole].released >= 0;
}

/* Counts a tile that is there only within, for the first member at its place
 * that uses it. */
static void add_temporary(struct fold *f, struct member *m, int32_t tile)
{
    int32_t whole = whole_of(f->r, tile);
    const struct weft_rec_tile *t = &f->r->tile[whole];
    int64_t bytes = (int64_t) t->bytes;
    if (f->slot[whole] || t->place != m->first.place)
        return;
    f->slot[whole] = 1;
    if (!t->gang)
        m->sum[t->mem] += bytes;
    else if (bytes > m->within[t->mem])
        m->within[t->mem] = bytes;
}

static void add_temporaries(struct fold *f)
{
    const struct weft_recording *r = f->r;
    for (int64_t i = f->from.task; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        for (int64_t a = t->access; a < t->access + t->n_access; a++)
            if (is_within(f, (int32_t) r->access[a].tile))
                add_temporary(f, &f->member[f->of[i - f->from.task]],
                              (int32_t) r->access[a].tile);
    }
}

static void add_outside(struct fold *f, struct member *m,
                        struct weft_rec_access a)
{
    int32_t *slot = &f->slot[a.tile];
    weft_assert(f->r->tile[a.tile].place == m->first.place);
    if (!*slot) {
        f->access[f->n_accesses++] = a;
        *slot = (int32_t) (f->n_accesses - m->access);
        return;
    }
    /* a tile that is written first, whole, is not read */
    struct weft_rec_access *before = &f->access[m->access + *slot - 1];
    if (before->mode == READS && a.mode != READS)
        before->mode = BOTH;
}

/* Bytes that the task brings from another place. */
static int64_t bytes_received(const struct weft_recording *r,
                              const struct weft_rec_task *t)
{
    bool far = t->kind == WEFT_REC_MESSAGE;
    int64_t bytes = 0;
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        const struct weft_rec_tile *tile = &r->tile[r->access[a].tile];
        far = far || tile->place != t->place;
        if (r->access[a].mode != READS && tile->place == t->place)
            bytes += (int64_t) tile->bytes;
    }
    return far ? bytes : 0;
}

static void add_task(struct fold *f, struct member *m,
                     const struct weft_rec_task *t,
                     const struct weft_rec_gang *gang)
{
    const struct weft_recording *r = f->r;
    m->n_expanded += gang ? gang->n_expanded : 1;
    m->received_bytes += gang ? gang->received_bytes : bytes_received(r, t);
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (!is_within(f, (int32_t) r->access[a].tile))
            add_outside(f, m, r->access[a]);
}

static void fill_member(struct fold *f, int64_t k)
{
    const struct weft_recording *r = f->r;
    struct member *m = &f->member[k];
    int64_t g = f->from.gang;
    m->access = f->n_accesses;
    for (int64_t i = f->from.task; i < r->n_tasks; i++) {
        for (; g < r->n_gangs && r->gang[g].task < i; g++)
            continue;
        if (f->of[i - f->from.task] == k)
            add_task(f, m, &r->task[i],
                     g < r->n_gangs && r->gang[g].task == i ? &r->gang[g]
                                                            : NULL);
    }
    m->n_access = f->n_accesses - m->access;
    for (int64_t a = m->access; a < f->n_accesses; a++)
        f->slot[f->access[a].tile] = 0;
}

/* ---- In place of the expansion ----------------------------------------- */

/* Takes back what was recorded since, but the tiles that are still there. */
static void take_back(struct fold *f)
{
    struct weft_recording *r = f->r;
    int64_t n = f->from.released;
    for (int64_t i = n; i < r->n_released; i++)
        if (r->released[i] < f->from.tile)
            r->released[n++] = r->released[i];
    r->n_released = n;
    for (int64_t i = f->from.tile; i < r->n_tiles; i++)
        f->slot[i] = 0;
    while (r->n_tiles > f->from.tile
           && is_within(f, (int32_t) r->n_tiles - 1))
        r->n_tiles--;
    for (int64_t i = f->from.tile; i < r->n_tiles; i++) {
        r->tile[i].created = f->from.task;
        if (r->tile[i].released >= 0)
            r->tile[i].released = f->from.task;
    }
    r->n_tasks = f->from.task;
    r->n_accesses = f->from.access;
    r->n_gangs = f->from.gang;
}

static void add_tiles(struct fold *f, struct member *m)
{
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++) {
        int64_t bytes = m->sum[c] + m->within[c];
        m->tile[c] = -1;
        if (bytes > 0)
            m->tile[c] = weft_recording_tile(
                f->r, &(struct weft_rec_tile){.bytes = (size_t) bytes,
                                              .place = m->first.place,
                                              .whole = -1,
                                              .mem = (uint8_t) c,
                                              .gang = true});
    }
}

static void add_member(struct fold *f, int64_t k, const char *op,
                       int32_t layer, const struct weft_work *work)
{
    struct weft_recording *r = f->r;
    const struct member *m = &f->member[k];
    const struct weft_rec_task *t = &m->first;
    const struct weft_where where = {.device = t->device,
                                     .priority = t->priority,
                                     .position = t->position,
                                     .chain = t->chain,
                                     .call = t->call,
                                     .iteration = t->iteration,
                                     .micro_batch = t->micro_batch,
                                     .layer = layer};
    weft_recording_gang(
        r, &(struct weft_rec_gang){.task = r->n_tasks,
                                   .member = (int32_t) k,
                                   .n_members = (int32_t) f->n,
                                   .n_expanded = m->n_expanded,
                                   .received_bytes = m->received_bytes,
                                   .work = *work});
    weft_recording_task(r, WEFT_REC_TASK, op, &where, t->place);
    for (int64_t a = m->access; a < m->access + m->n_access && !r->full; a++)
        weft_recording_access(r, (int32_t) f->access[a].tile,
                              (int) f->access[a].mode);
    for (int c = 0; c < WEFT_N_MEM_CLASSES && !r->full; c++)
        if (m->tile[c] >= 0)
            weft_recording_access(r, m->tile[c], WRITES);
}

static void replace(struct fold *f, const char *op, int32_t layer,
                    const struct weft_work *work)
{
    struct weft_recording *r = f->r;
    take_back(f);
    for (int64_t k = 0; k < f->n; k++)
        add_tiles(f, &f->member[k]);
    for (int64_t k = 0; k < f->n; k++)
        add_member(f, k, op, layer, work);
    for (int64_t i = f->from.released; i < r->n_released; i++)
        r->tile[r->released[i]].released = r->n_tasks;
    for (int64_t k = 0; k < f->n && !r->full; k++)
        for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
            if (f->member[k].tile[c] >= 0)
                weft_recording_release_tile(r, f->member[k].tile[c]);
}

/* A number for every tile, 0. */
static int32_t *slots(struct weft_recording *r)
{
    if (r->slot_room < r->n_tiles) {
        size_t more = (size_t) r->tile_room, old = (size_t) r->slot_room;
        int32_t *larger = weft_realloc(r->slot, more, sizeof *larger);
        if (!larger)
            return NULL;
        memset(larger + old, 0, (more - old) * sizeof *larger);
        r->slot = larger;
        r->slot_room = r->tile_room;
    }
    return r->slot;
}

void weft_recording_gang_begin(struct weft_recording *r)
{
    weft_assert(r->n_marks < WEFT_REC_GANGS_WITHIN);
    r->mark[r->n_marks++] = (struct weft_rec_mark){
        r->n_tasks, r->n_accesses, r->n_tiles, r->n_gangs, r->n_released};
}

void weft_recording_gang_end(struct weft_recording *r, const char *op,
                             int32_t layer, const struct weft_work *work)
{
    weft_assert(r->n_marks > 0);
    struct fold f = {.r = r, .from = r->mark[--r->n_marks]};
    size_t n = (size_t) (r->n_tasks - f.from.task);
    if (r->full)
        return;
    f.member = weft_alloc(n + 1, sizeof *f.member);
    f.of = weft_alloc(n + 1, sizeof *f.of);
    f.access = weft_alloc((size_t) (r->n_accesses - f.from.access) + 1,
                          sizeof *f.access);
    f.slot = slots(r);
    r->full = !f.member || !f.of || !f.access || !f.slot;
    if (!r->full) {
        find_members(&f);
        add_temporaries(&f);
        for (int64_t k = 0; k < f.n; k++)
            fill_member(&f, k);
        replace(&f, op, layer, work);
    }
    if (r->n_marks == 0)
        r->n_released = 0;
    weft_free(f.member);
    weft_free(f.of);
    weft_free(f.access);
}

void weft_recording_members(const struct weft_recording *r, int64_t task,
                            int64_t *first_out, int64_t *end_out)
{
    int64_t low = 0, high = r->n_gangs;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (r->gang[mid].task < task)
            low = mid + 1;
        else
            high = mid;
    }
    const struct weft_rec_gang *g = &r->gang[low];
    bool is = low < r->n_gangs && g->task == task;
    *first_out = is ? task - g->member : task;
    *end_out = *first_out + (is ? g->n_members : 1);
}
