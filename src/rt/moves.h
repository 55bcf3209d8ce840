/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long devices waited for what moves (struct weft_where), and for nothing
 * else; as the event engine says it of a recording (plan/engine/engine.h).
 *
 * A task could have begun when it was inserted, its device had computed what
 * came before, and its tiles could have been there if nothing took time that
 * moves, nor waited for a device. From then on it has waited for moves, until
 * the last of its tiles had come and its device had no more to copy itself, but
 * no longer than until it began. It waits so for what comes to its own tiles,
 * not for a task that waits.
 *
 * When a message could have been there only its sender knows. So tasks that may
 * have waited are noted as they end, and how long they did is found when all of
 * an iteration has ended, as ranks then tell one another.
 */
#ifndef WEFT_RT_MOVES_H
#define WEFT_RT_MOVES_H

#include "rt/internal.h"

/* What moves: a task, or a rank's side of a message. Times since
 * weft_rt_start(). */
struct weft_move {
    /* when it could have ended, but for the moves that it waits for, which
     * weft_moves_find() then adds */
    double could_us;
    _Atomic double ended_us;     /* 0: it has not */
    int32_t first_wait, n_waits; /* of struct weft_moves */
    int32_t peer;                /* of a message; -1: it is none */
    bool sends;
};

/* Of this rank, since weft_moves_find() was called last. */
struct weft_moves {
    struct weft_move *move; /* (n), from number n_before + 1 on */
    int64_t n_before;
    int32_t n, n_waits;
    int32_t *wait;    /* (n_waits) indices of moves that others wait for */
    atomic_bool lost; /* there were too many, or memory ran out */
};

/* A task that could have begun at could_us, but for the moves that it waits
 * for; its device copied until moved_us, and it began at start_us. */
struct weft_late {
    double could_us, moved_us, start_us;
    int32_t iteration, call;
    int32_t first_wait, n_waits;
};

int weft_moves_create(struct weft_rt *rt, struct weft_err *err);
void weft_moves_free(struct weft_rt *rt);

/* With rt->moves, by the inserting thread: a task is inserted, which has its
 * accesses; a message is, whose number is returned; 0: it does not move, or is
 * not noted. */
void weft_moves_insert(struct weft_rt *rt, struct weft_task *t);
int64_t weft_moves_message(struct weft_rt *rt, const struct weft_where *where,
                           struct weft_tile *tile, int peer, bool sends);

/* A task has ended on a worker, before any that waits for it begins; the caller
 * holds w->mutex. */
void weft_moves_ended(struct weft_worker *w, const struct weft_task *t,
                      struct weft_span ran);
/* With rt->moves: a message has ended, which was inserted at since_us. */
void weft_moves_message_ended(struct weft_rt *rt, struct weft_tile *tile,
                              bool sends, int64_t number, double since_us);

/* Adds to the times of calls what their tasks waited, and begins anew; all
 * tasks and messages have ended. False: it is not known. Collective. */
bool weft_moves_find(struct weft_rt *rt);

#endif
