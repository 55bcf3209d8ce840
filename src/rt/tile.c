/* SPDX-License-Identifier: Apache-2.0 */
#include "rt/internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "rt/world.h"

static void add_word(char *text, size_t size, const char *word)
{
    size_t n = strlen(text);
    if (word && n < size)
        snprintf(text + n, size - n, "%s%s", n ? " " : "", word);
}

static void add_number(char *text, size_t size, const char *word, int32_t i)
{
    char number[48];
    if (i < 0)
        return;
    snprintf(number, sizeof number, "%s %d", word, i);
    add_word(text, size, number);
}

void weft_tile_label(const struct weft_tile *tile, char *text, size_t size)
{
    const struct weft_tile_id *id = &tile->id;
    text[0] = 0;
    add_word(text, size, id->model);
    add_number(text, size, "version", id->version);
    add_number(text, size, "layer", id->layer);
    add_number(text, size, "block", id->block);
    add_word(text, size, id->kind);
    if (!text[0])
        snprintf(text, size, "%s", weft_mem_class_name(tile->mem));
}

/* ---- Places ----------------------------------------------------------- */

int weft_rt_n_places(const struct weft_rt *rt)
{
    return rt->n_ranks * rt->places_per_rank;
}

int weft_rt_place_of(const struct weft_rt *rt, int device)
{
    return rt->places_per_rank == 1 ? device / rt->n_devices : device;
}

int weft_rt_place_rank(const struct weft_rt *rt, int place)
{
    return place / rt->places_per_rank;
}

int weft_tile_place(const struct weft_tile *tile)
{
    return tile->id.place;
}

bool weft_tile_is_here(const struct weft_tile *tile)
{
    return tile->handle != NULL;
}

/* ---- Life ------------------------------------------------------------- */

/* A tile struct, with its handle if it is here: a used one, or a new one. */
static struct weft_tile *tile_get(struct weft_rt *rt, bool here)
{
    struct weft_tile **list = here ? &rt->free_tile : &rt->free_foreign;
    pthread_mutex_lock(&rt->mutex);
    struct weft_tile *tile = *list;
    if (tile)
        *list = tile->next;
    pthread_mutex_unlock(&rt->mutex);
    if (tile)
        return tile;
    tile = weft_alloc(1, sizeof *tile);
    if (!tile)
        return NULL;
    tile->rt = rt;
    if (here)
        weft_tile_register(tile);
    pthread_mutex_lock(&rt->mutex);
    tile->all = rt->all_tile;
    rt->all_tile = tile;
    pthread_mutex_unlock(&rt->mutex);
    return tile;
}

static int tile_create(struct weft_rt *rt, const struct weft_tile_id *id,
                       enum weft_mem_class c, size_t bytes, bool temporary,
                       struct weft_tile **out, struct weft_err *err)
{
    if (bytes == 0)
        return weft_err_set(err, WEFT_EINVAL, "a tile of %s has no bytes",
                            weft_mem_class_name(c));
    if (id->place < 0 || id->place >= weft_rt_n_places(rt))
        return weft_err_set(err, WEFT_EINVAL,
                            "a tile of %s wants place %d; there are 0 to %d",
                            weft_mem_class_name(c), id->place,
                            weft_rt_n_places(rt) - 1);
    bool here = weft_rt_place_rank(rt, id->place) == rt->rank;
    struct weft_tile *tile = tile_get(rt, here);
    if (!tile)
        return weft_err_nomem(err, "a tile", sizeof *tile);
    tile->id = *id;
    tile->mem = c;
    tile->bytes = bytes;
    tile->mark = 0;
    atomic_store(&tile->n_refs, 1);
    if (here && !temporary && !weft_tile_data(tile, true)) {
        int rc = weft_tile_refuse(tile, err);
        weft_tile_drop(tile);
        return rc;
    }
    *out = tile;
    return 0;
}

int weft_tile_create(struct weft_rt *rt, const struct weft_tile_id *id,
                     enum weft_mem_class c, size_t bytes,
                     struct weft_tile **out, struct weft_err *err)
{
    return tile_create(rt, id, c, bytes, false, out, err);
}

int weft_tile_create_temp(struct weft_rt *rt, const struct weft_tile_id *id,
                          enum weft_mem_class c, size_t bytes,
                          struct weft_tile **out, struct weft_err *err)
{
    return tile_create(rt, id, c, bytes, true, out, err);
}

static struct weft_need need_of(const struct weft_tile *tile)
{
    return (struct weft_need){.bytes = tile->bytes,
                              .c = tile->mem,
                              .place = tile->id.place
                                     - tile->rt->first_place};
}

/* Readers of a tile that nobody wrote, after an error, may come together. */
static void *tile_fill(struct weft_tile *tile, const struct weft_need *need)
{
    struct weft_pool *pool = tile->rt->pool;
    void *none = NULL, *block = weft_pool_get(pool, need);
    if (!block || atomic_compare_exchange_strong(&tile->data, &none, block))
        return block;
    weft_pool_put(pool, need, block);
    return none;
}

