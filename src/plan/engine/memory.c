/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that tiles take while they are played. A tile has its memory when the
 * first task begins that writes it, or from creation, until it is released and
 * all tasks that use it have ended.
 */
#include "plan/engine/inside.h"

enum { READS = 0 };

/* ---- Bytes ------------------------------------------------------------- */

bool weft_engine_counts(const struct weft_engine *e, int32_t place, int c)
{
    bool on_gpu = place % e->job.places_per_rank < e->r->n_gpus;
    return weft_mem_class_at_place((enum weft_mem_class) c)
        && !(on_gpu && weft_mem_class_on_host((enum weft_mem_class) c));
}

static void add(int64_t *now, int64_t *peak, int64_t bytes)
{
    *now += bytes;
    *peak = *now > *peak ? *now : *peak;
}

static void add_bytes(struct weft_engine *e, int32_t place, int c,
                      int64_t bytes)
{
    struct weft_engine_place *p = &e->place[place];
    int64_t *slice = e->slice ? weft_engine_slice_of_now(e, place) : NULL;
    add(&p->now[c], &p->peak[c], bytes);
    if (weft_engine_counts(e, place, c))
        add(&p->now[WEFT_MEM_ALL], &p->peak[WEFT_MEM_ALL], bytes);
    if (slice)
        weft_engine_slice_note(e, place, slice);
}

static void add_tile(struct weft_engine *e, int32_t tile, int sign)
{
    const struct weft_rec_tile *t = &e->r->tile[tile];
    add_bytes(e, t->place, t->mem, sign * weft_rec_tile_block_bytes(e->r, t));
}

/* What a gang's member takes while its task runs. */
static void add_temps(struct weft_engine *e, int64_t task, int sign)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    const struct weft_rec_gang *gang = weft_recording_gang_of(e->r, task);
    if (!gang)
        return;
    const struct weft_rec_temps *x = &e->r->temps[gang->temps];
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++) {
        int64_t bytes = 0;
        for (int b = 0; b < WEFT_REC_N_BEGINS; b++)
            bytes += x->bytes[b][WEFT_REC_KEPT][c]
                   + x->bytes[b][WEFT_REC_SENT][c];
        if (bytes > 0)
            add_bytes(e, t->place, c, sign * bytes);
    }
}

static void take(struct weft_engine *e, int32_t tile)
{
    struct weft_engine_tile *s = &e->tile[tile];
    if (s->active & WEFT_ENGINE_PART) {
        tile = e->r->tile[tile].whole;
        s = &e->tile[tile];
    }
    if (!(s->active & WEFT_ENGINE_MEMORY)) {
        s->active |= WEFT_ENGINE_MEMORY;
        add_tile(e, tile, 1);
    }
}

static void give(struct weft_engine *e, int32_t tile)
{
    e->tile[tile].active &= ~WEFT_ENGINE_MEMORY;
    add_tile(e, tile, -1);
}

/* ---- Tiles that nobody uses -------------------------------------------- */

static bool is_before(struct weft_engine_idle a, struct weft_engine_idle b)
{
    return a.released < b.released;
}

static void idle_add(struct weft_engine *e, struct weft_engine_idle one)
{
    if (!weft_engine_room(e, &e->idle, e->n_idle, &e->idle_room,
                          sizeof *e->idle))
        return;
    int64_t i = e->n_idle++;
    for (; i > 0 && is_before(one, e->idle[(i - 1) / 2]); i = (i - 1) / 2)
        e->idle[i] = e->idle[(i - 1) / 2];
    e->idle[i] = one;
}

static int32_t idle_take(struct weft_engine *e)
{
    int32_t tile = e->idle[0].tile;
    struct weft_engine_idle last = e->idle[--e->n_idle];
    int64_t i = 0;
    for (int64_t k = 1; k < e->n_idle; k = 2 * i + 1) {
        if (k + 1 < e->n_idle && is_before(e->idle[k + 1], e->idle[k]))
            k++;
        if (!is_before(e->idle[k], last))
            break;
        e->idle[i] = e->idle[k];
        i = k;
    }
    e->idle[i] = last;
    return tile;
}

void weft_engine_is_idle(struct weft_engine *e, int32_t tile)
{
    int64_t released = e->r->tile[tile].released;
    if (!(e->tile[tile].active & WEFT_ENGINE_MEMORY) || released < 0)
        return;
    if (released <= e->inserted)
        give(e, tile);
    else
        idle_add(e, (struct weft_engine_idle){released, tile});
}

void weft_engine_create_tiles(struct weft_engine *e)
{
    const struct weft_recording *r = e->r;
    for (; e->tiles < e->n_tiles && r->tile[e->tiles].created <= e->inserted;
         e->tiles++) {
        const struct weft_rec_tile *t = &r->tile[e->tiles];
        e->tile[e->tiles] = (struct weft_engine_tile){
            .head = WEFT_ENGINE_LAST,
            .active = t->whole >= 0 ? WEFT_ENGINE_PART : 0};
        if (e->job.moves)
            e->came[e->tiles] = (struct weft_engine_came){0, 0};
        if (t->permanent && t->whole < 0 && e->job.memory) {
            take(e, (int32_t) e->tiles);
            weft_engine_is_idle(e, (int32_t) e->tiles);
        }
    }
}

void weft_engine_release_tiles(struct weft_engine *e)
{
    while (e->n_idle > 0 && e->idle[0].released <= e->inserted) {
        int32_t tile = idle_take(e);
        if (e->tile[tile].open == 0
            && e->tile[tile].active & WEFT_ENGINE_MEMORY)
            give(e, tile);
    }
}

void weft_engine_look_again(struct weft_engine *e)
{
    for (int64_t i = 0; i < e->tiles; i++)
        if (e->tile[i].open == 0)
            weft_engine_is_idle(e, (int32_t) i);
}

/* ---- Tasks ------------------------------------------------------------- */

void weft_engine_take(struct weft_engine *e, int64_t task)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (e->r->access[a].mode != READS)
            take(e, (int32_t) e->r->access[a].tile);
    add_temps(e, task, 1);
}

void weft_engine_give_temps(struct weft_engine *e, int64_t task)
{
    add_temps(e, task, -1);
}
