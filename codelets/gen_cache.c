/* SPDX-License-Identifier: Apache-2.0 */
/* The KV cache of a sample that moves: its pages, gathered into one tile, and
 * put into another instance's arenas. Instances of a call are cut alike, so
 * that pages are laid out alike, too. */
#include <string.h>

#include "codelets/gen_pages.h"

struct cache_args {
    int32_t slot, n_arenas;
    int32_t capacity; /* pages that the tile has room for */
    size_t page_bytes[WEFT_GEN_ARENAS];
};

/* Of a tile; all arenas' pages of its first tokens follow, then of the next. */
struct cache {
    int32_t n_cached, reserved[15];
};

static size_t bytes_each(const struct cache_args *args)
{
    size_t sum = 0;
    for (int32_t i = 0; i < args->n_arenas; i++)
        sum += args->page_bytes[i];
    return sum;
}

size_t weft_gen_cache_bytes(int32_t n_arenas, struct weft_tile *const arena[],
                            int32_t n_pages, int32_t n_total)
{
    size_t sum = 0;
    for (int32_t i = 0; i < n_arenas; i++)
        sum += weft_tile_bytes(arena[i]) / (size_t) n_pages;
    return sizeof(struct cache) + sum * (size_t) weft_gen_pages_for(n_total);
}

/* A slot with nothing in the cache, as one that was put off, leaves nothing. */
static int gen_pack_cpu(const void *args_, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    const struct cache_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_gen_view view = weft_gen_view_of(weft_take(&take));
    void *const *arena = buf + take.next;
    take.next += args->n_arenas;
    struct cache *out = weft_take(&take);
    weft_take_end(&take);
    char *to = (char *) (out + 1);
    const int32_t *page = weft_gen_pages_of(&view, args->slot);
    int32_t n = view.slot[args->slot].n_cached;
    (void) x;
    weft_assert(weft_gen_pages_for(n) <= args->capacity);
    *out = (struct cache){.n_cached = n};
    for (int32_t k = 0; k < weft_gen_pages_for(n); k++)
        for (int32_t i = 0; i < args->n_arenas; i++) {
            size_t bytes = args->page_bytes[i];
            memcpy(to, (const char *) arena[i] + (size_t) page[k] * bytes,
                   bytes);
            to += bytes;
        }
    return 0;
}

WEFT_CODELET(gen_pack, 0x43a047, gen_pack_cpu)

int32_t weft_gen_take_cache(const struct weft_gen_view *view, int32_t slot,
                            int32_t n_cached)
{
    int32_t n = weft_gen_pages_for(n_cached);
    if (n == 0 || !weft_gen_has_free(view, n, -1))
        return 0;
    for (int32_t k = 0; k < n; k++)
        weft_gen_pages_of(view, slot)[k] = weft_gen_take_page(view);
    view->slot[slot].n_cached = view->slot[slot].n_ready = n_cached;
    return n;
}

static int gen_unpack_cpu(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    const struct cache_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    const struct cache *in = weft_take(&take);
    struct weft_gen_view view = weft_gen_view_of(weft_take(&take));
    void *const *arena = buf + take.next;
    take.next += args->n_arenas;
    weft_take_end(&take);
    const char *from = (const char *) (in + 1);
    int32_t n = weft_gen_take_cache(&view, args->slot, in->n_cached);
    const int32_t *page = weft_gen_pages_of(&view, args->slot);
    (void) x;
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < args->n_arenas; i++) {
            size_t bytes = args->page_bytes[i];
            memcpy((char *) arena[i] + (size_t) page[k] * bytes, from, bytes);
            from += bytes;
        }
    return 0;
}

WEFT_CODELET(gen_unpack, 0x43a047, gen_unpack_cpu)

static struct cache_args args_of(int32_t slot, int32_t n_arenas,
                                 struct weft_tile *const arena[],
                                 int32_t n_pages,
                                 const struct weft_tile *cache)
{
    struct cache_args args = {.slot = slot, .n_arenas = n_arenas};
    weft_assert(n_arenas <= WEFT_GEN_ARENAS);
    for (int32_t i = 0; i < n_arenas; i++)
        args.page_bytes[i] = weft_tile_bytes(arena[i]) / (size_t) n_pages;
    args.capacity = (int32_t) ((weft_tile_bytes(cache) - sizeof(struct cache))
                               / bytes_each(&args));
    return args;
}

void weft_insert_gen_pack(struct weft_seq *seq,
                          const struct weft_where *where, int32_t slot,
                          struct weft_tile *state, int32_t n_arenas,
                          struct weft_tile *const arena[], int32_t n_pages,
                          struct weft_tile *cache)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct cache_args args = args_of(slot, n_arenas, arena, n_pages, cache);
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, state, WEFT_READ);
    for (int32_t i = 0; i < n_arenas; i++)
        weft_access_list_add(&access, arena[i], WEFT_READ);
    weft_access_list_add(&access, cache, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_pack, &args,
                            sizeof args);
}

void weft_insert_gen_unpack(struct weft_seq *seq,
                            const struct weft_where *where, int32_t slot,
                            struct weft_tile *cache, struct weft_tile *state,
                            int32_t n_arenas, struct weft_tile *const arena[],
                            int32_t n_pages)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct cache_args args = args_of(slot, n_arenas, arena, n_pages, cache);
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, cache, WEFT_READ);
    weft_access_list_add(&access, state, WEFT_READ_WRITE);
    for (int32_t i = 0; i < n_arenas; i++)
        weft_access_list_add(&access, arena[i], WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_unpack, &args,
                            sizeof args);
}
