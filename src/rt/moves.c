/* SPDX-License-Identifier: Apache-2.0 */
#include "rt/moves.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

/* Moves of an iteration that are noted, and how often tasks wait for them; of
 * more it is not known who waited. Memory that is not used costs nothing. */
enum { MOST = 1 << 18, MOST_WAITS = 1 << 20 };

int weft_moves_create(struct weft_rt *rt, struct weft_err *err)
{
    struct weft_moves *m = weft_alloc(1, sizeof *m);
    rt->moves = m;
    if (m) {
        m->move = weft_alloc(MOST, sizeof *m->move);
        m->wait = weft_alloc(MOST_WAITS, sizeof *m->wait);
    }
    return m && m->move && m->wait
             ? 0
             : weft_err_nomem(err, "moves", MOST * sizeof *m->move);
}

void weft_moves_free(struct weft_rt *rt)
{
    if (rt->moves) {
        weft_free(rt->moves->move);
        weft_free(rt->moves->wait);
    }
    weft_free(rt->moves);
}

/* The move of a number; NULL: none, or one of before. */
static struct weft_move *move_of(const struct weft_moves *m, int64_t number)
{
    return number > m->n_before ? &m->move[number - m->n_before - 1] : NULL;
}

/* ---- Inserting ---------------------------------------------------------- */

/* Notes the move that a tile comes with, unless it has come, or is `own`. */
static void wait_for(struct weft_moves *m, const struct weft_tile *tile,
                     int64_t own)
{
    const struct weft_move *move = move_of(m, tile->move);
    if (!move || tile->move == own
        || atomic_load_explicit(&move->ended_us, memory_order_acquire) > 0)
        return;
    if (m->n_waits == MOST_WAITS)
        atomic_store(&m->lost, true);
    else
        m->wait[m->n_waits++] = (int32_t) (move - m->move);
}

/* A number for a move whose waits follow; 0: there are too many. */
static int64_t add(struct weft_moves *m, int peer, bool sends)
{
    if (m->n == MOST) {
        atomic_store(&m->lost, true);
        return 0;
    }
    struct weft_move *move = &m->move[m->n++];
    move->could_us = 0;
    atomic_store(&move->ended_us, 0);
    move->first_wait = m->n_waits;
    move->n_waits = 0;
    move->peer = peer;
    move->sends = sends;
    return m->n_before + m->n;
}

void weft_moves_insert(struct weft_rt *rt, struct weft_task *t)
{
    struct weft_moves *m = rt->moves;
    t->inserted_us = weft_rt_now_us(rt);
    t->move = t->where.moves ? add(m, -1, false) : 0;
    t->first_wait = m->n_waits;
    for (int i = 0, n = t->n_held; i < n; i++) {
        struct weft_tile *tile = t->held[i].tile;
        wait_for(m, tile, t->move);
        if (t->held[i].mode != WEFT_READ)
            tile->move = t->move;
    }
    t->n_waits = m->n_waits - t->first_wait;
    if (t->move)
        m->move[m->n - 1].n_waits = t->n_waits;
}

int64_t weft_moves_message(struct weft_rt *rt, const struct weft_where *where,
                           struct weft_tile *tile, int peer, bool sends)
{
    struct weft_moves *m = rt->moves;
    int64_t number = where->moves ? add(m, peer, sends) : 0;
    if (number) {
        struct weft_move *move = &m->move[m->n - 1];
        wait_for(m, tile, 0);
        move->n_waits = m->n_waits - move->first_wait;
    }
    if (!sends)
        tile->move = number;
    return number;
}

/* ---- Ending ------------------------------------------------------------- */

/* When a task could have begun, but for moves and its device. */
static double could_us(const struct weft_task *t)
{
    double us = t->inserted_us;
    for (int i = 0, n = t->n_held; i < n; i++)
        us = fmax(us, atomic_load_explicit(&t->held[i].tile->written_us,
                                           memory_order_relaxed));
    return us;
}

static void add_late(struct weft_worker *w, const struct weft_late *late)
{
    if (w->n_late == w->late_room) {
        int64_t room = 2 * w->late_room + 16;
        void *more = weft_realloc(w->late, (size_t) room, sizeof *w->late);
        if (!more) {
            atomic_store(&w->exec.rt->moves->lost, true);
            return;
        }
        w->late = more;
        w->late_room = room;
    }
    w->late[w->n_late++] = *late;
}

/* Most tasks begin when their device has time, and wait for no move. */
static void note_late(struct weft_worker *w, const struct weft_task *t,
                      double start_us)
{
    double could = fmax(w->computed_us, t->inserted_us);
    if (start_us <= could || (t->n_waits == 0 && w->moved_us <= could))
        return;
    could = fmax(could, could_us(t));
    if (start_us > could)
        add_late(w, &(struct weft_late){could, w->moved_us, start_us,
                                        t->where.iteration, t->where.call,
                                        t->first_wait, t->n_waits});
}

