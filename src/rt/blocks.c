/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of tasks' records. One thread gets all and others give back, which
 * makes malloc split and join its chunks; so blocks are kept by size for the
 * next tasks, and cut from slabs. Who ends a task puts its block into a list by
 * compare and swap; the inserting thread takes the whole list when it has no
 * block left, so that nobody takes single ones from there, and no lock is
 * needed.
 */
#include <string.h>

#include "base/alloc.h"
#include "rt/internal.h"

enum { STEP_BYTES = 128, SLAB_BYTES = 1 << 16, LINK_BYTES = 64 };

/* AddressSanitizer should see a use after the end. */
#ifdef __SANITIZE_ADDRESS__
enum { KEPT_BYTES = 0 };
#else
enum { KEPT_BYTES = WEFT_BLOCK_SIZES * STEP_BYTES };
#endif

static void *get(size_t bytes)
{
    void *p = weft_realloc(NULL, 1, bytes);
    if (!p)
        weft_insert_nomem("a task", bytes);
    return p;
}

/* A new block. */
static struct weft_task *cut(struct weft_blocks *blocks, size_t bytes)
{
    if (blocks->rest_bytes < bytes) {
        char *slab = get(SLAB_BYTES);
        *(void **) slab = blocks->slab;
        blocks->slab = slab;
        blocks->rest = slab + LINK_BYTES;
        blocks->rest_bytes = SLAB_BYTES - LINK_BYTES;
    }
    void *block = blocks->rest;
    blocks->rest += bytes;
    blocks->rest_bytes -= bytes;
    return block;
}

static struct weft_task *take(struct weft_blocks *blocks, size_t i)
{
    if (!blocks->list[i].free)
        blocks->list[i].free = atomic_exchange(&blocks->list[i].ended, NULL);
    struct weft_task *t = blocks->list[i].free;
    if (!t)
        return cut(blocks, (i + 1) * STEP_BYTES);
    blocks->list[i].free = t->next;
    return t;
}

struct weft_task *weft_block_get(struct weft_rt *rt, size_t bytes)
{
    size_t i = (bytes - 1) / STEP_BYTES;
    bool is_kept = bytes <= KEPT_BYTES;
    struct weft_task *t = is_kept ? take(&rt->blocks, i) : get(bytes);
    memset(t, 0, sizeof *t);
    t->size = is_kept ? (int8_t) i : -1;
    return t;
}

void weft_block_put(struct weft_rt *rt, struct weft_task *t)
{
    if (t->size < 0) {
        weft_free(t);
        return;
    }
    struct weft_task *_Atomic *ended = &rt->blocks.list[t->size].ended;
    t->next = atomic_load(ended);
    while (!atomic_compare_exchange_weak(ended, &t->next, t))
        continue;
}

void weft_blocks_free(struct weft_rt *rt)
{
    while (rt->blocks.slab) {
        void *slab = rt->blocks.slab;
        rt->blocks.slab = *(void **) slab;
        weft_free(slab);
    }
}
