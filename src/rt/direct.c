/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from one GPU's memory to another's, by an MPI that reads and writes
 * it: StarPU-MPI knows the host's memory alone. StarPU still orders them among
 * the tasks, by the tiles' handles, as it does with copies (copier.c). One
 * thread posts them, when it is their tiles' turn, and lets MPI go on with them.
 *
 * The memory that a message is received into may still be in use by work of its
 * GPU that has been put on a stream, behind which tasks get it at once (task.c),
 * and MPI knows nothing of streams: the message is posted when that has ended.
 */
#include "rt/transfer.h"

#ifdef WEFT_HAVE_MPI

#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"

/* MPI counts in int, and no more is under way at one time. */
enum { PIECE = 64 << 20 };

struct weft_mailer {
    struct weft_rt *rt;
    pthread_t thread;
    int last_tag;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t came;
    struct weft_direct *first, **last; /* whose tiles have their turn */
    bool stops;
};

static struct weft_worker *worker_of(const struct weft_tile *tile)
{
    struct weft_rt *rt = tile->rt;
    return &rt->worker[tile->card - rt->card];
}

/* ---- Its thread ------------------------------------------------------- */

static size_t piece_of(const struct weft_direct *d)
{
    size_t left = d->tile->bytes - d->at;
    return left < PIECE ? left : PIECE;
}

/* Pieces follow one another, and with one tag stay in order. */
static void post(const struct weft_mailer *m, struct weft_direct *d)
{
    char *data = (char *) d->data + d->at;
    int n = (int) piece_of(d), tag = (int) (d->number & m->last_tag);
    MPI_Comm comm = weft_world_direct();
    weft_card_enter(d->tile->card->node);
    if (d->sends)
        MPI_Issend(data, n, MPI_BYTE, d->peer, tag, comm, &d->request);
    else
        MPI_Irecv(data, n, MPI_BYTE, d->peer, tag, comm, &d->request);
}

/* Whether the message has gone a step on. */
static bool moves_on(const struct weft_mailer *m, struct weft_direct *d)
{
    int done = 0;
    if (!d->data) {
        d->data = weft_tile_message(d->tile);
        d->after = d->sends ? -1 : weft_tile_user(d->tile);
    }
    if (d->request == MPI_REQUEST_NULL) {
        if (!weft_card_is_over(worker_of(d->tile), d->after))
            return false;
        post(m, d);
        return true;
    }
    MPI_Test(&d->request, &done, MPI_STATUS_IGNORE);
    if (done)
        d->at += piece_of(d);
    return done;
}

static bool is_over(const struct weft_direct *d)
{
    return d->request == MPI_REQUEST_NULL && d->at == d->tile->bytes;
}

static void end(struct weft_direct *d)
{
    struct weft_tile *tile = d->tile;
    starpu_data_release_on_node(tile->handle, (int) weft_tile_node(tile));
    d->ended(d->arg); /* frees it */
}

/* Whether any of those under way has. */
static bool all_move_on(const struct weft_mailer *m,
                        struct weft_direct **under_way)
{
    bool any = false;
    for (struct weft_direct **at = under_way; *at;) {
        struct weft_direct *d = *at;
        any = moves_on(m, d) || any;
        if (is_over(d)) {
            *at = d->next;
            end(d);
        } else {
            at = &d->next;
        }
    }
    return any;
}

/* Adds those that have come to the end of the list, and waits for some while it
 * has none. false: there are none, and it stops. */
static bool take(struct weft_mailer *m, struct weft_direct **under_way)
{
    struct weft_direct **at = under_way;
    while (*at)
        at = &(*at)->next;
    pthread_mutex_lock(&m->mutex);
    while (!*under_way && !m->first && !m->stops)
        pthread_cond_wait(&m->came, &m->mutex);
    *at = m->first;
    m->first = NULL;
    m->last = &m->first;
    pthread_mutex_unlock(&m->mutex);
    return *under_way;
}

static void *run(void *arg)
{
    struct weft_mailer *m = arg;
    struct weft_direct *under_way = NULL;
    struct weft_nap nap = {0};
    while (take(m, &under_way))
        if (all_move_on(m, &under_way))
            nap = (struct weft_nap){0};
        else if (m->rt->nap)
            weft_nap(&nap);
    return NULL;
}

/* ---- Inserting -------------------------------------------------------- */

/* StarPU calls it, from any thread, when it is the tile's turn. */
static void has_turn(void *arg)
{
    struct weft_direct *d = arg;
    struct weft_mailer *m = d->tile->rt->mailer;
    pthread_mutex_lock(&m->mutex);
    *m->last = d;
    m->last = &d->next;
    pthread_cond_signal(&m->came);
    pthread_mutex_unlock(&m->mutex);
}

void weft_direct_post(struct weft_direct *d)
{
    struct weft_tile *tile = d->tile;
    d->request = MPI_REQUEST_NULL;
    int rc = starpu_data_acquire_on_node_cb(
        tile->handle, (int) weft_tile_node(tile),
        d->sends ? STARPU_R : STARPU_W, has_turn, d);
    weft_assert(rc == 0); /* it fails only inside a task */
}

/* ---- Life ------------------------------------------------------------- */

/* All numbers up to the last tag are its bits. */
static int last_tag(void)
{
    int *most, has_most, last = 32767; /* at the least (MPI 3.1, 8.1.2) */
    MPI_Comm_get_attr(weft_world_direct(), MPI_TAG_UB, &most, &has_most);
    while (has_most && last < INT_MAX && 2 * (int64_t) last + 1 <= *most)
        last = (int) (2 * (int64_t) last + 1);
    return last;
}

int weft_direct_start(struct weft_rt *rt, struct weft_err *err)
{
    struct weft_mailer *m = weft_alloc(1, sizeof *m);
    if (!m)
        return weft_err_nomem(err, "messages", sizeof *m);
    m->rt = rt;
    m->last = &m->first;
    m->last_tag = last_tag();
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->came, NULL);
    int rc = pthread_create(&m->thread, NULL, run, m);
    if (rc) {
        weft_free(m);
        return weft_err_set(err, WEFT_EINTERNAL,
                            "cannot start a thread for messages: %s",
                            strerror(rc));
    }
    rt->mailer = m;
    return 0;
}

void weft_direct_stop(struct weft_rt *rt)
{
    struct weft_mailer *m = rt->mailer;
    if (!m)
        return;
    pthread_mutex_lock(&m->mutex);
    m->stops = true;
    pthread_cond_signal(&m->came);
    pthread_mutex_unlock(&m->mutex);
    pthread_join(m->thread, NULL);
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->came);
    weft_free(m);
    rt->mailer = NULL;
}

#else /* one process */

int weft_direct_start(struct weft_rt *rt, struct weft_err *err)
{
    (void) rt;
    (void) err;
    return 0;
}

void weft_direct_stop(struct weft_rt *rt)
{
    (void) rt;
}

#endif
