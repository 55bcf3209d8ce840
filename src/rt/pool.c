/* SPDX-License-Identifier: Apache-2.0 */
#include "rt/internal.h"

#include <string.h>

#include "base/alloc.h"

/* ---- Sizes -------------------------------------------------------------- */

/* The size of the block for a need: its list, its bytes, and of a card what
 * kind of page it has a slot of. */
struct size {
    int list, kind;
    size_t bytes;
};

/* The host's sizes grow in steps of 64 bytes up to 4 KiB, then in eight steps
 * for each power of two. */
static struct size host_size(size_t bytes)
{
    if (bytes <= 4096) {
        int step = (int) ((bytes + 63) / 64);
        return (struct size){step - 1, WEFT_CARD_NO_KIND, (size_t) step * 64};
    }
    int e = 12;
    while (bytes > (size_t) 2 << e)
        e++;
    size_t step_bytes = (size_t) 1 << (e - 3);
    size_t step = (bytes - ((size_t) 1 << e) + step_bytes - 1) / step_bytes;
    return (struct size){64 + (e - 12) * 8 + (int) step - 1,
                         WEFT_CARD_NO_KIND,
                         ((size_t) 1 << e) + step * step_bytes};
}

static struct size size_of(const struct weft_pool *pool,
                           const struct weft_need *need)
{
    if (!pool->memory->is_card)
        return host_size(need->bytes);
    struct size s = {.kind = weft_card_kind(need->bytes, need->c),
                     .bytes = weft_card_block_bytes(need->bytes, need->c)};
    size_t step = WEFT_CARD_PAGE_BYTES;
    s.list = s.kind;
    if (s.kind != WEFT_CARD_NO_KIND)
        return s;
    for (s.list = WEFT_CARD_KINDS; step * 32 < s.bytes; step *= 2)
        s.list += 32;
    s.list += (int) (s.bytes / step) - 1;
    return s;
}

/* ---- Memory ------------------------------------------------------------- */

static void *host_get(const struct weft_pool *pool, size_t bytes)
{
    (void) pool;
    return weft_alloc_aligned(bytes, 1);
}

static void host_put(const struct weft_pool *pool, void *block, size_t bytes)
{
    (void) pool;
    (void) bytes;
    weft_free(block);
}

const struct weft_memory weft_memory_host = {
    .zeros = true, .get = host_get, .put = host_put};

/* Beyond this StarPU has an allocation of CUDA's for each block, too, but where
 * there is none the job ends, as if a GPU had failed. */
static const size_t SMALL_PINNED = (size_t) 1 << 20;

static void *pinned_get(const struct weft_pool *pool, size_t bytes)
{
    weft_card_use(pool->rt);
    weft_exec_hold_gpus();
    void *block = bytes > SMALL_PINNED
                    ? weft_card_pin(bytes)
                    : (void *) starpu_malloc_on_node_flags(
                        pool->node, bytes, STARPU_MALLOC_PINNED);
    weft_exec_let_gpus();
    WEFT_TSAN_ACQUIRE(pool); /* after who had the memory before */
    return block;
}

static void pinned_put(const struct weft_pool *pool, void *block,
                       size_t bytes)
{
    weft_card_use(pool->rt);
    WEFT_TSAN_RELEASE(pool);
    weft_exec_hold_gpus();
    if (bytes > SMALL_PINNED)
        weft_card_unpin(block);
    else
        starpu_free_on_node_flags(pool->node, (uintptr_t) block, bytes,
                                  STARPU_MALLOC_PINNED);
    weft_exec_let_gpus();
}

const struct weft_memory weft_memory_pinned = {.get = pinned_get,
                                               .put = pinned_put};

const struct weft_memory weft_memory_card = {
    .is_card = true, .get = weft_card_get, .put = weft_card_put};

/* Bytes of the limit that are not given out. */
static size_t left(const struct weft_pool *pool)
{
    size_t used = pool->held_bytes + pool->paged_bytes;
    return used < pool->limit_bytes ? pool->limit_bytes - used : 0;
}

/* ---- Counts ------------------------------------------------------------- */

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

typedef void (*count_fn)(struct weft_usage *u, int c, size_t bytes);

static void count_in(struct weft_pool *pool, int place, int c, size_t bytes,
                     count_fn count)
{
    count(&pool->all, c, bytes);
    count(&pool->place[place], c, bytes);
}

/* Counts a need in its class, and in the total where the class is part of it. A
 * slot's share of the total is its page, which counts once. Of the host's
 * memory, what a block has beyond the bytes asked for is never touched, so that
 * it takes none and does not count. mutex is held */
