/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of tiles: the host's, or a card's; for src/rt alone. */
#ifndef WEFT_RT_POOL_H
#define WEFT_RT_POOL_H

#include <pthread.h>

#include "plan/card_memory.h"
#include "rt/graph.h"

/* Lists of kept blocks of one size: of a card, slots by kind, then pages. */
enum { WEFT_POOL_LISTS = WEFT_CARD_KINDS + 22 * 32 };

struct weft_usage { /* bytes by class, and at last a place's total */
    size_t now_bytes[WEFT_N_MEM_CLASSES + 1];
    size_t peak_bytes[WEFT_N_MEM_CLASSES + 1];
};

/* A block that is kept. Of the host's memory the struct lies in the block
 * itself; a card's cannot be written here. */
struct weft_kept {
    struct weft_kept *next;
    void *block;
    size_t bytes;
    int64_t after;          /* as in struct weft_need */
    uint64_t name;          /* of who had it last */
    struct weft_page *page; /* that it is a slot of; or NULL */
};

/* A page of a card's memory that has slots (plan/card_memory.h). */
struct weft_page {
    struct weft_page *next;
    char *block;
    int n_used;
    struct weft_kept slot[]; /* those that are not used are kept */
};

struct weft_pool;

/* Where blocks come from, and go to. */
struct weft_memory {
    bool is_card; /* it is cut as plan/card_memory.h says */
    bool zeros;   /* new blocks are zeros */
    void *(*get)(const struct weft_pool *pool, size_t bytes); /* or NULL */
    /* waits for what may still use it */
    void (*put)(const struct weft_pool *pool, void *block, size_t bytes);
};
/* The host's; what cards can read of it, which StarPU allocates; a card's. */
extern const struct weft_memory weft_memory_host, weft_memory_pinned,
    weft_memory_card;

/* Blocks are kept for reuse by size. Guarded by `mutex`. */
struct weft_pool {
    pthread_mutex_t mutex;
    const struct weft_memory *memory;
    unsigned node;            /* StarPU's, of the memory */
    const struct weft_rt *rt; /* of a card, or whose cards read it; or NULL */
    struct weft_kept *kept[WEFT_POOL_LISTS];
    struct weft_page *page[WEFT_CARD_KINDS];
    /* Given out or reserved, of classes that the limit bounds, beside slots;
     * pages with a slot that is used; in the lists, and pages with none. All of
     * them together are within the limit, and so is what the card holds. */
    size_t held_bytes, paged_bytes, cached_bytes;
    size_t limit_bytes;
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

/* Of the host's memory, until it is told another. */
struct weft_pool *weft_pool_create(size_t limit_bytes, int n_places);
void weft_pool_free(struct weft_pool *pool); /* NULL is allowed */
/* Returns a block; NULL beyond the limit, or when the system has no memory. */
void *weft_pool_get(struct weft_pool *pool, struct weft_need *need);
void weft_pool_put(struct weft_pool *pool, const struct weft_need *need,
                   void *block);
/* The same without a block; of a card, more than has a slot. False: beyond the
 * limit. */
bool weft_pool_reserve(struct weft_pool *pool, const struct weft_need *need);
void weft_pool_unreserve(struct weft_pool *pool,
                         const struct weft_need *need);
/* Writes an error that names class, wanted and left bytes. Returns
 * WEFT_ENOMEM. */
int weft_pool_refuse(struct weft_pool *pool, const struct weft_need *need,
                     const char *what, struct weft_err *err);

#endif
