/* SPDX-License-Identifier: Apache-2.0 */
/* A task on a worker: it gets memory, its body runs, it ends. */
#include "base/alloc.h"
#include "base/log.h"
#include "rt/internal.h"
#include "rt/trace.h"

/* Puts operation and tile in front of the body's sentence. */
static void task_failed(const struct weft_task *t, int rc,
                        struct weft_err *err)
{
    const struct weft_tile *tile = NULL;
    for (int i = 0; i < t->n_access && !tile; i++)
        if (t->access[i].mode != WEFT_READ)
            tile = t->access[i].tile;
    if (!tile && t->n_access > 0)
        tile = t->access[0].tile;
    char label[160];
    if (!err->code)
        weft_err_set(err, rc, "failed with code %d", rc);
    if (tile) {
        weft_tile_label(tile, label, sizeof label);
        weft_err_prefix(err, "%s on '%s'", t->codelet->starpu.name, label);
    } else {
        weft_err_prefix(err, "%s", t->codelet->starpu.name);
    }
    weft_seq_record(t->seq, t->at, err);
}

/* Collects the buffers of the task; a temporary tile that this task writes
 * first gets its memory. */
static int task_buffers(const struct weft_task *t, struct weft_err *err)
{
    const struct weft_access *access = t->access;
    void **buf = t->buf;
    for (int i = 0, n = t->n_access; i < n; i++) {
        struct weft_tile *tile = access[i].tile;
        char label[160];
        buf[i] = weft_tile_memory(tile);
        if (buf[i])
            continue;
        if (access[i].mode != WEFT_WRITE) {
            weft_tile_label(tile, label, sizeof label);
            return weft_err_set(err, WEFT_ESTATE,
                                "reads '%s', which nothing has written",
                                label);
        }
        buf[i] = weft_tile_data(tile, false);
        if (!buf[i])
            return weft_tile_refuse(tile, err);
    }
    return 0;
}

void weft_task_hold_tiles(struct weft_task *t)
{
    const struct weft_access *held = t->held;
    for (int i = 0, n = t->n_held; i < n; i++) {
        struct weft_tile *tile = held[i].tile;
        weft_tile_hold(tile);
        if (held[i].mode != WEFT_READ)
            atomic_fetch_add(&tile->n_writers, 1);
    }
    atomic_fetch_add(&t->codelet->n_pending, 1);
}

void weft_task_leave_tiles(struct weft_task *t, const struct weft_card *left)
{
    const struct weft_access *held = t->held;
    for (int i = 0, n = t->n_held; i < n; i++) {
        struct weft_tile *tile = held[i].tile;
        WEFT_TSAN_RELEASE(tile);
        if (held[i].mode != WEFT_READ)
            atomic_fetch_sub(&tile->n_writers, 1);
        if (!left || tile->card != left)
            weft_tile_done(tile);
    }
}

/* Leaves the memory of the worker's own card when its task has been put on the
 * stream: what gets this memory next comes behind it there, and copies, which
 * are on other streams, wait for it. So tasks under way need no more of the
 * budget than one after the other. */
static void leave_card(struct weft_task *t, const struct weft_card *card)
{
    for (int i = 0; i < t->n_held; i++) {
        struct weft_tile *tile = t->held[i].tile;
        if (tile->card != card)
            continue;
        weft_tile_used(tile, t->on_stream);
        weft_tile_done(tile);
    }
}

void weft_task_drop_tiles(struct weft_task *t)
{
    for (int i = 0; i < t->n_held; i++)
        weft_tile_drop(t->held[i].tile);
}

WEFT_INLINE int run_cpu(struct weft_task *t, struct weft_exec *x)
{
    return x->rt->check_modes
             ? weft_task_run_checked(t, x)
             : t->codelet->cpu(t->args, t->buf, t->n_access, x);
}

/* The card's tile that a task uses, or NULL. */
static const struct weft_tile *on_card(const struct weft_task *t)
{
    for (int i = 0; i < t->n_access; i++)
        if (t->access[i].tile->card)
            return t->access[i].tile;
    return NULL;
}

/* Copies have streams of their own. There the memory of a tile that is written
 * comes behind what used it last. */
static void follow_users(const struct weft_task *t, struct weft_worker *w)
{
    for (int i = 0; i < t->n_access; i++) {
        const struct weft_tile *tile = t->access[i].tile;
        if (tile->card && t->access[i].mode != WEFT_READ)
            weft_card_follow(
                w, &w->exec.rt->worker[tile->card - w->exec.rt->card],
                weft_tile_user(tile));
    }
}

