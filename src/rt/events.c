/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done when a tile is written, by whatever thread StarPU tells it from;
 * and events: which of several tiles is written next. Who waits for one sleeps
 * until then.
 */
#include "base/alloc.h"
#include "rt/internal.h"

/* ---- When a tile is written --------------------------------------------- */

struct written {
    weft_written_fn fn;
    void *ctx;
    struct weft_tile *tile; /* held; NULL: nobody wants its data */
    starpu_data_handle_t handle;
    int node;
};

static void written(void *arg)
{
    struct written *w = arg;
    const void *data = NULL;
    WEFT_TSAN_ACQUIRE(w); /* after who asked for it */
    if (w->tile) {
        WEFT_TSAN_ACQUIRE(w->tile);
        data = w->tile->card ? NULL : weft_tile_memory(w->tile);
    }
    w->fn(w->ctx, data);
    if (w->tile)
        WEFT_TSAN_RELEASE(w->tile);
    starpu_data_release_on_node(w->handle, w->node);
    if (w->tile)
        weft_tile_unhold(w->tile);
    weft_free(w);
}

static int when_written(struct weft_tile *tile, bool data, weft_written_fn fn,
                        void *ctx, struct weft_err *err)
{
    struct written *w = weft_alloc(1, sizeof *w);
    if (!w)
        return weft_err_nomem(err, "events", sizeof *w);
    weft_assert(weft_tile_n_parts(tile) == 1);
    starpu_data_handle_t handle = tile->handle;
    int node = (int) weft_tile_node(tile);
    *w = (struct written){fn, ctx, data ? tile : NULL, handle, node};
    if (data)
        weft_tile_hold(tile);
    WEFT_TSAN_RELEASE(w);
    int rc = starpu_data_acquire_on_node_cb(handle, node, STARPU_R, written,
                                            w);
    weft_assert(rc == 0); /* it fails only inside a task */
    return 0;
}

int weft_tile_when_written(struct weft_tile *tile, weft_written_fn fn,
                           void *ctx, struct weft_err *err)
{
    return when_written(tile, true, fn, ctx, err);
}

/* ---- Events ------------------------------------------------------------- */

struct event {
    struct weft_events *events;
    int64_t id;
    struct event *next;
};

struct weft_events {
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t came;
    struct event *first, **last; /* those that came, in their order */
    int64_t n_expected;          /* those that are to come */
    bool closed;
};

static void destroy(struct weft_events *e)
{
    while (e->first) {
        struct event *event = e->first;
        e->first = event->next;
        weft_free(event);
    }
    pthread_mutex_destroy(&e->mutex);
    pthread_cond_destroy(&e->came);
    weft_free(e);
}

int weft_events_create(struct weft_events **out, struct weft_err *err)
{
    struct weft_events *e = weft_alloc(1, sizeof *e);
    if (!e)
        return weft_err_nomem(err, "events", sizeof *e);
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->came, NULL);
    e->last = &e->first;
    *out = e;
    return 0;
}

void weft_events_free(struct weft_events *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->mutex);
    e->closed = true;
    bool all = e->n_expected == 0;
    pthread_mutex_unlock(&e->mutex);
    if (all)
        destroy(e);
}

static void came(void *arg, const void *data)
{
    struct event *event = arg;
    struct weft_events *e = event->events;
    (void) data;
    pthread_mutex_lock(&e->mutex);
    event->next = NULL;
    *e->last = event;
    e->last = &event->next;
    bool all = --e->n_expected == 0 && e->closed;
    pthread_cond_signal(&e->came);
    pthread_mutex_unlock(&e->mutex);
    if (all)
        destroy(e);
}

int weft_events_expect(struct weft_events *e, struct weft_tile *tile,
                       int64_t id, struct weft_err *err)
{
    if (!weft_tile_is_here(tile))
        return 0;
    struct event *event = weft_alloc(1, sizeof *event);
    if (!event)
        return weft_err_nomem(err, "events", sizeof *event);
    *event = (struct event){.events = e, .id = id};
    pthread_mutex_lock(&e->mutex);
    e->n_expected++;
    pthread_mutex_unlock(&e->mutex);
    int rc = when_written(tile, false, came, event, err);
    if (rc) {
        pthread_mutex_lock(&e->mutex);
        e->n_expected--;
        pthread_mutex_unlock(&e->mutex);
        weft_free(event);
    }
    return rc;
}

int64_t weft_events_next(struct weft_events *e)
{
    pthread_mutex_lock(&e->mutex);
    while (!e->first) {
        weft_assert(e->n_expected > 0); /* or nothing would ever come */
        pthread_cond_wait(&e->came, &e->mutex);
    }
    struct event *event = e->first;
    int64_t id = event->id;
    e->first = event->next;
    if (!e->first)
        e->last = &e->first;
    pthread_mutex_unlock(&e->mutex);
    weft_free(event);
    return id;
}
