/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recording.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/card_memory.h"

int64_t weft_rec_tile_block_bytes(const struct weft_recording *r,
                                  const struct weft_rec_tile *tile)
{
    return (int64_t) (weft_rec_tile_on_card(r, tile) ? weft_card_block_bytes(
                          tile->bytes, (enum weft_mem_class) tile->mem)
                                                     : tile->bytes);
}

void weft_recording_init(struct weft_recording *r)
{
    *r = (struct weft_recording){.task = NULL};
}

void weft_recording_release(struct weft_recording *r)
{
    weft_free(r->task);
    weft_free(r->access);
    weft_free(r->tile);
    weft_free(r->wait);
    weft_free(r->op);
    weft_free(r->lot);
    weft_free(r->gang);
    weft_free(r->temps);
    weft_free(r->shape);
    weft_recording_patterns_release(r);
    weft_free(r->released);
    weft_free(r->slot);
    weft_recording_init(r);
}

int weft_recording_status(const struct weft_recording *r,
                          struct weft_err *err)
{
    if (!r->full)
        return 0;
    if (r->stopped)
        return weft_err_set(err, WEFT_EINTERRUPTED,
                            "stopped while a run was recorded");
    return weft_err_set(err, WEFT_ENOMEM,
                        "no memory to record more than %lld tasks",
                        (long long) r->n_tasks);
}

enum { FIRST_BYTES = 256 << 10 };

bool weft_recording_grow(struct weft_recording *r, void *array, int64_t used,
                         int64_t *capacity, int64_t n, size_t size)
{
    void **list = array;
    /* large elements, of which there are few, begin with fewer */
    int64_t first = weft_max64(FIRST_BYTES / (int64_t) size, 4);
    int64_t more = *capacity ? *capacity : weft_min64(first, 1024);
    while (more < used + n)
        more += more / 2;
    int64_t bytes = (more - *capacity) * (int64_t) size;
    bool allowed = r->most_bytes == 0 || r->bytes + bytes <= r->most_bytes;
    void *larger = allowed ? weft_realloc(*list, (size_t) more, size) : NULL;
    r->full = !larger;
    if (larger) {
        *list = larger;
        *capacity = more;
        r->bytes += bytes;
    }
    return larger != NULL;
}

static void trim(void *array, int64_t used, int64_t *room, size_t size)
{
    void **list = array;
    void *less = weft_realloc(*list, (size_t) used, size);
    if (less) {
        *list = less;
        *room = used;
    }
}

void weft_recording_trim(struct weft_recording *r)
{
    trim(&r->task, r->n_tasks, &r->task_room, sizeof *r->task);
    trim(&r->access, r->n_accesses, &r->access_room, sizeof *r->access);
    trim(&r->tile, r->n_tiles, &r->tile_room, sizeof *r->tile);
    trim(&r->gang, r->n_gangs, &r->gang_room, sizeof *r->gang);
}

/* ---- Adding ------------------------------------------------------------ */

int32_t weft_recording_tile(struct weft_recording *r,
                            const struct weft_rec_tile *tile)
{
    enum { MOST = 1 << 30 };
    if (r->n_tiles >= MOST)
        r->full = true;
    if (!weft_recording_room(r, &r->tile, r->n_tiles, &r->tile_room, 1,
                             sizeof *r->tile))
        return 0;
    r->tile[r->n_tiles] = *tile;
    r->tile[r->n_tiles].created = r->n_tasks;
    r->tile[r->n_tiles].released = -1;
    r->tile[r->n_tiles].early = weft_rec_is_early(r->when);
    r->tile[r->n_tiles].ends_early = weft_rec_is_early(r->when);
    return (int32_t) r->n_tiles++;
}

void weft_recording_release_tile(struct weft_recording *r, int32_t tile)
{
    if (tile >= r->n_tiles)
        return;
    r->tile[tile].released = r->n_tasks;
    r->tile[tile].turn = r->n_turns++;
    r->tile[tile].ends_early = r->tile[tile].ends_early
                            && weft_rec_is_early(r->when);
    if (r->n_marks > 0
        && weft_recording_room(r, &r->released, r->n_released,
                               &r->released_room, 1, sizeof *r->released))
        r->released[r->n_released++] = tile;
}

void weft_recording_gang(struct weft_recording *r,
                         const struct weft_rec_gang *gang)
{
    if (weft_recording_room(r, &r->gang, r->n_gangs, &r->gang_room, 1,
                            sizeof *r->gang))
        r->gang[r->n_gangs++] = *gang;
}

const struct weft_rec_gang *weft_recording_gang_of(
    const struct weft_recording *r, int64_t task)
{
    const struct weft_rec_task *t = &r->task[task];
    return t->n_members ? &r->gang[t->gang] : NULL;
}

/* The number of an operation. Names are constants of the program, so that
 * most comparisons end with the pointers. */