/* On the worker of a card: what only uses host memory may run as anywhere. */
static int run_at_card(struct weft_task *t, struct weft_worker *w)
{
    struct weft_exec *x = &w->exec;
    char label[160];
    const struct weft_tile *tile = on_card(t);
    if (!tile && (!t->codelet->cuda || x->rt->check_modes))
        return run_cpu(t, x);
    if (!t->codelet->cuda) {
        weft_tile_label(tile, label, sizeof label);
        return weft_err_set(&x->err, WEFT_EUNSUPPORTED, WEFT_NO_CUDA_BODY,
                            label);
    }
    t->follows = w->n_running > 1;
    if (x->copies)
        follow_users(t, w);
    t->on_stream = x->on_stream = weft_card_begin(w);
    int rc = t->codelet->cuda(t->args, t->buf, t->n_access, x);
    t->is_under_way = true;
    rc = weft_card_error(x, rc);
    weft_card_end(w, t->on_stream);
    return rc;
}

void weft_task_over(struct weft_task *t, struct weft_worker *w,
                    const struct weft_card *left)
{
    struct weft_rt *rt = t->seq->rt;
    if (t->at_end) {
        w->exec.err.code = 0;
        int rc = t->at_end(t->args, t->buf, t->n_access, &w->exec);
        if (rc)
            task_failed(t, rc, &w->exec.err);
    }
    weft_worker_end(w, t);
    weft_ran_end(rt, t->moments);
    weft_task_leave_tiles(t, left);
    weft_ran_done();
    atomic_fetch_sub(&t->codelet->n_pending, 1);
    long ended = atomic_fetch_add(&rt->n_ended, 1) + 1;
    if (rt->fxt_dir && ended == WEFT_FXT_TASKS
        && !atomic_load(&rt->fxt_stopped)) {
        weft_warn("StarPU's trace ends here, after %ld tasks", ended);
        weft_rt_fxt_stop(rt);
    }
}

void weft_task_run(struct weft_task *t, struct weft_worker *w)
{
    struct weft_rt *rt = t->seq->rt;
    weft_worker_begin(w, t);
    if (w->exec.card)
        weft_card_note(w);
    weft_ran_begin(rt, t->moments);
    for (int i = 0; i < t->n_held; i++)
        WEFT_TSAN_ACQUIRE(t->held[i].tile);
    bool runs = atomic_load(&t->seq->failed) == 0;
    if (runs) {
        w->exec.team = t->team;
        w->exec.member = t->member;
        w->exec.shared = NULL;
        w->exec.at_end = NULL;
        w->exec.err.code = 0;
        w->exec.err.text[0] = 0;
        int rc = task_buffers(t, &w->exec.err);
        weft_ran_done();
        if (!rc)
            rc = w->exec.card ? run_at_card(t, w) : run_cpu(t, &w->exec);
        if (rc)
            task_failed(t, rc, &w->exec.err);
        else
            t->at_end = w->exec.at_end;
        if (t->team)
            weft_team_leave(t->team, true, rc);
        weft_exec_reset(&w->exec);
    } else if (t->team) {
        weft_team_leave(t->team, false, 0);
    }
}

void weft_codelet_run(void *buffers[], void *args)
{
    (void) buffers; /* a tile has its memory itself (interface.c) */
    struct weft_task *t = args;
    WEFT_TSAN_ACQUIRE(
        t); /* orders this after what the inserting thread wrote */
    struct weft_worker *w = &t->seq->rt->worker[starpu_worker_get_id_check()];
    weft_task_run(t, w);
    if (t->is_under_way)
        leave_card(t, w->exec.card);
    else
        weft_task_over(t, w, NULL);
}

void weft_task_ended(void *arg)
{
    struct weft_task *t = arg;
    struct weft_seq *seq = t->seq;
    int64_t lot = t->lot;
    if (t->is_under_way) {
        struct weft_worker *w =
            &seq->rt->worker[starpu_worker_get_id_check()];
        weft_task_over(t, w, w->exec.card);
    }
    weft_task_drop_tiles(t);
    if (t->team)
        weft_team_drop(t->team);
    int n = t->n_held;
    weft_block_put(seq->rt, t);
    weft_seq_end(seq, lot, n);
}