void *weft_tile_data(struct weft_tile *tile, bool zeroed)
{
    void *data = atomic_load(&tile->data);
    if (data)
        return data;
    struct weft_need need = need_of(tile);
    need.zeroed = zeroed;
    return tile_fill(tile, &need);
}

int weft_tile_refuse(const struct weft_tile *tile, struct weft_err *err)
{
    char label[160];
    struct weft_need need = need_of(tile);
    weft_tile_label(tile, label, sizeof label);
    return weft_pool_refuse(tile->rt->pool, &need, label, err);
}

void *weft_tile_message(struct weft_tile *tile)
{
    void *data = atomic_load(&tile->data);
    tile->message_us = weft_rt_now_us(tile->rt);
    if (data)
        return data;
    struct weft_need need = need_of(tile);
    need.zeroed = atomic_load(&tile->n_receives) == 0;
    if (need.zeroed)
        atomic_store(&tile->trouble, WEFT_ESTATE);
    data = tile_fill(tile, &need);
    if (data)
        return data;
    atomic_store(&tile->trouble, WEFT_ENOMEM);
    need.beyond_limit = true;
    data = tile_fill(tile, &need);
    if (!data) {
        struct weft_err err;
        weft_tile_refuse(tile, &err);
        weft_world_abort(&err);
    }
    return data;
}

static void tile_empty(struct weft_tile *tile)
{
    void *data = atomic_exchange(&tile->data, NULL);
    struct weft_need need = need_of(tile);
    if (data)
        weft_pool_put(tile->rt->pool, &need, data);
}

void weft_tile_drop(struct weft_tile *tile)
{
    if (atomic_fetch_sub(&tile->n_refs, 1) != 1)
        return;
    struct weft_rt *rt = tile->rt;
    struct weft_tile **list = tile->handle ? &rt->free_tile
                                           : &rt->free_foreign;
    tile_empty(tile);
    pthread_mutex_lock(&rt->mutex);
    tile->next = *list;
    *list = tile;
    pthread_mutex_unlock(&rt->mutex);
}

void weft_tile_release(struct weft_tile *tile)
{
    if (tile)
        weft_tile_drop(tile);
}

void weft_tile_free_all(struct weft_rt *rt)
{
    while (rt->all_tile) {
        struct weft_tile *tile = rt->all_tile;
        rt->all_tile = tile->all;
        tile_empty(tile);
        atomic_store(&tile->n_refs, 0);
        if (tile->handle)
            starpu_data_unregister(tile->handle);
        weft_free(tile);
    }
    rt->free_tile = rt->free_foreign = NULL;
}

/* ---- The program's own access ------------------------------------------ */

size_t weft_tile_bytes(const struct weft_tile *tile)
{
    return tile->bytes;
}

void *weft_tile_acquire(struct weft_tile *tile, enum weft_mode mode)
{
    static const enum starpu_data_access_mode access[] = {
        [WEFT_READ] = STARPU_R,
        [WEFT_WRITE] = STARPU_W,
        [WEFT_READ_WRITE] = STARPU_RW};
    weft_assert(tile->handle); /* a tile of another rank has no memory */
    int rc = starpu_data_acquire(tile->handle, access[mode]);
    weft_assert(rc == 0); /* not 0 only inside of a task */
    WEFT_TSAN_ACQUIRE(tile);
    /* The writer of a failed sequence wrote nothing: zeros. */
    return weft_tile_data(tile, true);
}

void weft_tile_unacquire(struct weft_tile *tile)
{
    WEFT_TSAN_RELEASE(tile);
    starpu_data_release(tile->handle);
}

bool weft_tile_ready(struct weft_tile *tile)
{
    return atomic_load(&tile->n_writers) == 0;
}

void weft_rt_memory(const struct weft_rt *rt, enum weft_mem_class c,
                    size_t *now_out, size_t *peak_out)
{
    struct weft_pool *pool = rt->pool;
    pthread_mutex_lock(&pool->mutex);
    *now_out = pool->all.now_bytes[c];
    *peak_out = pool->all.peak_bytes[c];
    pthread_mutex_unlock(&pool->mutex);
}

void weft_rt_memory_places(struct weft_rt *rt, enum weft_mem_class c,
                           size_t *peak_out)
{
    struct weft_pool *pool = rt->pool;
    int n = weft_rt_n_places(rt);
    memset(peak_out, 0, (size_t) n * sizeof *peak_out);
    pthread_mutex_lock(&pool->mutex);
    for (int i = 0; i < rt->places_per_rank; i++)
        peak_out[rt->first_place + i] = pool->place[i].peak_bytes[c];
    pthread_mutex_unlock(&pool->mutex);
    _Static_assert(sizeof(size_t) == sizeof(int64_t), "64-bit sizes");
    weft_world_reduce((int64_t *) peak_out, n, WEFT_MAX);
}
