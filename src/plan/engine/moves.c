/* SPDX-License-Identifier: Apache-2.0 */
/* How long devices waited for what moves, and for nothing else (engine.h). */
#include "plan/engine/inside.h"

#include <math.h>

enum { READS = 0 };

/* When a task's tiles could have been there, at the earliest at could_s, and
 * when they were. */
static struct weft_engine_came tiles_of(const struct weft_engine *e,
                                        const struct weft_rec_task *t,
                                        double could_s)
{
    struct weft_engine_came all = {could_s, 0};
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        const struct weft_engine_came *came = &e->came[e->r->access[a].tile];
        all.could_s = fmax(all.could_s, came->could_s);
        all.at_s = fmax(all.at_s, came->at_s);
    }
    return all;
}

void weft_engine_moves_begin(struct weft_engine *e, int64_t task,
                             int32_t device)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    struct weft_engine_came tiles = tiles_of(e, t, e->could_s[task]);
    e->could_s[task] = tiles.could_s;
    if (t->moves || device < 0)
        return;
    const struct weft_engine_device *d = &e->device[device];
    double s = fmin(fmax(tiles.at_s, d->moved_s), e->now_s)
             - fmax(tiles.could_s, d->computed_s);
    if (s > 0
        && weft_engine_room(e, &e->waited, e->n_waited, &e->waited_room,
                            sizeof *e->waited))
        e->waited[e->n_waited++] = (struct weft_engine_waited){task, s};
}

void weft_engine_moves_end(struct weft_engine *e, int64_t task)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    int32_t device = WEFT_ENGINE_BEGUN - e->state[task];
    const struct weft_engine_came came = {
        t->moves ? e->could_s[task] : e->now_s, e->now_s};
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (e->r->access[a].mode != READS)
            e->came[e->r->access[a].tile] = came;
    if (device < 0)
        return;
    if (t->moves)
        e->device[device].moved_s = e->now_s;
    else
        e->device[device].computed_s = e->now_s;
}

const struct weft_engine_waited *weft_engine_waited(
    const struct weft_engine *e, int64_t *n_out)
{
    *n_out = e->n_waited;
    return e->waited;
}
