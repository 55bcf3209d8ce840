/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies to and from cards, beside what the cards compute.
 *
 * Each card has two copiers, for what comes in and for what goes out: a thread
 * with a stream of its own. A copy is no task of StarPU's, as its worker could
 * be in a body meanwhile; StarPU still orders it among the tasks, by its
 * handles: they are acquired when it is inserted, without waiting, and released
 * when the copy has ended on its stream. So a task that reads the copy begins
 * after its end, and a copy of what a task has written after the task's.
 *
 * Memory that the copy gets may still be in use by work of the card's worker,
 * which gives it back as soon as its body has returned (task.c); then the
 * stream waits for that work, and for no other (weft_card_follow()). The copy
 * gives memory back when it has ended, when anybody may use it.
 */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/transfer.h"
#include "rt/record.h"

enum { IN, OUT, N_WAYS = WEFT_CARD_COPIERS };

struct weft_copier {
    struct weft_worker *worker; /* in rt->worker */
    pthread_t thread;
    atomic_int n_queued;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t came;
    struct weft_task *first, *last; /* what can be copied, in order */
    bool stops;
};

/* ---- Its thread ------------------------------------------------------- */

static void release(struct weft_task *t)
{
    for (int i = 0; i < t->n_held; i++) {
        struct weft_tile *tile = t->held[i].tile;
        starpu_data_release_on_node(tile->handle, (int) weft_tile_node(tile));
    }
}

/* It counts as many tasks as it has handles, as each costs StarPU what a task
 * does. */
static void leave_sequence(struct weft_seq *seq, int64_t lot, int n)
{
    for (int i = 0; i < n; i++)
        weft_seq_end(seq, lot, 1);
}

/* How long it does not sleep for what comes soon. */
static double spin_us(const struct weft_copier *c)
{
    return c->worker->exec.rt->nap ? 0 : WEFT_SPIN_US;
}

static void stay_awake(const struct weft_copier *c)
{
    const struct weft_rt *rt = c->worker->exec.rt;
    double until_us = weft_rt_now_us(rt) + spin_us(c);
    while (atomic_load(&c->n_queued) == 0 && weft_rt_now_us(rt) < until_us)
        WEFT_PAUSE();
}

static void copy(struct weft_copier *c, struct weft_task *t)
{
    struct weft_seq *seq = t->seq;
    int64_t lot = t->lot;
    int n = t->n_held;
    weft_task_run(t, c->worker);
    if (t->is_under_way)
        weft_card_wait(c->worker, t->on_stream, spin_us(c));
    weft_task_over(t, c->worker, NULL);
    release(t);
    weft_task_drop_tiles(t);
    weft_block_put(seq->rt, t);
    leave_sequence(seq, lot, n);
    stay_awake(c);
}

/* The next one; NULL: it stops. */
static struct weft_task *take(struct weft_copier *c)
{
    pthread_mutex_lock(&c->mutex);
    while (!c->first && !c->stops)
        pthread_cond_wait(&c->came, &c->mutex);
    struct weft_task *t = c->first;
    if (t) {
        c->first = t->next;
        atomic_fetch_sub(&c->n_queued, 1);
    }
    pthread_mutex_unlock(&c->mutex);
    return t;
}

static void *run(void *arg)
{
    struct weft_copier *c = arg;
    struct weft_task *t;
    weft_card_open(c->worker);
    while ((t = take(c)) != NULL)
        copy(c, t);
    weft_card_close(c->worker);
    return NULL;
}

/* ---- Inserting -------------------------------------------------------- */

static bool comes_before(const struct weft_task *a, const struct weft_task *b)
{
    return a->where.priority != b->where.priority
             ? a->where.priority > b->where.priority
             : a->node.order < b->node.order;
}

static void put(struct weft_copier *c, struct weft_task *t)
{
    pthread_mutex_lock(&c->mutex);
    struct weft_task **at = &c->first;
    if (c->first && comes_before(c->last, t)) /* most come in order */
        at = &c->last->next;
    while (*at && comes_before(*at, t))
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    if (!t->next)
        c->last = t;
    atomic_fetch_add(&c->n_queued, 1);
    pthread_cond_signal(&c->came);
    pthread_mutex_unlock(&c->mutex);
}

