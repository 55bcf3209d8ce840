/* SPDX-License-Identifier: Apache-2.0 */
/* Notes in which order what is inserted begins and ends, and what is released,
 * of the iteration that runs and of the one that begins while it ends. A task
 * has begun when it first gets memory, if it gets any, and has ended when it
 * last gives some back. */
#include "base/alloc.h"
#include "rt/internal.h"

/* Tasks of an iteration whose order is kept, and releases. */
enum { MOST = 1 << 18 };

int weft_ran_create(struct weft_rt *rt, struct weft_err *err)
{
    for (size_t i = 0; i < WEFT_COUNT(rt->ran); i++) {
        rt->ran[i].iteration = -1;
        rt->ran[i].moments = weft_alloc(MOST, sizeof *rt->ran[i].moments);
        rt->ran[i].released = weft_alloc(MOST, sizeof *rt->ran[i].released);
        if (!rt->ran[i].moments || !rt->ran[i].released)
            return weft_err_nomem(err, "the order of tasks",
                                  MOST * sizeof *rt->ran[i].moments);
    }
    return 0;
}

void weft_ran_free(struct weft_rt *rt)
{
    for (size_t i = 0; i < WEFT_COUNT(rt->ran); i++) {
        weft_free(rt->ran[i].moments);
        weft_free(rt->ran[i].released);
    }
}

struct weft_moments *weft_ran_insert(struct weft_rt *rt, uint32_t op,
                                     const struct weft_where *where)
{
    if (where->iteration < 0)
        return NULL;
    struct weft_ran *ran =
        &rt->ran[where->iteration % (int) WEFT_COUNT(rt->ran)];
    if (ran->iteration != where->iteration) {
        ran->iteration = where->iteration;
        ran->n = ran->n_released = 0;
    }
    rt->ran_last = ran;
    if (ran->n++ >= MOST)
        return NULL;
    struct weft_moments *m = &ran->moments[ran->n - 1];
    atomic_store(&m->began, 0);
    atomic_store(&m->ended, 0);
    weft_ran_note(rt, &m->inserted);
    m->what = weft_rec_ran_what(op, where->call, where->layer);
    return m;
}

_Thread_local struct weft_ran_doer weft_ran_doer;

void weft_ran_release(const struct weft_tile *tile)
{
    struct weft_ran *ran = tile->rt->ran_last;
    if (!ran || !tile->here || ran->n_released++ >= MOST)
        return;
    struct weft_release *r = &ran->released[ran->n_released - 1];
    r->what = weft_rec_tile_what(tile->bytes, (int) tile->mem,
                                 tile->id.place);
    weft_ran_note(tile->rt, &r->began);
    weft_ran_doer = (struct weft_ran_doer){.rt = tile->rt, .put = &r->ended};
    weft_ran_note(tile->rt, &r->ended);
}

void weft_ran_get(void)
{
    if (weft_ran_doer.get)
        weft_ran_note(weft_ran_doer.rt, weft_ran_doer.get);
    weft_ran_doer.get = NULL;
}

void weft_ran_put(void)
{
    if (weft_ran_doer.put)
        weft_ran_note(weft_ran_doer.rt, weft_ran_doer.put);
}

/* Where memory is counted the moments up to this event are noted. */
static long long events_so_far(struct weft_rt *rt)
{
    pthread_mutex_lock(&rt->pool->mutex);
    for (int i = 0; i < rt->n_cards; i++)
        pthread_mutex_lock(&rt->card[i].pool->mutex);
    long long n = atomic_load(&rt->n_events);
    for (int i = rt->n_cards - 1; i >= 0; i--)
        pthread_mutex_unlock(&rt->card[i].pool->mutex);
    pthread_mutex_unlock(&rt->pool->mutex);
    return n;
}

/* Events from the first one of an iteration up to another. */
struct range {
    long long first, last;
};

static int32_t within(struct range range, atomic_llong *moment)
{
    long long at = atomic_load(moment);
    return at && at <= range.last ? (int32_t) (at - range.first + 1) : 0;
}

/* Tasks go on meanwhile: what one of them does later is not seen, nor what
 * follows from it. */
static void copy(struct range range, const struct weft_ran *ran,
                 struct weft_rec_ran *out)
{
    for (int64_t i = 0; i < ran->n; i++) {
        struct weft_moments *m = &ran->moments[i];
        out->moments[i] = (struct weft_rec_moments){
            within(range, &m->inserted), within(range, &m->began),
            within(range, &m->ended), m->what};
    }
    for (int64_t i = 0; i < ran->n_released; i++) {
        struct weft_release *r = &ran->released[i];
        out->released[i] = (struct weft_rec_release){
            within(range, &r->began), within(range, &r->ended), r->what};
    }
}

int weft_rt_ran(struct weft_rt *rt, int32_t first, int32_t iteration,
                struct weft_rec_ran *out, struct weft_err *err)
{
    struct weft_ran *from = &rt->ran[first % (int) WEFT_COUNT(rt->ran)];
    struct weft_ran *ran = &rt->ran[iteration % (int) WEFT_COUNT(rt->ran)];
    *out = (struct weft_rec_ran){.iteration = iteration,
                                 .first_place = rt->first_place,
                                 .n_places = rt->places_per_rank};
    bool any = ran->iteration == iteration;
    out->known = from->iteration == first
              && (!any || (ran->n <= MOST && ran->n_released <= MOST));
    if (!out->known || !any)
        return 0;
    size_t n = (size_t) ran->n, n_released = (size_t) ran->n_released;
    out->moments = weft_alloc(n, sizeof *out->moments);
    out->released = weft_alloc(n_released, sizeof *out->released);
    if (!out->moments || !out->released)
        return weft_err_nomem(err, "the order of tasks",
                              n * sizeof *out->moments);
    out->n = ran->n;
    out->n_released = ran->n_released;
    copy((struct range){atomic_load(&from->moments->inserted),
                        events_so_far(rt)},
         ran, out);
    return 0;
}
