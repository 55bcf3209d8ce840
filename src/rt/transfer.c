/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between ranks copy one rank's tile into another's. StarPU-MPI posts
 * the send when the sender's tile has its turn among the tasks, and the
 * receive when the receiver's tile has; direct.c does so where both lie in
 * GPUs' memory (copy.c says when they may). The two sides of a copy are matched
 * by its number among the copies from one rank to the other, which all ranks
 * insert in the same order.
 */
#include "rt/internal.h"
#include "rt/moves.h"
#include "rt/transfer.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

#ifdef WEFT_HAVE_MPI

/* A shorter message that arrives before its tile's turn waits in memory of
 * StarPU-MPI; one of this size or longer is not sent until its receive is
 * posted. */
enum { LONG_BYTES = 1 << 16 };

struct weft_transfer {
    struct weft_seq *seq;
    struct weft_tile *tile;
    struct weft_where where;
    int peer;
    bool sends;
    int64_t number; /* among all copies */
    int64_t lot;
    double since_us;                  /* inserted */
    int64_t move;                     /* its number; 0: none (moves.h) */
    struct weft_moments *moments;     /* NULL: they are not noted */
    struct weft_direct direct;        /* of one between GPUs, if MPI can */
    struct weft_transfer *next, **at; /* guarded by rt->mutex */
};

static void link_in(struct weft_rt *rt, struct weft_transfer *t)
{
    pthread_mutex_lock(&rt->mutex);
    t->at = rt->last_transfer;
    *t->at = t;
    rt->last_transfer = &t->next;
    pthread_mutex_unlock(&rt->mutex);
    atomic_fetch_add(&rt->n_transfers, 1);
}

static void link_out(struct weft_rt *rt, struct weft_transfer *t)
{
    pthread_mutex_lock(&rt->mutex);
    *t->at = t->next;
    if (t->next)
        t->next->at = t->at;
    else
        rt->last_transfer = t->at;
    pthread_mutex_unlock(&rt->mutex);
    atomic_fetch_sub(&rt->n_transfers, 1);
}

/* Reports what went wrong with the tile's memory when the message was posted,
 * or that nobody asked for it. */
static void report_trouble(struct weft_transfer *t)
{
    struct weft_err err;
    char label[160];
    int trouble = atomic_exchange(&t->tile->trouble, 0);
    weft_tile_label(t->tile, label, sizeof label);
    if (!t->sends
        && atomic_fetch_add(&t->tile->n_came, 1)
               >= atomic_load(&t->tile->n_asked)) {
        trouble = WEFT_EINTERNAL;
        weft_err_set(&err, trouble,
                     "StarPU-MPI has lost '%s', which rank %d sent; the one "
                     "that tools/build-starpu makes does not",
                     label, t->peer);
    } else if (trouble == WEFT_ENOMEM) {
        weft_tile_refuse(t->tile, &err);
    } else if (trouble) {
        weft_err_set(&err, trouble,
                     "copy of '%s' to rank %d: nothing has written it", label,
                     t->peer);
    }
    if (trouble)
        weft_seq_record(t->seq, t->number, &err);
}

static void note_end(struct weft_rt *rt, const struct weft_transfer *t)
{
    if (!rt->profile)
        return;
    pthread_mutex_lock(&rt->mutex);
    int64_t i = rt->n_message_times++;
    struct weft_message_time *m = &rt->message_time[i % WEFT_MESSAGE_TIMES];
    *m = (struct weft_message_time){.start_us = t->tile->message_us,
                                    .end_us = weft_rt_now_us(rt),
                                    .bytes = t->tile->bytes,
                                    .peer = t->peer,
                                    .iteration = t->where.iteration,
                                    .sends = t->sends};
    weft_tile_label(t->tile, m->label, sizeof m->label);
    pthread_mutex_unlock(&rt->mutex);
}

/* Called at the end of a message. The tile is released already, so its next task
 * may be running. */