void weft_moves_ended(struct weft_worker *w, const struct weft_task *t,
                      struct weft_span ran)
{
    double end_us = ran.end_s * 1e6;
    if (t->where.moves) {
        struct weft_move *move = move_of(w->exec.rt->moves, t->move);
        if (move) {
            move->could_us = could_us(t);
            atomic_store_explicit(&move->ended_us, end_us,
                                  memory_order_release);
        }
        w->moved_us = end_us;
        return;
    }
    if (!w->exec.copies)
        note_late(w, t, ran.start_s * 1e6);
    for (int i = 0, n = t->n_held; i < n; i++)
        if (t->held[i].mode != WEFT_READ)
            atomic_store_explicit(&t->held[i].tile->written_us, end_us,
                                  memory_order_relaxed);
    w->computed_us = end_us;
}

/* A message begins when it is posted, or, if its tile comes with a move, could
 * have when that could have come. */
void weft_moves_message_ended(struct weft_rt *rt, struct weft_tile *tile,
                              bool sends, int64_t number, double since_us)
{
    struct weft_move *move = move_of(rt->moves, number);
    double now_us = weft_rt_now_us(rt);
    if (!move) {
        if (!sends)
            atomic_store_explicit(&tile->written_us, now_us,
                                  memory_order_relaxed);
        return;
    }
    move->could_us = move->n_waits > 0 ? since_us
                                       : fmax(since_us, tile->message_us);
    atomic_store_explicit(&move->ended_us, now_us, memory_order_release);
}

/* ---- What was waited for ------------------------------------------------ */

/* The later of a time and of when the moves that are waited for could have
 * ended. */
static double with_waits(const struct weft_moves *m, double us, int32_t first,
                         int32_t n)
{
    for (int32_t i = first; i < first + n; i++)
        us = fmax(us, m->move[m->wait[i]].could_us);
    return us;
}

/* When messages between this rank and another could have ended: of those sent,
 * put into times; of those received, raised to times. Returns how many there
 * are; *more: some were raised. */
static int32_t messages(struct weft_moves *m, int peer, bool sends,
                        double *times, bool *more)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->n; i++) {
        struct weft_move *move = &m->move[i];
        if (move->peer != peer || move->sends != sends)
            continue;
        if (sends && times) {
            times[n] = move->could_us;
        } else if (times && times[n] > move->could_us) {
            move->could_us = times[n];
            *more = true;
        }
        n++;
    }
    return n;
}

static void tell(struct weft_moves *m, int peer, double *times)
{
    int32_t n = messages(m, peer, true, times, NULL);
    if (n > 0)
        weft_world_send(peer, times, (size_t) n * sizeof *times);
}

static void hear(struct weft_moves *m, int peer, double *times, bool *more)
{
    int32_t n = messages(m, peer, false, NULL, NULL);
    if (n > 0)
        weft_world_receive(peer, times, (size_t) n * sizeof *times);
    messages(m, peer, false, times, more);
}

/* Receivers learn from senders; of two ranks the first tells first. True: some
 * rank has learned something. times: for all messages. */
static bool exchange(const struct weft_rt *rt, struct weft_moves *m,
                     double *times)
{
    bool more = false;
    for (int peer = 0; peer < rt->n_ranks; peer++) {
        if (peer == rt->rank)
            continue;
        if (rt->rank < peer)
            tell(m, peer, times);
        hear(m, peer, times, &more);
        if (rt->rank > peer)
            tell(m, peer, times);
    }
    int64_t any = more;
    weft_world_raise(&any, 1);
    return any > 0;
}

/* When moves could have ended: each waits for earlier ones, a message for the
 * other rank's. */
static void find_could(struct weft_rt *rt, double *times)
{
    struct weft_moves *m = rt->moves;
    do {
        for (int32_t i = 0; i < m->n; i++)
            m->move[i].could_us = with_waits(m, m->move[i].could_us,
                                             m->move[i].first_wait,
                                             m->move[i].n_waits);
    } while (exchange(rt, m, times));
}

static double waited_us(const struct weft_moves *m,
                        const struct weft_late *late)
{
    double could = with_waits(m, late->could_us, late->first_wait,
                              late->n_waits);
    double here = late->moved_us;
    for (int32_t i = 0; i < late->n_waits; i++)
        here = fmax(
            here,
            atomic_load(&m->move[m->wait[late->first_wait + i]].ended_us));
    return fmax(fmin(here, late->start_us) - could, 0);
}

static void add_up(struct weft_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    for (int64_t i = 0; i < w->n_late; i++) {
        const struct weft_late *late = &w->late[i];
        weft_times_add_waited(&w->times, late->iteration, late->call,
                              waited_us(w->exec.rt->moves, late) * 1e-6);
    }
    w->n_late = 0;
    pthread_mutex_unlock(&w->mutex);
}

bool weft_moves_find(struct weft_rt *rt)
{
    struct weft_moves *m = rt->moves;
    int64_t lost = !m || atomic_load(&m->lost);
    double *times = NULL;
    if (!lost) {
        times = weft_alloc((size_t) m->n + 1, sizeof *times);
        lost = !times;
    }
    weft_world_raise(&lost, 1);
    if (!lost)
        find_could(rt, times);
    for (int d = 0; d < rt->n_devices; d++) {
        if (lost)
            rt->worker[d].n_late = 0;
        else
            add_up(&rt->worker[d]);
    }
    weft_free(times);
    if (m) {
        m->n_before += m->n;
        m->n = m->n_waits = 0;
        atomic_store(&m->lost, false);
    }
    return !lost;
}
