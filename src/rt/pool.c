/* SPDX-License-Identifier: Apache-2.0 */
#include "rt/internal.h"

#include <string.h>

#include "base/alloc.h"

/* Block sizes grow in steps of 64 bytes up to 4 KiB, then in eight steps for
 * each power of two. */
static int size_class(size_t bytes, size_t *rounded_out)
{
    if (bytes <= 4096) {
        int step = (int) ((bytes + 63) / 64);
        *rounded_out = (size_t) step * 64;
        return step - 1;
    }
    int e = 12;
    while (bytes > (size_t) 2 << e)
        e++;
    size_t step_bytes = (size_t) 1 << (e - 3);
    size_t step = (bytes - ((size_t) 1 << e) + step_bytes - 1) / step_bytes;
    *rounded_out = ((size_t) 1 << e) + step * step_bytes;
    return 64 + (e - 12) * 8 + (int) step - 1;
}

/* The bytes of the blocks of size class i. */
static size_t class_bytes(int i)
{
    if (i < 64)
        return (size_t) (i + 1) * 64;
    int e = 12 + (i - 64) / 8;
    return ((size_t) 1 << e) + ((size_t) ((i - 64) % 8 + 1) << (e - 3));
}

/* Returns a block of the system's memory, or NULL. */
static void *block_get(struct weft_pool *pool, size_t bytes)
{
    if (!pool->is_starpus)
        return weft_alloc_aligned(bytes, 1);
    if (pool->rt)
        weft_card_use(pool->rt);
    void *block = (void *) starpu_malloc_on_node_flags(pool->node, bytes,
                                                       STARPU_MALLOC_PINNED);
    WEFT_TSAN_ACQUIRE(pool); /* after who had the memory before */
    return block;
}

static void block_put(struct weft_pool *pool, void *block, size_t bytes)
{
    if (!pool->is_starpus) {
        weft_free(block);
        return;
    }
    if (pool->rt)
        weft_card_use(pool->rt);
    WEFT_TSAN_RELEASE(pool);
    starpu_free_on_node_flags(pool->node, (uintptr_t) block, bytes,
                              STARPU_MALLOC_PINNED);
}

/* Bytes of the limit that are not given out. */
static size_t left(const struct weft_pool *pool)
{
    return pool->held_bytes < pool->limit_bytes
             ? pool->limit_bytes - pool->held_bytes
             : 0;
}

/* ---- Kept blocks ------------------------------------------------------- */

/* mutex is held */
static void *kept_remove(struct weft_pool *pool, int i, struct weft_kept **at,
                         int64_t *after_out)
{
    struct weft_kept *kept = *at;
    void *block = kept->block;
    *at = kept->next;
    *after_out = kept->after;
    if (block != kept)
        weft_free(kept);
    pool->cached_bytes -= class_bytes(i);
    return block;
}

/* Takes a kept block of class i: the one that the name had, the longest ago if
 * there are several; else one that no name had; else another name's, if the
 * limit leaves no room for a new one. NULL: there is none. mutex is held */
static void *kept_take(struct weft_pool *pool, int i, struct weft_need *need)
{
    struct weft_kept **at = &pool->kept[i], **own = NULL, **free = NULL;
    if (!*at)
        return NULL;
    for (; *at && (need->name || !free); at = &(*at)->next) {
        if (need->name && (*at)->name == need->name)
            own = at;
        else if (!(*at)->name && !free)
            free = at;
    }
    if (!own && !free && pool->cached_bytes + class_bytes(i) <= left(pool))
        return NULL;
    return kept_remove(pool, i,
                       own    ? own
                       : free ? free
                              : &pool->kept[i],
                       &need->after);
}

/* Keeps a block of class i; false: out of memory. mutex is held */
static bool kept_add(struct weft_pool *pool, int i, void *block,
                     const struct weft_need *need)
{
    struct weft_kept *kept = pool->node == STARPU_MAIN_RAM
                               ? block
                               : weft_alloc(1, sizeof *kept);
    if (!kept)
        return false;
    *kept = (struct weft_kept){pool->kept[i], block, need->after, need->name};
    pool->kept[i] = kept;
    pool->cached_bytes += class_bytes(i);
    return true;
}

