/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tasks wait for by their data. The accesses to a tile stand in a line, in
 * the order of insertion; those at its head that read have their turn together,
 * one that writes has it alone. A task that has its turn at all its tiles is
 * ready.
 */
#include "plan/engine/inside.h"

enum { READS = 0 };

/* The task of an access. */
static int64_t owner_of(const struct weft_engine *e, uint32_t access)
{
    int64_t t = e->owner[access / WEFT_ENGINE_BLOCK];
    while (weft_engine_rec(e, t)->access + weft_engine_rec(e, t)->n_access
           <= access)
        t++;
    return t;
}

void weft_engine_arrive(struct weft_engine *e, int64_t task)
{
    if (--e->state[task] == WEFT_ENGINE_READY)
        weft_engine_ready(e, task);
}

/* Gives the head of a tile's line its turn. */
static void admit(struct weft_engine *e, struct weft_engine_tile *tile)
{
    while (tile->head != WEFT_ENGINE_LAST) {
        uint32_t head = tile->head;
        struct weft_engine_access *a = &e->access[head];
        if ((tile->active & WEFT_ENGINE_COUNT) > 0
            && (a->writes || tile->active & WEFT_ENGINE_WRITING))
            break;
        tile->head = a->next;
        tile->active++;
        if (a->writes)
            tile->active |= WEFT_ENGINE_WRITING;
        weft_engine_arrive(e, owner_of(e, head));
    }
}

static int32_t whole_of(const struct weft_engine *e, int32_t tile)
{
    return e->tile[tile].active & WEFT_ENGINE_PART ? e->r->tile[tile].whole
                                                   : tile;
}

/* Puts an access in line; false if its task or gang, whose accesses begin with
 * `first`, has the tile already. */
static bool line_up(struct weft_engine *e, uint32_t access, uint32_t first)
{
    struct weft_rec_access a = e->r->access[access];
    struct weft_engine_tile *tile = &e->tile[a.tile];
    struct weft_engine_access *mine = &e->access[access];
    *mine = (struct weft_engine_access){WEFT_ENGINE_SKIPPED, a.mode != READS};
    if (tile->tail > first) {
        e->access[tile->tail - 1].writes |= mine->writes;
        return false;
    }
    mine->next = WEFT_ENGINE_LAST;
    if (tile->head == WEFT_ENGINE_LAST)
        tile->head = access;
    else
        e->access[tile->tail - 1].next = access & 0x7fffffffu;
    tile->tail = access + 1;
    e->tile[whole_of(e, (int32_t) a.tile)].open++;
    return true;
}

void weft_engine_enter(struct weft_engine *e, int64_t task, int64_t end)
{
    uint32_t first = (uint32_t) weft_engine_rec(e, task)->access, a = first;
    for (; task < end; task++)
        for (int32_t n = weft_engine_rec(e, task)->n_access; n > 0;
             n--, a++) {
            if (a % WEFT_ENGINE_BLOCK == 0)
                e->owner[a / WEFT_ENGINE_BLOCK] = (uint32_t) task;
            e->state[task] += line_up(e, a, first);
        }
    for (uint32_t k = first; k < a; k++)
        if (e->access[k].next != WEFT_ENGINE_SKIPPED
            && e->tile[e->r->access[k].tile].head == k)
            admit(e, &e->tile[e->r->access[k].tile]);
}

static void leave(struct weft_engine *e, int32_t number)
{
    struct weft_engine_tile *tile = &e->tile[number];
    tile->active--;
    if ((tile->active & WEFT_ENGINE_COUNT) == 0) {
        tile->active &= ~WEFT_ENGINE_WRITING;
        admit(e, tile);
    }
    int32_t whole = whole_of(e, number);
    if (--e->tile[whole].open == 0)
        weft_engine_is_idle(e, whole);
}

void weft_engine_leave(struct weft_engine *e, int64_t task)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (e->access[a].next != WEFT_ENGINE_SKIPPED)
            leave(e, (int32_t) e->r->access[a].tile);
}

bool weft_engine_is_written(const struct weft_engine *e, int32_t tile)
{
    const struct weft_engine_tile *t = &e->tile[tile];
    if (tile >= e->tiles)
        return false; /* no task has used it */
    bool written = (t->active & WEFT_ENGINE_WRITING) != 0;
    for (uint32_t a = t->head; a != WEFT_ENGINE_LAST && !written;
         a = e->access[a].next)
        written = e->access[a].writes;
    return written;
}
