/* SPDX-License-Identifier: Apache-2.0 */
/* Small random recordings of two ranks with two devices each. */
#ifndef WEFT_TEST_RANDOM_RECORDING_H
#define WEFT_TEST_RANDOM_RECORDING_H

#include <string.h>

#include "base/alloc.h"
#include "draw.h"
#include "harness.h"
#include "plan/recording/reach.h"

enum {
    READ,
    WRITE,
    BOTH,
    RANKS = 2,
    TASKS = 6,
    TILES = 6,
    EVENTS = 31,
    DEVICES = 4 /* two of each rank */
};

enum kind { CREATE, RELEASE, TASK, WAIT };

/* What the program does, in its order. */
struct event {
    enum kind kind;
    int number; /* of the tile, task or wait */
    bool early;
};

struct story {
    struct weft_recording r;
    struct event event[EVENTS];
    int n;
    bool written[2 * TILES], released[2 * TILES];
    int64_t position[DEVICES];
};

static void add(struct story *s, enum kind kind, int64_t number)
{
    REQUIRE(s->n < EVENTS);
    s->event[s->n++] = (struct event){kind, (int) number,
                                      weft_rec_is_early(s->r.when)};
}

static void create(struct story *s)
{
    struct weft_rec_tile tile = {.bytes = (size_t) (1 + draw(9)),
                                 .place = draw(RANKS),
                                 .whole = -1,
                                 .mem = draw(2) ? WEFT_MEM_ACTIVATIONS
                                                : WEFT_MEM_GRADIENTS,
                                 .permanent = draw(4) == 0};
    int32_t number = weft_recording_tile(&s->r, &tile);
    s->written[number] = tile.permanent;
    add(s, CREATE, number);
    if (draw(5) > 0 || s->r.n_tiles + 2 > 2 * TILES)
        return;
    tile.whole = number; /* it is cut */
    tile.permanent = false;
    for (int i = 0; i < 2; i++)
        s->written[weft_recording_tile(&s->r, &tile)] = s->written[number];
}

static bool is_cut(const struct story *s, int64_t tile)
{
    for (int64_t i = 0; i < s->r.n_tiles; i++)
        if (s->r.tile[i].whole == tile)
            return true;
    return false;
}

/* A tile of the rank that tasks may use, or -1. rank -1: of any. */
static int some_tile(const struct story *s, int rank)
{
    for (int tries = 0; tries < 8 && s->r.n_tiles > 0; tries++) {
        int i = draw((int) s->r.n_tiles);
        if (!s->released[i] && !is_cut(s, i)
            && (rank < 0 || s->r.tile[i].place == rank))
            return i;
    }
    return -1;
}

static void use(struct story *s, int tile, int mode)
{
    const struct weft_rec_task *t = &s->r.task[s->r.n_tasks - 1];
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if ((int) s->r.access[a].tile == tile)
            return;
    weft_recording_access(&s->r, tile, s->written[tile] ? mode : WRITE);
    s->written[tile] = true;
}

static bool message(struct story *s)
{
    const struct weft_where where = {.device = -1, .iteration = 1};
    int from = some_tile(s, -1);
    if (from < 0 || !s->written[from])
        return false;
    int to = some_tile(s, !s->r.tile[from].place);
    if (to < 0)
        return false;
    weft_recording_task(&s->r, WEFT_REC_MESSAGE, "message", &where,
                        s->r.tile[to].place);
    use(s, from, READ);
    weft_recording_access(&s->r, to, WRITE);
    s->written[to] = true;
    return true;
}

static void insert(struct story *s)
{
    int place = draw(RANKS);
    struct weft_where where = {.device = -1, .iteration = draw(2)};
    if (draw(4) == 0 && message(s)) {
        add(s, TASK, s->r.n_tasks - 1);
        return;
    }
    if (draw(2)) {
        where.device = 2 * place + draw(2);
        where.position = ++s->position[where.device];
    }
    weft_recording_task(&s->r, WEFT_REC_TASK, "task", &where, place);
    for (int k = 1 + draw(3); k > 0; k--) {
        int tile = some_tile(s, place);
        if (tile >= 0)
            use(s, tile, draw(3));
    }
    add(s, TASK, s->r.n_tasks - 1);
}

static void release(struct story *s)
{
    int tile = some_tile(s, -1);
    if (tile < 0)
        return;
    if (s->r.tile[tile].whole >= 0)
        tile = s->r.tile[tile].whole;
    for (int i = 0; i < (int) s->r.n_tiles; i++)
        if (i == tile || s->r.tile[i].whole == tile) {
            weft_recording_release_tile(&s->r, i);
            s->released[i] = true;
        }
    add(s, RELEASE, tile);
    s->event[s->n - 1].early = s->r.tile[tile].ends_early;
}

static void wait(struct story *s)
{
    int tile, kind = draw(3);
    int64_t before = s->r.n_waits;
    if (kind == 0) {
        weft_recording_wait(&s->r);
        memset(s->position, 0, sizeof s->position);
    } else if (kind == 1 && (tile = some_tile(s, -1)) >= 0) {
        weft_recording_wait_tile(&s->r, tile);
    } else if (kind == 2) {
        weft_recording_lot(&s->r);
        if (s->r.n_lots > 1)
            weft_recording_wait_lot(&s->r, s->r.n_lots - 1);
    }
    if (s->r.n_waits > before)
        add(s, WAIT, before);
}

static void make(struct story *s)
{
    memset(s, 0, sizeof *s);
    weft_recording_init(&s->r);
    while (s->n < EVENTS - 1 && s->r.n_tasks < TASKS) {
        int what = draw(12);
        bool waits = what == 6 || (what < 4 && s->r.n_tiles >= TILES);
        weft_recording_when(&s->r, waits || draw(4)
                                       ? WEFT_REC_IN_TURN
                                       : WEFT_REC_EARLY
                                             + (enum weft_rec_when) draw(4));
        if (waits)
            wait(s);
        else if (what < 4)
            create(s);
        else if (what < 6)
            release(s);
        else
            insert(s);
    }
}

#endif