static void ended(void *arg)
{
    struct weft_transfer *t = arg;
    struct weft_seq *seq = t->seq;
    struct weft_rt *rt = seq->rt;
    int64_t lot = t->lot;
    report_trouble(t);
    note_end(rt, t);
    if (rt->moves)
        weft_moves_message_ended(rt, t->tile, t->sends, t->move, t->since_us);
    link_out(rt, t);
    if (!t->sends) {
        struct weft_moments *own = t->moments;
        atomic_compare_exchange_strong(&t->tile->receive, &own, NULL);
        atomic_fetch_sub(&t->tile->n_receives, 1);
        atomic_fetch_sub(&t->tile->n_writers, 1);
    }
    weft_ran_end(rt, t->moments);
    weft_tile_unhold(t->tile);
    weft_ran_done();
    weft_free(t);
    atomic_fetch_add(&rt->n_ended, 1);
    weft_seq_end(seq, lot, 1);
}

/* Starts the numbers again; called when no message is under way anywhere.
 * StarPU-MPI keeps some memory for every tag that it has seen. */
void weft_transfer_renumber(struct weft_rt *rt)
{
    memset(rt->n_sent, 0, (size_t) rt->n_ranks * sizeof *rt->n_sent);
    memset(rt->n_received, 0, (size_t) rt->n_ranks * sizeof *rt->n_received);
}

/* Of this message among those from one rank to the other, which both count. */
static int64_t next_number(struct weft_rt *rt, const struct weft_transfer *t)
{
    return t->sends ? rt->n_sent[t->peer]++ : rt->n_received[t->peer]++;
}

static void post(struct weft_rt *rt, struct weft_transfer *t)
{
    starpu_data_handle_t handle = t->tile->handle;
    MPI_Comm comm = weft_world_transfers();
    int64_t number = next_number(rt, t);
    /* Tags are odd in one direction and even in the other, as StarPU-MPI 1.3
     * keeps long messages of both directions in one table. */
    bool rises = t->sends ? rt->rank < t->peer : t->peer < rt->rank;
    starpu_mpi_tag_t tag = number * 2 + rises;
    if (t->tile->card) {
        t->direct = (struct weft_direct){.tile = t->tile,
                                         .peer = t->peer,
                                         .sends = t->sends,
                                         .number = number,
                                         .ended = ended,
                                         .arg = t};
        weft_direct_post(&t->direct);
    } else if (!t->sends)
        starpu_mpi_irecv_detached(handle, t->peer, tag, comm, ended, t);
    else if (t->tile->bytes < LONG_BYTES)
        starpu_mpi_isend_detached_prio(handle, t->peer, tag,
                                       t->where.priority, comm, ended, t);
    else
        starpu_mpi_issend_detached_prio(handle, t->peer, tag,
                                        t->where.priority, comm, ended, t);
}

static void transfer(struct weft_seq *seq, const struct weft_where *where,
                     struct weft_tile *tile, int peer, bool sends)
{
    struct weft_rt *rt = seq->rt;
    struct weft_transfer *t = weft_insert_alloc(1, sizeof *t, "a message");
    *t = (struct weft_transfer){
        .seq = seq,
        .tile = tile,
        .where = *where,
        .peer = peer,
        .sends = sends,
        .number = rt->n_copies,
        .since_us = weft_rt_now_us(rt),
        .moments = weft_ran_insert(
            rt, weft_rec_op_what(sends ? "send" : "receive"), where)};
    if (t->moments) /* or when it asks for its memory */
        weft_ran_note(rt, &t->moments->began);
    weft_tile_hold(tile);
    if (!sends) {
        struct weft_moments *none = NULL;
        atomic_compare_exchange_strong(&tile->receive, &none, t->moments);
        atomic_fetch_add(&tile->n_receives, 1);
        atomic_fetch_add(&tile->n_writers, 1);
    }
    if (rt->moves)
        t->move = weft_moves_message(rt, where, tile, peer, sends);
    link_in(rt, t);
    t->lot = weft_seq_begin(seq, 1);
    post(rt, t);
}

void weft_transfer_insert(struct weft_seq *seq,
                          const struct weft_where *where,
                          struct weft_tile *src, struct weft_tile *dst)
{
    struct weft_rt *rt = seq->rt;
    bool sends = weft_tile_is_here(src);
    struct weft_tile *tile = sends ? src : dst;
    int peer = weft_rt_place_rank(rt, sends ? dst->id.place : src->id.place);
    if (!weft_tile_is_here(tile))
        return;
    transfer(seq, where, tile, peer, sends);
}