/* ---- Life -------------------------------------------------------------- */

struct weft_pool *weft_pool_create(size_t limit_bytes, int n_places)
{
    struct weft_pool *pool = weft_alloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->place = weft_alloc((size_t) n_places, sizeof *pool->place);
    if (!pool->place) {
        weft_free(pool);
        return NULL;
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pool->limit_bytes = limit_bytes;
    return pool;
}

/* A block goes back to the system, which may give it out again. mutex is held
 */
static void forget(struct weft_pool *pool, int64_t after)
{
    if (pool->after < after)
        pool->after = after;
}

/* Gives blocks back to the system: those that had no name, then, if that is not
 * enough or `all` are meant, the others. mutex is held */
static void trim(struct weft_pool *pool, bool all)
{
    for (int named = 0; named < 2; named++)
        for (int i = 0; i < WEFT_POOL_CLASSES; i++) {
            struct weft_kept **at = &pool->kept[i];
            while (*at && (all || pool->cached_bytes > left(pool))) {
                int64_t after;
                if (!named && (*at)->name) {
                    at = &(*at)->next;
                    continue;
                }
                void *block = kept_remove(pool, i, at, &after);
                forget(pool, after);
                block_put(pool, block, class_bytes(i));
            }
        }
}

void weft_pool_free(struct weft_pool *pool)
{
    if (!pool)
        return;
    trim(pool, true);
    pthread_mutex_destroy(&pool->mutex);
    weft_free(pool->place);
    weft_free(pool);
}

static void count_up(struct weft_usage *u, int c, size_t bytes)
{
    u->now_bytes[c] += bytes;
    if (u->now_bytes[c] > u->peak_bytes[c])
        u->peak_bytes[c] = u->now_bytes[c];
}

static void count_down(struct weft_usage *u, int c, size_t bytes)
{
    u->now_bytes[c] -= bytes;
}

/* Counts a need in its class, and in the total where the class is part of
 * it. */
static void count(struct weft_usage *u, const struct weft_need *need,
                  void (*count_one)(struct weft_usage *u, int c,
                                    size_t bytes))
{
    count_one(u, need->c, need->bytes);
    if (weft_mem_class_at_place(need->c))
        count_one(u, WEFT_N_MEM_CLASSES, need->bytes);
}

/* mutex is held */
static void count_get(struct weft_pool *pool, const struct weft_need *need)
{
    /* A block's bytes beyond those asked for are never touched, so they take
     * no memory and are not counted. */
    if (weft_mem_class_at_place(need->c))
        pool->held_bytes += need->bytes;
    count(&pool->all, need, count_up);
    count(&pool->place[need->place], need, count_up);
}

/* mutex is held */
static void count_put(struct weft_pool *pool, const struct weft_need *need)
{
    if (weft_mem_class_at_place(need->c))
        pool->held_bytes -= need->bytes;
    count(&pool->all, need, count_down);
    count(&pool->place[need->place], need, count_down);
}

/* False: beyond the limit. mutex is held */
static bool reserve(struct weft_pool *pool, const struct weft_need *need)
{
    bool limited = weft_mem_class_at_place(need->c) && !need->beyond_limit;
    if (limited && need->bytes > left(pool))
        return false;
    count_get(pool, need);
    weft_ran_get();
    return true;
}

/* A block of the system's, which may be one that was given back to it. */
static void *block_new(struct weft_pool *pool, size_t bytes,
                       struct weft_need *need)
{
    void *block = block_get(pool, bytes);
    if (block && pool->node == STARPU_MAIN_RAM)
        return block;
    pthread_mutex_lock(&pool->mutex);
    if (!block) {
        trim(pool, true);
        block = block_get(pool, bytes);
    }
    need->after = pool->after;
    pthread_mutex_unlock(&pool->mutex);
    return block;
}

bool weft_pool_reserve(struct weft_pool *pool, const struct weft_need *need)
{
    pthread_mutex_lock(&pool->mutex);
    bool ok = reserve(pool, need);
    if (ok)
        trim(pool, false);
    pthread_mutex_unlock(&pool->mutex);
    return ok;
}

void weft_pool_unreserve(struct weft_pool *pool, const struct weft_need *need)
{
    pthread_mutex_lock(&pool->mutex);
    count_put(pool, need);
    weft_ran_put();
    pthread_mutex_unlock(&pool->mutex);
}

void *weft_pool_get(struct weft_pool *pool, struct weft_need *need)
{
    if (need->bytes > ((size_t) 1 << 47))
        return NULL;
    size_t rounded;
    int i = size_class(need->bytes, &rounded);
    void *block = NULL;
    pthread_mutex_lock(&pool->mutex);
    bool ok = reserve(pool, need);
    if (ok)
        block = kept_take(pool, i, need);
    if (ok && !block)
        trim(pool, false);
    pthread_mutex_unlock(&pool->mutex);
    if (!ok)
        return NULL;
    /* only the system's own blocks are zeros from the start */
    bool zero = need->zeroed && (block || pool->is_starpus);
    if (!block)
        block = block_new(pool, rounded, need);
    if (block && zero)
        weft_card_zero(pool->node, block, need->bytes);
    if (!block) {
        pthread_mutex_lock(&pool->mutex);
        count_put(pool, need);
        pthread_mutex_unlock(&pool->mutex);
    }
    return block;
}

void weft_pool_put(struct weft_pool *pool, const struct weft_need *need,
                   void *block)
{
    size_t rounded;
    int i = size_class(need->bytes, &rounded);
    pthread_mutex_lock(&pool->mutex);
    count_put(pool, need);
    weft_ran_put();
    /* A block is kept if kept and used blocks together stay within the limit,
     * and those of the host within a quarter of it. */
    size_t most_bytes = pool->node == STARPU_MAIN_RAM ? pool->limit_bytes / 4
                                                      : pool->limit_bytes;
    bool keep = pool->cached_bytes + rounded <= most_bytes
             && pool->cached_bytes + rounded <= left(pool)
             && kept_add(pool, i, block, need);
    if (!keep)
        forget(pool, need->after);
    pthread_mutex_unlock(&pool->mutex);
    if (!keep)
        block_put(pool, block, rounded);
}

int weft_pool_refuse(struct weft_pool *pool, const struct weft_need *need,
                     const char *what, struct weft_err *err)
{
    const char *name = weft_mem_class_name(need->c);
    const double mib = 1048576.0;
    pthread_mutex_lock(&pool->mutex);
    double limit = (double) pool->limit_bytes / mib;
    double unheld = (double) left(pool) / mib;
    double same = (double) pool->all.now_bytes[need->c] / mib;
    pthread_mutex_unlock(&pool->mutex);
    if (!weft_mem_class_at_place(need->c))
        return weft_err_set(err, WEFT_ENOMEM,
                            "out of memory: '%s' wants %.1f MiB of this "
                            "machine's memory, beside the %.1f MiB that "
                            "tiles may take; %s holds %.1f MiB",
                            what, (double) need->bytes / mib, limit, name,
                            same);
    if ((double) need->bytes / mib <= unheld)
        return weft_err_set(err, WEFT_ENOMEM,
                            "out of memory: '%s' wants %.1f MiB of %s, and "
                            "the system has none, though %.1f of %.1f MiB "
                            "are left: another program may use it",
                            what, (double) need->bytes / mib, name, unheld,
                            limit);
    return weft_err_set(err, WEFT_ENOMEM,
                        "out of memory: '%s' wants %.1f MiB of %s; %.1f of "
                        "%.1f MiB are left, %s hold %.1f MiB",
                        what, (double) need->bytes / mib, name, unheld, limit,
                        name, same);
}