static uint16_t op_of(struct weft_recording *r, const char *op)
{
    for (int64_t i = 0; i < r->n_ops; i++)
        if (r->op[i] == op)
            return (uint16_t) i;
    for (int64_t i = 0; i < r->n_ops; i++)
        if (strcmp(r->op[i], op) == 0)
            return (uint16_t) i;
    if (!weft_recording_room(r, &r->op, r->n_ops, &r->op_room, 1,
                             sizeof *r->op))
        return 0;
    r->op[r->n_ops] = op;
    return (uint16_t) r->n_ops++;
}

/* Tasks between two questions whether to stop. */
enum { ASK_EVERY = 1 << 14 };

void weft_recording_ask(struct weft_recording *r)
{
    if (r->stop && !r->full && r->stop(r->stop_ctx))
        r->full = r->stopped = true;
}

void weft_recording_task(struct weft_recording *r, enum weft_rec_kind kind,
                         const char *op, const struct weft_where *where,
                         int32_t place)
{
    uint16_t number = op_of(r, op);
    if (r->n_tasks % ASK_EVERY == 0)
        weft_recording_ask(r);
    if (!weft_recording_room(r, &r->task, r->n_tasks, &r->task_room, 1,
                             sizeof *r->task))
        return;
    r->task[r->n_tasks++] = (struct weft_rec_task){
        .position = where->position,
        .access = r->n_accesses,
        .device = where->device,
        .place = place,
        .iteration = where->iteration,
        .micro_batch = where->micro_batch,
        .layer = where->layer,
        .priority = where->priority,
        .op = number,
        .call = (uint8_t) where->call,
        .chain = (uint8_t) where->chain,
        .kind = (uint8_t) kind,
        .when = (unsigned) r->when & 0x7fu,
        .moves = where->moves,
        .gang = (int32_t) r->n_gangs - 1, /* of a gang's: the last one */
        .work.n_steps = 1};
}

void weft_recording_rename(struct weft_recording *r, int64_t first,
                           const char *from, const char *to)
{
    uint16_t old = op_of(r, from), new = op_of(r, to);
    for (int64_t i = first; i < r->n_tasks; i++)
        if (r->task[i].op == old)
            r->task[i].op = new;
}

/* The number of a model's shape; few are used, and mostly the last one. */
static uint16_t shape_of(struct weft_recording *r,
                         const struct weft_shape *shape, int32_t n_blocks)
{
    for (int64_t i = r->n_shapes - 1; i > 0; i--)
        if (r->shape[i].n_blocks == n_blocks
            && weft_shape_alike(&r->shape[i].shape, shape))
            return (uint16_t) i;
    int64_t at = r->n_shapes ? r->n_shapes : 1;
    if (at > UINT16_MAX
        || !weft_recording_room(r, &r->shape, at, &r->shape_room, 1,
                                sizeof *r->shape))
        return 0;
    r->shape[0] = (struct weft_rec_shape){.n_blocks = 0};
    r->shape[at] = (struct weft_rec_shape){*shape, n_blocks};
    r->n_shapes = at + 1;
    return (uint16_t) at;
}

/* What the task reads or writes of its tiles; what moves does both. */
static double tile_bytes(const struct weft_recording *r,
                         const struct weft_rec_task *t)
{
    double read = 0, written = 0;
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        const struct weft_rec_tile *tile = &r->tile[r->access[a].tile];
        double bytes = tile->mem == WEFT_MEM_KV ? 0 : (double) tile->bytes;
        read += r->access[a].mode != 1 ? bytes : 0;
        written += r->access[a].mode != 0 ? bytes : 0;
    }
    return t->kind == WEFT_REC_TASK ? read + written
         : read > written           ? read
                                    : written;
}

/* What a step has so often, of all steps. */
static uint16_t of_steps(int32_t each, const struct weft_work *w)
{
    int64_t n = (int64_t) each * (w->n_steps ? w->n_steps : 1);
    return n > UINT16_MAX ? UINT16_MAX : (uint16_t) n;
}

void weft_recording_work(struct weft_recording *r,
                         const struct weft_work *work)
{
    static const struct weft_work none;
    const struct weft_work *w = work ? work : &none;
    if (r->full || r->n_tasks == 0)
        return;
    struct weft_rec_task *t = &r->task[r->n_tasks - 1];
    double bytes = w->bytes + (w->is_all ? 0 : tile_bytes(r, t));
    t->work = (struct weft_rec_work){
        .flop = (float) w->flop,
        .bytes = (float) bytes,
        .n_keys = (float) w->n_keys,
        .n_rows = (int32_t) w->n_rows,
        .n_steps = (uint16_t) (w->n_steps ? w->n_steps : 1),
        .n_layers = of_steps(w->n_layers, w),
        .n_passes = of_steps(w->n_passes, w),
        .shape = w->shape ? shape_of(r, w->shape, w->n_blocks) : 0};
}

static uint16_t times(uint16_t a, double n)
{
    double all = a * n + 0.5;
    return all > UINT16_MAX ? UINT16_MAX : (uint16_t) all;
}

void weft_rec_work_repeat(struct weft_rec_work *w, double n)
{
    w->flop *= (float) n;
    w->bytes *= (float) n;
    w->n_keys *= (float) n;
    w->n_rows = (int32_t) (w->n_rows * n + 0.5);
    w->n_steps = times(w->n_steps, n);
    w->n_layers = times(w->n_layers, n);
    w->n_passes = times(w->n_passes, n);
}

