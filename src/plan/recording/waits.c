/* SPDX-License-Identifier: Apache-2.0 */
/* The program's waits: which have ended tasks, and which are over when tasks
 * are inserted. */
#include <string.h>

#include "base/alloc.h"
#include "plan/recording/reach.h"

enum { READS = 0 };

void weft_rec_reach_pass(const struct weft_rec_reach *x, int64_t task,
                         struct weft_rec_over *o)
{
    for (; o->w < x->r->n_waits && x->r->wait[o->w].task <= task; o->w++) {
        const struct weft_rec_wait *w = &x->r->wait[o->w];
        o->local = (int32_t) o->w + 1;
        if (!w->local)
            o->all = o->local;
        if (w->tile < 0)
            o->early = o->local;
        if (w->tile < 0 && !w->local)
            o->end = w->ended;
    }
}

static void lower(int32_t *a, int32_t b)
{
    *a = b < *a ? b : *a;
}

/* Notes the first wait, of some kind, that all tasks before a number have
 * ended before. */
static void end_before(int32_t *wait, int64_t *from, int64_t ended,
                       int32_t number)
{
    for (; *from < ended; ++*from)
        lower(&wait[*from], number);
}

/* Notes for every task the first waits that it has ended before. */
int weft_rec_reach_find_waits(struct weft_rec_reach *x, struct weft_err *err)
{
    const struct weft_recording *r = x->r;
    int64_t all = 0, local = 0, w = 0;
    int32_t *last = weft_alloc((size_t) r->n_tiles, sizeof *last);
    x->no_tile = weft_alloc((size_t) r->n_waits + 1, sizeof *x->no_tile);
    if (!last || !x->no_tile) {
        weft_free(last);
        return weft_err_nomem(err, "the order of tasks",
                              (size_t) r->n_tiles * sizeof *last);
    }
    for (int64_t i = 0; i < r->n_waits; i++)
        x->no_tile[i + 1] = r->wait[i].tile >= 0 ? x->no_tile[i]
                                                 : (int32_t) i + 1;
    memset(last, 0xff, (size_t) r->n_tiles * sizeof *last);
    for (int64_t t = 0; t < r->n_tasks; t++)
        x->wait_all[t] = x->wait_local[t] = WEFT_REC_NEVER;
    for (int64_t t = 0; t <= r->n_tasks; t++) {
        for (; w < r->n_waits && r->wait[w].task <= t; w++) {
            const struct weft_rec_wait *v = &r->wait[w];
            end_before(v->local ? x->wait_local : x->wait_all,
                       v->local ? &local : &all, v->ended, (int32_t) w + 1);
            if (v->tile >= 0 && last[v->tile] >= 0)
                lower(&x->wait_all[last[v->tile]], (int32_t) w + 1);
        }
        for (int64_t a = t < r->n_tasks ? r->task[t].access : 0;
             t < r->n_tasks && a < r->task[t].access + r->task[t].n_access;
             a++)
            if (r->access[a].mode != READS)
                last[r->access[a].tile] = (int32_t) t;
    }
    weft_free(last);
    for (int64_t t = 0; t < r->n_tasks; t++) {
        int32_t head = x->head[x->group[t]];
        lower(&x->wait_all[head], x->wait_all[t]);
        lower(&x->wait_local[head], x->wait_local[t]);
    }
    return 0;
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
    return early ? x->no_tile[low] : (int32_t) low;
}
