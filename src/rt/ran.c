/* SPDX-License-Identifier: Apache-2.0 */
/* Notes in which order what is inserted begins and ends, and what is released,
 * of the iteration that runs and of the one that begins while it ends. A task
 * has begun when it first gets memory, if it gets any, and has ended when it
 * last gives some back. */
#include "base/alloc.h"
#include "rt/internal.h"

/* Tasks of an iteration whose order is kept. */
enum { MOST = 1 << 18 };

int weft_ran_create(struct weft_rt *rt, struct weft_err *err)
{
    for (size_t i = 0; i < WEFT_COUNT(rt->ran); i++) {
        rt->ran[i].iteration = -1;
        rt->ran[i].moments = weft_alloc(MOST, sizeof *rt->ran[i].moments);
        if (!rt->ran[i].moments)
            return weft_err_nomem(err, "the order of tasks",
                                  MOST * sizeof *rt->ran[i].moments);
    }
    return 0;
}

void weft_ran_free(struct weft_rt *rt)
{
    for (size_t i = 0; i < WEFT_COUNT(rt->ran); i++)
        weft_free(rt->ran[i].moments);
}

struct weft_moments *weft_ran_insert(struct weft_rt *rt, const char *op,
                                     const struct weft_where *where)
{
    if (where->iteration < 0)
        return NULL;
    struct weft_ran *ran =
        &rt->ran[where->iteration % (int) WEFT_COUNT(rt->ran)];
    if (ran->iteration != where->iteration) {
        ran->iteration = where->iteration;
        ran->n = 0;
    }
    if (ran->n++ >= MOST)
        return NULL;
    struct weft_moments *m = &ran->moments[ran->n - 1];
    atomic_store(&m->began, 0);
    atomic_store(&m->ended, 0);
    atomic_store(&m->released, 0);
    weft_ran_note(rt, &m->inserted);
    m->what = weft_rec_ran_what(op, where->call, where->layer);
    rt->ran_last = m;
    return m;
}

/* Whose doing this thread's memory is. */
static _Thread_local struct {
    struct weft_rt *rt;
    atomic_llong *get, *put; /* NULL: no more, or not noted */
} here;

static void note(struct weft_rt *rt, atomic_llong *get, atomic_llong *put)
{
    here.rt = rt;
    here.get = get;
    here.put = put;
    weft_ran_note(rt, get ? get : put);
}

void weft_ran_begin(struct weft_rt *rt, struct weft_moments *moments)
{
    if (moments)
        note(rt, &moments->began, NULL);
}

void weft_ran_end(struct weft_rt *rt, struct weft_moments *moments)
{
    if (moments)
        note(rt, NULL, &moments->ended);
}

void weft_ran_release(struct weft_rt *rt)
{
    if (rt->ran_last)
        note(rt, NULL, &rt->ran_last->released);
}

void weft_ran_done(void)
{
    here.get = here.put = NULL;
}

void weft_ran_get(void)
{
    if (here.get)
        weft_ran_note(here.rt, here.get);
    here.get = NULL;
}

void weft_ran_put(void)
{
    if (here.put)
        weft_ran_note(here.rt, here.put);
}

static int32_t since(const struct weft_moments *first, atomic_llong *moment)
{
    long long at = atomic_load(moment);
    return at ? (int32_t) (at - atomic_load(&first->inserted) + 1) : 0;
}

int weft_rt_ran(struct weft_rt *rt, int32_t first, int32_t iteration,
                struct weft_rec_ran *out, struct weft_err *err)
{
    struct weft_ran *from = &rt->ran[first % (int) WEFT_COUNT(rt->ran)];
    struct weft_ran *ran = &rt->ran[iteration % (int) WEFT_COUNT(rt->ran)];
    *out = (struct weft_rec_ran){.iteration = iteration};
    bool any = ran->iteration == iteration;
    out->known = from->iteration == first && (!any || ran->n <= MOST);
    if (!out->known || !any)
        return 0;
    out->moments = weft_alloc((size_t) ran->n, sizeof *out->moments);
    if (!out->moments)
        return weft_err_nomem(err, "the order of tasks",
                              (size_t) ran->n * sizeof *out->moments);
    out->n = ran->n;
    for (int64_t i = 0; i < ran->n; i++) {
        struct weft_moments *m = &ran->moments[i];
        out->moments[i] = (struct weft_rec_moments){
            since(from->moments, &m->inserted),
            since(from->moments, &m->began), since(from->moments, &m->ended),
            since(from->moments, &m->released), m->what};
    }
    return 0;
}