static void count(struct weft_pool *pool, const struct weft_need *need,
                  count_fn count_one)
{
    struct size s = size_of(pool, need);
    size_t bytes = pool->memory->is_card ? s.bytes : need->bytes;
    count_in(pool, need->place, (int) need->c, bytes, count_one);
    if (!weft_mem_class_at_place(need->c) || s.kind != WEFT_CARD_NO_KIND)
        return;
    pool->held_bytes += count_one == count_up ? bytes : -bytes;
    count_in(pool, need->place, WEFT_N_MEM_CLASSES, bytes, count_one);
}

/* Whether a need must be within the limit. */
static bool is_limited(const struct weft_need *need)
{
    return weft_mem_class_at_place(need->c) && !need->beyond_limit;
}

/* False: beyond the limit. mutex is held */
static bool reserve(struct weft_pool *pool, const struct weft_need *need)
{
    size_t bytes = pool->memory->is_card ? size_of(pool, need).bytes
                                         : need->bytes;
    if (is_limited(need) && bytes > left(pool))
        return false;
    count(pool, need, count_up);
    weft_ran_get();
    return true;
}

/* ---- Kept blocks ------------------------------------------------------- */

/* mutex is held */
static void *kept_remove(struct weft_pool *pool, struct weft_kept **at,
                         int64_t *after_out)
{
    struct weft_kept *kept = *at;
    void *block = kept->block;
    *at = kept->next;
    *after_out = kept->after;
    if (kept->page)
        return block;
    pool->cached_bytes -= kept->bytes;
    if (block != kept)
        weft_free(kept);
    return block;
}

/* Takes a kept block: the one that the name had, the longest ago if there are
 * several; else one that no name had; else another name's, if it is a slot or
 * the limit leaves no room for a new one. NULL: there is none. mutex is held */
static void *kept_take(struct weft_pool *pool, const struct size *size,
                       struct weft_need *need)
{
    struct weft_kept **first = &pool->kept[size->list];
    struct weft_kept **at = first, **own = NULL, **free = NULL;
    if (!*at)
        return NULL;
    for (; *at && (need->name || !free); at = &(*at)->next) {
        if (need->name && (*at)->name == need->name)
            own = at;
        else if (!(*at)->name && !free)
            free = at;
    }
    if (!own && !free && size->kind == WEFT_CARD_NO_KIND
        && pool->cached_bytes + size->bytes <= left(pool))
        return NULL;
    return kept_remove(pool, own ? own : free ? free : first, &need->after);
}

static void kept_link(struct weft_pool *pool, int list,
                      struct weft_kept *kept)
{
    kept->next = pool->kept[list];
    pool->kept[list] = kept;
}

/* Keeps a block; false: out of memory. mutex is held */
static bool kept_add(struct weft_pool *pool, const struct size *size,
                     void *block, const struct weft_need *need)
{
    struct weft_kept *kept = pool->memory->is_card
                               ? weft_alloc(1, sizeof *kept)
                               : block;
    if (!kept)
        return false;
    *kept = (struct weft_kept){.block = block,
                               .bytes = size->bytes,
                               .after = need->after,
                               .name = need->name};
    kept_link(pool, size->list, kept);
    pool->cached_bytes += size->bytes;
    return true;
}

static void page_drop(struct weft_pool *pool, int kind, struct weft_page **at)
{
    struct weft_page *page = *at;
    struct weft_kept **kept = &pool->kept[kind];
    while (*kept)
        if ((*kept)->page == page)
            *kept = (*kept)->next;
        else
            kept = &(*kept)->next;
    *at = page->next;
    pool->cached_bytes -= WEFT_CARD_PAGE_BYTES;
    pool->memory->put(pool, page->block, WEFT_CARD_PAGE_BYTES);
    weft_free(page);
}

/* Whether kept blocks leave no room for so many bytes. */
static bool is_full(const struct weft_pool *pool, size_t bytes)
{
    return pool->cached_bytes + bytes > left(pool);
}

static void trim_lists(struct weft_pool *pool, size_t bytes, bool all,
                       bool named)
{
    int first = pool->memory->is_card ? WEFT_CARD_KINDS : 0;
    for (int i = first; i < WEFT_POOL_LISTS; i++) {
        struct weft_kept **at = &pool->kept[i];
        while (*at && (all || is_full(pool, bytes))) {
            size_t freed = (*at)->bytes;
            int64_t after; /* has ended when it has gone back */
            if (!named && (*at)->name)
                at = &(*at)->next;
            else
                pool->memory->put(pool, kept_remove(pool, at, &after), freed);
        }
    }
}

