/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of tiles: the host's, or a card's; for src/rt alone. */
#ifndef WEFT_RT_POOL_H
#define WEFT_RT_POOL_H

#include <pthread.h>

#include "rt/graph.h"

enum { WEFT_POOL_CLASSES = 64 + 8 * 36 };

struct weft_usage { /* bytes by class, and at last a place's total */
    size_t now_bytes[WEFT_N_MEM_CLASSES + 1];
    size_t peak_bytes[WEFT_N_MEM_CLASSES + 1];
};

/* A block that is kept. Of the host's memory the struct lies in the block
 * itself; a card's cannot be written here. */
struct weft_kept {
    struct weft_kept *next;
    void *block;
    int64_t after; /* as in struct weft_need */
    uint64_t name; /* of who had it last */
};

/* Blocks are kept for reuse by size. Guarded by `mutex`. */
struct weft_pool {
    pthread_mutex_t mutex;
    /* StarPU allocates the blocks, on this node: a card's memory, or host
     * memory that cards can read; false: the system does */
    bool is_starpus;
    unsigned node;
    const struct weft_rt *rt; /* whose cards read it, if it is the host's */
    struct weft_kept *kept[WEFT_POOL_CLASSES]; /* lists */
    size_t held_bytes;   /* given out, of classes that the limit bounds */
    size_t cached_bytes; /* in the lists */
    size_t limit_bytes;  /* of held_bytes */
    int64_t after;       /* of blocks that went back to the system */
    struct weft_usage all;
    struct weft_usage *place; /* (n_places) */
};

struct weft_need {
    size_t bytes;
    enum weft_mem_class c;
    int place;         /* of this rank: 0..n_places-1 */
    bool zeroed;       /* when got */
    bool beyond_limit; /* give it even beyond the limit */
    /* of a block of a card, when got and when put: how much was put on the
     * stream of the card's worker until what may still use it, counted from
     * the start (weft_card_begin()); 0: nothing does */
    int64_t after;
    /* Who gives a block back and asks for one again under the same name gets
     * the same one, while it is kept and nobody else has had to take it: so
     * addresses in captured graphs stay valid. 0: any block will do. */
    uint64_t name;
};

struct weft_pool *weft_pool_create(size_t limit_bytes, int n_places);
void weft_pool_free(struct weft_pool *pool); /* NULL is allowed */
/* Returns a block; NULL beyond the limit, or when the system has no memory. */
void *weft_pool_get(struct weft_pool *pool, struct weft_need *need);
void weft_pool_put(struct weft_pool *pool, const struct weft_need *need,
                   void *block);
/* The same without a block. False: beyond the limit. */
bool weft_pool_reserve(struct weft_pool *pool, const struct weft_need *need);
void weft_pool_unreserve(struct weft_pool *pool,
                         const struct weft_need *need);
/* Writes an error that names class, wanted and left bytes. Returns
 * WEFT_ENOMEM. */
int weft_pool_refuse(struct weft_pool *pool, const struct weft_need *need,
                     const char *what, struct weft_err *err);

#endif