void weft_transfer_report(struct weft_rt *rt)
{
    enum { MOST = 4 };
    long n[2] = {0}, n_told = 0;
    pthread_mutex_lock(&rt->mutex);
    for (const struct weft_transfer *t = rt->transfer; t; t = t->next) {
        char label[160];
        n[t->sends]++;
        if (t->sends || n_told++ >= MOST)
            continue;
        weft_tile_label(t->tile, label, sizeof label);
        weft_warn("  waits for '%s' from rank %d since %.1f s", label,
                  t->peer, (weft_rt_now_us(rt) - t->since_us) * 1e-6);
    }
    pthread_mutex_unlock(&rt->mutex);
    if (n[0] + n[1] > 0)
        weft_warn("  rank %d: %ld messages to receive, %ld to send", rt->rank,
                  n[0], n[1]);
}

/* ---- Start and stop --------------------------------------------------- */

int weft_transfer_create(struct weft_rt *rt, struct weft_err *err)
{
    size_t n = (size_t) rt->n_ranks,
           n_message_times = rt->profile ? WEFT_MESSAGE_TIMES : 0;
    rt->n_sent = weft_alloc(n, sizeof *rt->n_sent);
    rt->n_received = weft_alloc(n, sizeof *rt->n_received);
    rt->message_time = weft_alloc(n_message_times, sizeof *rt->message_time);
    if (!rt->n_sent || !rt->n_received || !rt->message_time)
        return weft_err_nomem(err, "messages",
                              n_message_times * sizeof *rt->message_time);
    return 0;
}

void weft_transfer_free(struct weft_rt *rt)
{
    weft_free(rt->n_sent);
    weft_free(rt->n_received);
    weft_free(rt->message_time);
}

typedef void (*nap_fn)(unsigned first_us, unsigned last_us);

/* The function that lets StarPU-MPI sleep; only the one that
 * tools/build-starpu makes has it, else NULL. */
static nap_fn starpu_nap(void)
{
    nap_fn fn;
    *(void **) &fn = dlsym(RTLD_DEFAULT, "starpu_mpi_nap");
    return fn;
}

bool weft_rt_messages_nap(void)
{
    return starpu_nap() != NULL;
}

/* A thread of StarPU-MPI polls for as long as it expects a message; this lets
 * it sleep between the polls. */
static void let_messages_nap(const struct weft_rt *rt)
{
    nap_fn nap = starpu_nap();
    if (nap)
        nap(rt->nap ? WEFT_NAP_FIRST_US : 0, rt->nap ? WEFT_NAP_LAST_US : 0);
    else if (rt->nap && weft_world_host()->share < 1 && rt->rank == 0)
        weft_warn("the ranks share cores, and this StarPU does not sleep "
                  "while it waits for messages: each takes milliseconds; "
                  "tools/build-starpu makes one that does");
}

void weft_transfer_start(struct weft_rt *rt)
{
    if (rt->n_ranks == 1)
        return;
    let_messages_nap(rt);
    int rc = starpu_mpi_init_comm(NULL, NULL, 0, weft_world_transfers());
    weft_assert(rc == 0); /* StarPU 1.3 and 1.4 return no other value */
    weft_interface_messages();
}

void weft_transfer_stop(struct weft_rt *rt)
{
    if (rt->n_ranks > 1)
        starpu_mpi_shutdown();
}

#else /* one process: every tile is here */

bool weft_rt_messages_nap(void)
{
    return false;
}

void weft_transfer_insert(struct weft_seq *seq,
                          const struct weft_where *where,
                          struct weft_tile *src, struct weft_tile *dst)
{
    (void) seq;
    (void) where;
    (void) src;
    (void) dst;
}

void weft_transfer_renumber(struct weft_rt *rt)
{
    (void) rt;
}

void weft_transfer_report(struct weft_rt *rt)
{
    (void) rt;
}

int weft_transfer_create(struct weft_rt *rt, struct weft_err *err)
{
    (void) rt;
    (void) err;
    return 0;
}

void weft_transfer_free(struct weft_rt *rt)
{
    (void) rt;
}

void weft_transfer_start(struct weft_rt *rt)
{
    (void) rt;
}

void weft_transfer_stop(struct weft_rt *rt)
{
    (void) rt;
}

#endif
