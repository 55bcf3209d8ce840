/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs of this rank, and what their workers put on their streams (card.c). */
#ifndef WEFT_RT_CARD_H
#define WEFT_RT_CARD_H

#include "rt/codelet.h"
#include "rt/pool.h"

/* A GPU of this rank, which is a place. Tiles there have its memory, and their
 * handles are at home on its node; but for those of classes that lie in host
 * memory (weft_mem_class_on_host()). */
struct weft_card {
    struct weft_pool *pool;
    unsigned node; /* StarPU's memory node */
    size_t free_bytes,
        total_bytes;             /* of the card, when the runtime started */
    struct weft_tile *free_tile; /* as rt->free_tile */
};

/* More than the bodies whose work may be under way on a stream (StarPU's
 * pipeline, at most 4), and the one before them. */
enum { WEFT_CARD_EVENTS = 8 };

/* Those who copy to a card, and from it. */
enum { WEFT_CARD_COPIERS = 2 };

struct weft_worker;

/* Cards that this process sees. */
int weft_card_count(void);
/* The calling thread uses one of this rank's cards from here on, if it named
 * none yet. Else its first call of CUDA would take some hundred MiB of the
 * machine's card 0, which may be another rank's. */
void weft_card_use(const struct weft_rt *rt);
/* Lets this rank's cards use one another's memory. false: some may not, or do not
 * get what is sent so, which is warned of; then all go by way of the host. */
bool weft_card_join_all(const struct weft_rt *rt);

/* Bytes of a card's memory: free, with what this process has taken gone, and
 * all. */
void weft_card_memory(unsigned node, size_t *free_out, size_t *total_out);
/* Of struct weft_memory; _put waits for all that the card does. */
void *weft_card_get(const struct weft_pool *pool, size_t bytes);
void weft_card_put(const struct weft_pool *pool, void *block, size_t bytes);

/* Memory of the host that all cards reach; NULL: there is none. */
void *weft_card_pin(size_t bytes);
void weft_card_unpin(void *block);

/* Work of a card. The host's node with any pointer of the host. _copy
 * with stream NULL ends before it returns, as _zero does, and comes after what
 * was put on any stream of the card before; _error: the code of a body that
 * returned rc, with what was refused when it was launched. What fails later
 * ends the job with a sentence; _note: of the worker whose thread this is. */
void weft_card_zero(unsigned node, void *to, size_t bytes);
void weft_card_copy(unsigned to_node, void *to, unsigned from_node,
                    const void *from, size_t bytes,
                    struct CUstream_st *stream);
int weft_card_error(struct weft_exec *x, int rc);
void weft_card_note(const struct weft_worker *w);
/* When the work of a body began and ended on the worker's stream: _begin, which
 * returns its number, and _end are called around the body. weft_card_took() is
 * called when the work has ended, in the order of numbers: microseconds that it
 * took, and, unless since_us_out is NULL, from the end of the one before. */
int64_t weft_card_begin(struct weft_worker *w);
void weft_card_end(struct weft_worker *w, int64_t number);
double weft_card_took(struct weft_worker *w, int64_t number,
                      double *since_us_out);
void weft_card_clear(struct weft_worker *w);
/* Waits for the end of work, awake for spin_us at most; lets what comes next on
 * the stream of one who copies wait for work of the card's worker `user`, -1:
 * for none. */
void weft_card_wait(struct weft_worker *w, int64_t number, double spin_us);
void weft_card_follow(struct weft_worker *w, struct weft_worker *user,
                      int64_t number);
/* Whether work of the card's worker `user` has ended; -1: there is none. */
bool weft_card_is_over(struct weft_worker *user, int64_t number);
/* The calling thread uses the card of a node from here on. */
void weft_card_enter(unsigned node);
/* Makes, and destroys, the stream of one who copies, for its thread. */
void weft_card_open(struct weft_worker *w);
void weft_card_close(struct weft_worker *w);

#endif