/* Gives blocks back to the system, until so many bytes have room: those that
 * had no name, then pages none of whose slots is used, then, if that is not
 * enough or `all` are meant, the others. mutex is held */
static void trim(struct weft_pool *pool, size_t bytes, bool all)
{
    trim_lists(pool, bytes, all, false);
    for (int k = 0; k < WEFT_CARD_KINDS; k++) {
        struct weft_page **at = &pool->page[k];
        while (*at && (all || is_full(pool, bytes)))
            if ((*at)->n_used > 0)
                at = &(*at)->next;
            else
                page_drop(pool, k, at);
    }
    trim_lists(pool, bytes, all, true);
}

/* ---- Slots -------------------------------------------------------------- */

/* mutex is held */
static void *page_get(struct weft_pool *pool)
{
    trim(pool, WEFT_CARD_PAGE_BYTES, false);
    void *block = pool->memory->get(pool, WEFT_CARD_PAGE_BYTES);
    if (block)
        return block;
    trim(pool, 0, true);
    return pool->memory->get(pool, WEFT_CARD_PAGE_BYTES);
}

/* A page with slots of a kind. mutex is held */
static bool page_add(struct weft_pool *pool, const struct size *size)
{
    size_t n = WEFT_CARD_PAGE_BYTES / size->bytes;
    struct weft_page *page = weft_alloc(1, sizeof *page
                                               + n * sizeof page->slot[0]);
    char *block = page ? page_get(pool) : NULL;
    if (!block) {
        weft_free(page);
        return false;
    }
    page->next = pool->page[size->kind];
    pool->page[size->kind] = page;
    page->block = block;
    while (n-- > 0) {
        page->slot[n] = (struct weft_kept){.block = block + n * size->bytes,
                                           .bytes = size->bytes,
                                           .page = page};
        kept_link(pool, size->list, &page->slot[n]);
    }
    pool->cached_bytes += WEFT_CARD_PAGE_BYTES;
    return true;
}

static struct weft_page *page_of(const struct weft_pool *pool, int kind,
                                 const char *slot)
{
    struct weft_page *page = pool->page[kind];
    while (slot < page->block || slot >= page->block + WEFT_CARD_PAGE_BYTES)
        page = page->next;
    return page;
}

/* A page's first slot is used, or its last one is not any more. */
static void page_count(struct weft_pool *pool, const struct weft_need *need,
                       count_fn count_one)
{
    size_t bytes = WEFT_CARD_PAGE_BYTES;
    bool up = count_one == count_up;
    pool->paged_bytes += up ? bytes : -bytes;
    pool->cached_bytes -= up ? bytes : -bytes;
    count_in(pool, need->place, WEFT_N_MEM_CLASSES, bytes, count_one);
}

/* mutex is held */
static void *slot_get(struct weft_pool *pool, const struct size *size,
                      struct weft_need *need)
{
    if (!pool->kept[size->list]
        && ((is_limited(need) && left(pool) < WEFT_CARD_PAGE_BYTES)
            || !page_add(pool, size)))
        return NULL;
    void *slot = kept_take(pool, size, need);
    if (page_of(pool, size->kind, slot)->n_used++ == 0)
        page_count(pool, need, count_up);
    count(pool, need, count_up);
    weft_ran_get();
    return slot;
}

/* mutex is held */
static void slot_put(struct weft_pool *pool, const struct size *size,
                     const struct weft_need *need, char *slot)
{
    struct weft_page *page = page_of(pool, size->kind, slot);
    struct weft_kept *kept =
        &page->slot[(size_t) (slot - page->block) / size->bytes];
    kept->after = need->after;
    kept->name = need->name;
    kept_link(pool, size->list, kept);
    if (--page->n_used == 0)
        page_count(pool, need, count_down);
    count(pool, need, count_down);
    weft_ran_put();
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
    pool->memory = &weft_memory_host;
    pool->limit_bytes = limit_bytes;
    return pool;
}

void weft_pool_free(struct weft_pool *pool)
{
    if (!pool)
        return;
    trim(pool, 0, true);
    pthread_mutex_destroy(&pool->mutex);
    weft_free(pool->place);
    weft_free(pool);
}

/* A block of the system's. */
static void *block_new(struct weft_pool *pool, size_t bytes)
{
    void *block = pool->memory->get(pool, bytes);
    if (block)
        return block;
    pthread_mutex_lock(&pool->mutex);
    trim(pool, 0, true);
    block = pool->memory->get(pool, bytes);
    pthread_mutex_unlock(&pool->mutex);
    return block;
}

