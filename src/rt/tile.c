/* SPDX-License-Identifier: Apache-2.0 */
#include "rt/internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

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

/* A tile struct with its handle: a used one, or a new one. */
static struct weft_tile *tile_get(struct weft_rt *rt)
{
    pthread_mutex_lock(&rt->mutex);
    struct weft_tile *tile = rt->free_tile;
    if (tile)
        rt->free_tile = tile->next;
    pthread_mutex_unlock(&rt->mutex);
    if (tile)
        return tile;
    tile = weft_alloc(1, sizeof *tile);
    if (!tile)
        return NULL;
    starpu_void_data_register(&tile->handle);
    tile->rt = rt;
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
    struct weft_tile *tile = tile_get(rt);
    if (!tile)
        return weft_err_nomem(err, "a tile", sizeof *tile);
    tile->id = *id;
    tile->mem = c;
    tile->bytes = bytes;
    tile->data = NULL;
    tile->mark = 0;
    atomic_store(&tile->n_refs, 1);
    atomic_store(&tile->n_writers, 0);
    if (!temporary && !weft_tile_data(tile, true)) {
        char label[160];
        weft_tile_label(tile, label, sizeof label);
        weft_tile_drop(tile);
        return weft_pool_refuse(rt->pool, c, bytes, label, err);
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

void *weft_tile_data(struct weft_tile *tile, bool zeroed)
{
    if (!tile->data)
        tile->data = weft_pool_get(tile->rt->pool, tile->mem, tile->bytes,
                                   zeroed);
    return tile->data;
}

void weft_tile_drop(struct weft_tile *tile)
{
    if (atomic_fetch_sub(&tile->n_refs, 1) != 1)
        return;
    struct weft_rt *rt = tile->rt;
    if (tile->data)
        weft_pool_put(rt->pool, tile->mem, tile->bytes, tile->data);
    tile->data = NULL;
    pthread_mutex_lock(&rt->mutex);
    tile->next = rt->free_tile;
    rt->free_tile = tile;
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
        starpu_data_unregister(tile->handle);
        if (tile->data)
            weft_pool_put(rt->pool, tile->mem, tile->bytes, tile->data);
        weft_free(tile);
    }
    rt->free_tile = NULL;
}

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
    *now_out = pool->now_bytes[c];
    *peak_out = pool->peak_bytes[c];
    pthread_mutex_unlock(&pool->mutex);
}