/* StarPU calls it, from any thread, when it is a tile's turn. */
static void has_turn(void *arg)
{
    struct weft_task *t = arg;
    WEFT_TSAN_ACQUIRE(t);
    if (atomic_fetch_sub(&t->n_missing, 1) == 1)
        put(t->copier, t);
}

static void submit(struct weft_task *t)
{
    int n = t->n_held;
    weft_task_hold_tiles(t);
    for (int i = 0; i < n; i++)
        t->lot = weft_seq_begin(t->seq, 1);
    atomic_store(&t->n_missing, n);
    for (int i = 0; i < n; i++) {
        struct weft_tile *tile = t->held[i].tile;
        enum weft_mode mode = t->held[i].mode;
        WEFT_TSAN_RELEASE(t); /* the last one's turn may end it */
        int rc = starpu_data_acquire_on_node_cb(
            tile->handle, (int) weft_tile_node(tile), weft_starpu_mode(mode),
            has_turn, t);
        weft_assert(rc == 0); /* it fails only inside a task */
    }
}

/* The one that brings in what lies on a card afterwards, else the one that
 * takes out. */
static struct weft_copier *copier_of(const struct weft_rt *rt,
                                     const struct weft_access access[2])
{
    for (int way = 0; way < N_WAYS; way++)
        for (int i = 0; i < 2; i++) {
            const struct weft_card *card = access[i].tile->card;
            if (card && (access[i].mode == WEFT_READ) == (way == OUT))
                return &rt->copier[(card - rt->card) * N_WAYS + way];
        }
    return NULL;
}

void weft_insert_beside(struct weft_seq *seq,
                        const struct weft_codelet *codelet, const void *args,
                        size_t args_bytes, const struct weft_access access[2],
                        const struct weft_where *where)
{
    struct weft_rt *rt = seq->rt;
    const char *op = codelet->starpu.name;
    rt->n_inserted++;
    weft_record_task(rt, WEFT_REC_COPY, op, where, access, 2, NULL);
    if (rt->is_dry)
        return;
    struct weft_moments *moments = weft_ran_insert(rt, weft_rec_op_what(op),
                                                   where);
    struct weft_task *t = weft_task_create(seq, codelet, args, args_bytes,
                                           access, 2, where);
    weft_assert(t->n_held == 2);
    t->moments = moments;
    t->node.order = rt->n_inserted;
    t->copier = copier_of(rt, access);
    submit(t);
}

/* ---- Life ------------------------------------------------------------- */

int weft_copiers_start(struct weft_rt *rt, struct weft_err *err)
{
    int n = rt->n_cards * N_WAYS;
    rt->copier = weft_alloc((size_t) n, sizeof *rt->copier);
    if (!rt->copier)
        return weft_err_nomem(err, "copies", (size_t) n * sizeof *rt->copier);
    for (int i = 0; i < n; i++) {
        struct weft_copier *c = &rt->copier[i];
        c->worker = &rt->worker[rt->n_devices + i];
        pthread_mutex_init(&c->mutex, NULL);
        pthread_cond_init(&c->came, NULL);
        int rc = pthread_create(&c->thread, NULL, run, c);
        if (rc)
            return weft_err_set(err, WEFT_EINTERNAL,
                                "cannot start a thread for copies: %s",
                                strerror(rc));
        rt->n_copiers = i + 1;
    }
    return 0;
}

void weft_copiers_stop(struct weft_rt *rt)
{
    for (int i = 0; i < rt->n_copiers; i++) {
        struct weft_copier *c = &rt->copier[i];
        pthread_mutex_lock(&c->mutex);
        c->stops = true;
        pthread_cond_signal(&c->came);
        pthread_mutex_unlock(&c->mutex);
        pthread_join(c->thread, NULL);
        pthread_mutex_destroy(&c->mutex);
        pthread_cond_destroy(&c->came);
    }
    weft_free(rt->copier);
    rt->copier = NULL;
    rt->n_copiers = 0;
}