bool weft_pool_reserve(struct weft_pool *pool, const struct weft_need *need)
{
    weft_assert(size_of(pool, need).kind == WEFT_CARD_NO_KIND);
    pthread_mutex_lock(&pool->mutex);
    bool ok = reserve(pool, need);
    if (ok)
        trim(pool, 0, false);
    pthread_mutex_unlock(&pool->mutex);
    return ok;
}

void weft_pool_unreserve(struct weft_pool *pool, const struct weft_need *need)
{
    pthread_mutex_lock(&pool->mutex);
    count(pool, need, count_down);
    weft_ran_put();
    pthread_mutex_unlock(&pool->mutex);
}

/* A kept block, or NULL. *ok_out: whether the limit allows one. */
static void *block_get(struct weft_pool *pool, const struct size *size,
                       struct weft_need *need, bool *ok_out)
{
    void *block = NULL;
    pthread_mutex_lock(&pool->mutex);
    if (size->kind != WEFT_CARD_NO_KIND) {
        block = slot_get(pool, size, need);
        *ok_out = block != NULL;
    } else {
        *ok_out = reserve(pool, need);
        if (*ok_out)
            block = kept_take(pool, size, need);
        if (*ok_out && !block)
            trim(pool, 0, false);
    }
    pthread_mutex_unlock(&pool->mutex);
    return block;
}

void *weft_pool_get(struct weft_pool *pool, struct weft_need *need)
{
    if (need->bytes > ((size_t) 1 << 47))
        return NULL;
    struct size size = size_of(pool, need);
    bool ok;
    void *block = block_get(pool, &size, need, &ok);
    if (!ok)
        return NULL;
    bool zero = need->zeroed && (block || !pool->memory->zeros);
    if (!block)
        block = block_new(pool, size.bytes);
    if (block && zero)
        weft_card_zero(pool->node, block, need->bytes);
    if (!block) {
        pthread_mutex_lock(&pool->mutex);
        count(pool, need, count_down);
        pthread_mutex_unlock(&pool->mutex);
    }
    return block;
}

/* A block is kept if kept and used blocks together stay within the limit, and
 * those of the host within a quarter of it. mutex is held */
static bool keeps(struct weft_pool *pool, const struct size *size,
                  const struct weft_need *need, void *block)
{
    size_t most_bytes = pool->memory->is_card ? pool->limit_bytes
                                              : pool->limit_bytes / 4;
    return pool->cached_bytes + size->bytes <= most_bytes
        && !is_full(pool, size->bytes) && kept_add(pool, size, block, need);
}

void weft_pool_put(struct weft_pool *pool, const struct weft_need *need,
                   void *block)
{
    struct size size = size_of(pool, need);
    bool is_kept = true;
    pthread_mutex_lock(&pool->mutex);
    if (size.kind != WEFT_CARD_NO_KIND) {
        slot_put(pool, &size, need, block);
    } else {
        count(pool, need, count_down);
        weft_ran_put();
        is_kept = keeps(pool, &size, need, block);
    }
    pthread_mutex_unlock(&pool->mutex);
    if (!is_kept)
        pool->memory->put(pool, block, size.bytes);
}

/* ---- Refusing ----------------------------------------------------------- */

/* What a block takes of the limit that it does not get. */
static size_t wanted(const struct weft_pool *pool,
                     const struct weft_need *need)
{
    struct size size = size_of(pool, need);
    return !pool->memory->is_card         ? need->bytes
         : size.kind == WEFT_CARD_NO_KIND ? size.bytes
                                          : WEFT_CARD_PAGE_BYTES;
}

int weft_pool_refuse(struct weft_pool *pool, const struct weft_need *need,
                     const char *what, struct weft_err *err)
{
    const char *name = weft_mem_class_name(need->c);
    const double mib = 1048576.0;
    double want = (double) wanted(pool, need) / mib;
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
                            what, want, limit, name, same);
    if (want <= unheld)
        return weft_err_set(err, WEFT_ENOMEM,
                            "out of memory: '%s' wants %.1f MiB of %s, and "
                            "the system has none, though %.1f of %.1f MiB "
                            "are left: another program may use it",
                            what, want, name, unheld, limit);
    return weft_err_set(err, WEFT_ENOMEM,
                        "out of memory: '%s' wants %.1f MiB of %s; %.1f of "
                        "%.1f MiB are left, %s hold %.1f MiB",
                        what, want, name, unheld, limit, name, same);
}