void weft_recording_repeat(struct weft_recording *r, int32_t n)
{
    if (!r->full && r->n_tasks > 0)
        weft_rec_work_repeat(&r->task[r->n_tasks - 1].work, n);
}

int64_t weft_recording_n_expanded(const struct weft_recording *r)
{
    int64_t n = r->n_tasks - r->n_gangs;
    for (int64_t i = 0; i < r->n_gangs; i++)
        n += r->gang[i].n_expanded;
    return n;
}

void weft_recording_when(struct weft_recording *r, enum weft_rec_when when)
{
    r->when = when;
}

void weft_recording_access(struct weft_recording *r, int32_t tile, int mode)
{
    if (!weft_recording_room(r, &r->access, r->n_accesses, &r->access_room, 1,
                             sizeof *r->access))
        return;
    r->access[r->n_accesses++] = (struct weft_rec_access){
        .tile = (uint32_t) tile & 0x3fffffffu, .mode = (unsigned) mode & 3u};
    r->task[r->n_tasks - 1].n_access++;
    int32_t whole = r->tile[tile].whole;
    if (!weft_rec_is_early(r->when))
        r->tile[whole < 0 ? tile : whole].ends_early = false;
}

int64_t weft_recording_lot(struct weft_recording *r)
{
    if (weft_recording_room(r, &r->lot, r->n_lots, &r->lot_room, 1,
                            sizeof *r->lot))
        r->lot[r->n_lots++] = r->n_tasks;
    return r->n_lots;
}

static void add_wait(struct weft_recording *r, int64_t ended, int32_t tile,
                     bool local)
{
    weft_assert(r->n_marks == 0);
    if (weft_recording_room(r, &r->wait, r->n_waits, &r->wait_room, 1,
                            sizeof *r->wait))
        r->wait[r->n_waits++] = (struct weft_rec_wait){r->n_tasks, ended,
                                                       tile, local};
}

void weft_recording_wait(struct weft_recording *r)
{
    add_wait(r, r->n_tasks, -1, false);
}

void weft_recording_wait_tile(struct weft_recording *r, int32_t tile)
{
    add_wait(r, 0, tile, false);
}

void weft_recording_wait_lot(struct weft_recording *r, int64_t lot)
{
    /* lots count from 1; lot n ends where n + 1 begins */
    if (lot >= 1 && lot < r->n_lots)
        add_wait(r, r->lot[lot], -1, true);
}

/* ---- Reading ----------------------------------------------------------- */

const char *weft_recording_op(const struct weft_recording *r, int64_t task)
{
    return r->op[r->task[task].op];
}

/* Whether two tasks are alike but for the numbers of their operations and
 * accesses, which depend on the recordings. */
static bool same_task(const struct weft_recording *a,
                      const struct weft_recording *b, int64_t i)
{
    struct weft_rec_task x = a->task[i], y = b->task[i];
    return x.position == y.position && x.n_access == y.n_access
        && x.device == y.device && x.place == y.place
        && x.iteration == y.iteration && x.micro_batch == y.micro_batch
        && x.layer == y.layer && x.priority == y.priority && x.call == y.call
        && x.chain == y.chain && x.kind == y.kind
        && strcmp(weft_recording_op(a, i), weft_recording_op(b, i)) == 0
        && memcmp(a->access + x.access, b->access + y.access,
                  (size_t) x.n_access * sizeof *a->access)
               == 0;
}

static bool same_tile(const struct weft_rec_tile *x,
                      const struct weft_rec_tile *y)
{
    return x->bytes == y->bytes && x->created == y->created
        && x->released == y->released && x->place == y->place
        && x->whole == y->whole && x->mem == y->mem
        && x->permanent == y->permanent;
}

bool weft_recording_same(const struct weft_recording *a,
                         const struct weft_recording *b, char *text,
                         size_t size)
{
    for (int64_t i = 0; i < a->n_tasks && i < b->n_tasks; i++)
        if (!same_task(a, b, i)) {
            snprintf(text, size, "task %lld: %s (call %d, layer %d) or %s",
                     (long long) i, weft_recording_op(a, i),
                     (int) a->task[i].call, (int) a->task[i].layer,
                     weft_recording_op(b, i));
            return false;
        }
    for (int64_t i = 0; i < a->n_tiles && i < b->n_tiles; i++)
        if (!same_tile(&a->tile[i], &b->tile[i])) {
            snprintf(text, size, "tile %lld: %zu bytes or %zu, task %lld",
                     (long long) i, a->tile[i].bytes, b->tile[i].bytes,
                     (long long) a->tile[i].created);
            return false;
        }
    snprintf(text, size, "%lld tasks and %lld tiles, or %lld and %lld",
             (long long) a->n_tasks, (long long) a->n_tiles,
             (long long) b->n_tasks, (long long) b->n_tiles);
    return a->n_tasks == b->n_tasks && a->n_tiles == b->n_tiles;
}
