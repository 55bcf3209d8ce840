/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The KV cache of a sample that moves. Its pages in some of an instance's
 * arenas, which lie at one place, are gathered into one tile, and put into the
 * arenas of the same members of another instance. Instances of a call are cut
 * alike, so that pages are laid out alike, too. Which pages these are is said
 * by the instances' states, which may lie elsewhere (gen_retire.c).
 */
#include "codelets/gen_pages.h"

struct cache_args {
    int32_t n_arenas;
    int32_t capacity; /* pages of each arena that the tile has room for */
    size_t page_bytes[WEFT_GEN_ARENAS];
};

size_t weft_gen_cached_bytes(int32_t n_total)
{
    return sizeof(struct weft_gen_cached)
         + (size_t) weft_gen_pages_for(n_total) * sizeof(int32_t);
}

/* Of a page in all arenas. */
static size_t bytes_each(int32_t n_arenas, struct weft_tile *const arena[],
                         int32_t n_pages)
{
    size_t sum = 0;
    for (int32_t i = 0; i < n_arenas; i++)
        sum += weft_tile_bytes(arena[i]) / (size_t) n_pages;
    return sum;
}

size_t weft_gen_cache_bytes(int32_t n_arenas, struct weft_tile *const arena[],
                            int32_t n_pages, int32_t n_total)
{
    return bytes_each(n_arenas, arena, n_pages)
         * (size_t) weft_gen_pages_for(n_total);
}

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

/* Copies pages between arenas and the tile, which has all arenas' pages of the
 * first tokens, then of the next. */
static void copy_pages(const struct cache_args *args,
                       const struct weft_gen_cached *cached,
                       void *const arena[], char *tile, bool packs,
                       struct weft_exec *x)
{
    struct CUstream_st *stream = weft_exec_stream(x);
    int32_t n = weft_gen_pages_for(cached->n_cached);
    weft_assert(n <= args->capacity);
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < args->n_arenas; i++) {
            size_t bytes = args->page_bytes[i];
            char *page = (char *) arena[i] + (size_t) cached->page[k] * bytes;
            weft_gen_copy_bytes(stream, packs ? tile : page,
                                packs ? page : tile, bytes);
            tile += bytes;
        }
}

static int gen_pack(const void *args_, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct cache_args *args = args_;
    weft_assert(n_buf == 2 + args->n_arenas);
    copy_pages(args, buf[0], buf + 1, buf[1 + args->n_arenas], true, x);
    return 0;
}

WEFT_CODELET_2(gen_pack, 0x43a047, gen_pack, gen_pack)

static int gen_unpack(const void *args_, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const struct cache_args *args = args_;
    weft_assert(n_buf == 2 + args->n_arenas);
    copy_pages(args, buf[0], buf + 2, buf[1], false, x);
    return 0;
}

WEFT_CODELET_2(gen_unpack, 0x43a047, gen_unpack, gen_unpack)

static struct cache_args args_of(int32_t n_arenas,
                                 struct weft_tile *const arena[],
                                 int32_t n_pages,
                                 const struct weft_tile *cache)
{
    struct cache_args args = {.n_arenas = n_arenas};
    weft_assert(n_arenas <= WEFT_GEN_ARENAS);
    for (int32_t i = 0; i < n_arenas; i++)
        args.page_bytes[i] = weft_tile_bytes(arena[i]) / (size_t) n_pages;
    args.capacity = (int32_t) (weft_tile_bytes(cache)
                               / bytes_each(n_arenas, arena, n_pages));
    return args;
}

void weft_insert_gen_pack(struct weft_seq *seq,
                          const struct weft_where *where,
                          struct weft_tile *left, int32_t n_arenas,
                          struct weft_tile *const arena[], int32_t n_pages,
                          struct weft_tile *cache)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct cache_args args = args_of(n_arenas, arena, n_pages, cache);
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, left, WEFT_READ);
    for (int32_t i = 0; i < n_arenas; i++)
        weft_access_list_add(&access, arena[i], WEFT_READ);
    weft_access_list_add(&access, cache, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_pack, &args,
                            sizeof args);
}

void weft_insert_gen_unpack(struct weft_seq *seq,
                            const struct weft_where *where,
                            struct weft_tile *taken, struct weft_tile *cache,
                            int32_t n_arenas, struct weft_tile *const arena[],
                            int32_t n_pages)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct cache_args args = args_of(n_arenas, arena, n_pages, cache);
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, taken, WEFT_READ);
    weft_access_list_add(&access, cache, WEFT_READ);
    for (int32_t i = 0; i < n_arenas; i++)
        weft_access_list_add(&access, arena[i], WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_unpack, &args,
                            sizeof args);
}
