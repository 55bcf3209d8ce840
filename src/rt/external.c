/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers from outside. The tile is acquired for writing, in submission order
 * and without waiting. It is released when the tile's turn and the answer have
 * both come; the thread that brings the second of them finishes.
 */
#include <string.h>

#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/record.h"

struct weft_external {
    struct weft_seq *seq;
    struct weft_tile *tile;
    struct weft_external *next; /* guarded by rt->mutex, like the two flags */
    bool acquired, answered;
    int64_t lot;
    struct weft_moments *moments; /* NULL: they are not noted */
    size_t bytes;
    char *data; /* the answer; (bytes) */
};

/* Called when both have come: no other thread uses the struct any more. */
static void finish(struct weft_external *e)
{
    struct weft_rt *rt = e->seq->rt;
    struct weft_tile *tile = e->tile;
    struct weft_seq *seq = e->seq;
    int64_t lot = e->lot;
    struct weft_moments *moments = e->moments;
    WEFT_TSAN_ACQUIRE(tile);
    weft_ran_begin(rt, moments);
    void *to = weft_tile_data(tile, true);
    weft_ran_done();
    if (!to) {
        struct weft_err err;
        weft_tile_refuse(tile, &err);
        weft_seq_record(seq, seq->rt->n_copies, &err);
    } else {
        memset(to, 0, tile->bytes);
        if (e->bytes)
            memcpy(to, e->data, e->bytes);
    }
    WEFT_TSAN_RELEASE(tile);
    starpu_data_release(tile->handle);
    weft_free(e->data);
    weft_free(e);
    atomic_fetch_sub(&tile->n_writers, 1);
    weft_ran_end(rt, moments);
    weft_tile_unhold(tile);
    weft_ran_done();
    atomic_fetch_sub(&rt->n_external, 1);
    atomic_fetch_add(&rt->n_ended, 1);
    weft_seq_end(seq, lot, 1);
}

/* Called by StarPU, from any thread, when it is the tile's turn. */
static void turn(void *arg)
{
    struct weft_external *e = arg;
    struct weft_rt *rt = e->seq->rt;
    pthread_mutex_lock(&rt->mutex);
    e->acquired = true;
    bool both = e->answered;
    pthread_mutex_unlock(&rt->mutex);
    if (both)
        finish(e);
}

int weft_external_begin(struct weft_seq *seq, struct weft_tile *tile,
                        const struct weft_where *where,
                        struct weft_external **out, struct weft_err *err)
{
    struct weft_rt *rt = seq->rt;
    if (!weft_tile_is_here(tile)) {
        *out = NULL;
        return 0;
    }
    weft_record_answer(rt, where, tile);
    if (rt->is_dry) {
        *out = NULL;
        return 0;
    }
    struct weft_external *e = weft_alloc(1, sizeof *e);
    if (!e)
        return weft_err_nomem(err, "an answer from outside", sizeof *e);
    e->data = weft_alloc(tile->bytes, 1);
    if (!e->data) {
        weft_free(e);
        return weft_err_nomem(err, "an answer from outside", tile->bytes);
    }
    weft_assert(!tile->card); /* the program writes it */
    e->seq = seq;
    e->tile = tile;
    e->moments = weft_ran_insert(rt, weft_rec_op_what("answer"), where);
    weft_tile_hold(tile);
    atomic_fetch_add(&tile->n_writers, 1);
    atomic_fetch_add(&rt->n_external, 1);
    e->lot = weft_seq_begin(seq, 1);
    pthread_mutex_lock(&rt->mutex);
    e->next = rt->external;
    rt->external = e;
    pthread_mutex_unlock(&rt->mutex);
    int rc = starpu_data_acquire_cb(tile->handle, STARPU_W, turn, e);
    weft_assert(rc == 0); /* it fails only inside a task */
    *out = e;
    return 0;
}

void weft_external_complete(struct weft_external *e, const void *data,
                            size_t bytes)
{
    if (!e)
        return; /* another rank's */
    struct weft_rt *rt = e->seq->rt;
    if (bytes > e->tile->bytes) {
        char label[160];
        weft_tile_label(e->tile, label, sizeof label);
        weft_seq_fail(e->seq, WEFT_EINVAL,
                      "an answer of %zu bytes for '%s', which has %zu", bytes,
                      label, e->tile->bytes);
        bytes = 0;
    }
    if (bytes)
        memcpy(e->data, data, bytes);
    e->bytes = bytes;
    pthread_mutex_lock(&rt->mutex);
    struct weft_external **at = &rt->external;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    e->answered = true;
    bool both = e->acquired;
    pthread_mutex_unlock(&rt->mutex);
    if (both)
        finish(e);
}

void weft_external_abandon_all(struct weft_rt *rt)
{
    while (rt->external)
        weft_external_complete(rt->external, NULL, 0);
}
