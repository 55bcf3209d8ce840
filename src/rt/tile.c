/* SPDX-License-Identifier: Apache-2.0 */
#include "rt/internal.h"
#include "rt/record.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
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

bool weft_rt_has_place(const struct weft_rt *rt, int place)
{
    return rt->all_ranks || weft_rt_place_rank(rt, place) == rt->rank;
}

int weft_rt_n_places(const struct weft_rt *rt)
{
    return rt->n_ranks * rt->places_per_rank;
}

int weft_rt_place_of(const struct weft_rt *rt, int device)
{
    if (rt->places_per_rank == rt->n_devices)
        return device;
    /* the CPU devices share the last place of the rank */
    return device / rt->n_devices * rt->places_per_rank
         + (int) weft_min64(device % rt->n_devices, rt->n_cards);
}

int weft_place_device(const struct weft_rt *rt, int place)
{
    int local = place % rt->places_per_rank;
    if (rt->places_per_rank == 1)
        return -1;
    if (rt->places_per_rank == rt->n_devices)
        return place;
    return local < rt->n_cards
             ? weft_rt_place_rank(rt, place) * rt->n_devices + local
             : -1;
}

int weft_rt_place_rank(const struct weft_rt *rt, int place)
{
    return place / rt->places_per_rank;
}

bool weft_rt_is_gpu_place(const struct weft_rt *rt, int place)
{
    return place % rt->places_per_rank < rt->n_cards;
}

int weft_rt_host_place(const struct weft_rt *rt, int rank)
{
    return rank * rt->places_per_rank + rt->n_cards;
}

int weft_tile_place(const struct weft_tile *tile)
{
    return tile->id.place;
}

bool weft_tile_is_here(const struct weft_tile *tile)
{
    return tile->here;
}

/* ---- Life ------------------------------------------------------------- */

bool weft_tile_on_card(const struct weft_tile *tile)
{
    return weft_rt_is_gpu_place(tile->rt, tile->id.place)
        && !weft_mem_class_on_host(tile->mem);
}

/* The card whose memory tiles of a class at a place have; NULL: the host's. */
static struct weft_card *card_of(const struct weft_rt *rt, int place,
                                 enum weft_mem_class c)
{
    int local = place - rt->first_place;
    if (rt->is_dry || local < 0 || local >= rt->n_cards
        || weft_mem_class_on_host(c))
        return NULL;
    return &rt->card[local];
}

/* The free tiles of one home: this rank's, or none. */
static struct weft_tile **free_list(struct weft_rt *rt, bool here,
                                    struct weft_card *card)
{
    return card ? &card->free_tile
         : here ? &rt->free_tile
                : &rt->free_foreign;
}

/* Returns a tile struct, used before or new; for a tile of this rank it has a
 * handle. */
static struct weft_tile *tile_get(struct weft_rt *rt, bool here,
                                  struct weft_card *card)
{
    struct weft_tile **list = free_list(rt, here, card);
    pthread_mutex_lock(&rt->mutex);
    struct weft_tile *tile = *list;
    if (tile)
        *list = tile->next;
    pthread_mutex_unlock(&rt->mutex);
    if (tile)
        return tile;
    tile = weft_insert_alloc(1, sizeof *tile, "a tile");
    tile->rt = rt;
    tile->card = card;
    tile->here = here;
    if (here && !rt->is_dry)
        weft_tile_register(tile);
    pthread_mutex_lock(&rt->mutex);
    tile->all = rt->all_tile;
    rt->all_tile = tile;
    pthread_mutex_unlock(&rt->mutex);
    return tile;
}

/* Weights that move to a card in every iteration should lie where they did. */
static uint64_t name_of(const struct weft_tile *tile)
{
    char label[160];
    if (!tile->card || tile->mem != WEFT_MEM_WEIGHTS)
        return 0;
    weft_tile_label(tile, label, sizeof label);
    return weft_hash64(label, strlen(label));
}

static struct weft_need need_of(const struct weft_tile *tile)
{
    return (struct weft_need){.bytes = tile->bytes,
                              .c = tile->mem,
                              .place = tile->id.place - tile->rt->first_place,
                              .name = name_of(tile)};
}

static struct weft_pool *pool_of(const struct weft_tile *tile)
{
    return tile->card ? tile->card->pool : tile->rt->pool;
}

enum kind_of_tile { PERMANENT, TEMPORARY, RESERVED };

/* Its memory from the start, if it has any. False: beyond the limit. */
static bool tile_open(struct weft_tile *tile, enum kind_of_tile kind)
{
    if (!tile->here || tile->rt->is_dry || kind == TEMPORARY)
        return true;
    if (kind == PERMANENT)
        return weft_tile_data(tile, true) != NULL;
    struct weft_need need = need_of(tile);
    tile->is_reserved = weft_pool_reserve(pool_of(tile), &need);
    return tile->is_reserved;
}

static int tile_create(struct weft_rt *rt, const struct weft_tile_id *id,
                       enum weft_mem_class c, size_t bytes,
                       enum kind_of_tile kind, struct weft_tile **out,
                       struct weft_err *err)
{
    if (bytes == 0)
        return weft_err_set(err, WEFT_EINVAL, "a tile of %s has no bytes",
                            weft_mem_class_name(c));
    if (id->place < 0 || id->place >= weft_rt_n_places(rt))
        return weft_err_set(err, WEFT_EINVAL,
                            "a tile of %s wants place %d; there are 0 to %d",
                            weft_mem_class_name(c), id->place,
                            weft_rt_n_places(rt) - 1);
    bool here = weft_rt_has_place(rt, id->place);
    struct weft_tile *tile = tile_get(rt, here, card_of(rt, id->place, c));
    tile->id = *id;
    tile->mem = c;
    tile->bytes = bytes;
    tile->mark = 0;
    tile->move = 0;
    atomic_store_explicit(&tile->written_us, 0, memory_order_relaxed);
    tile->rows = (struct weft_work_rows){.n_rows = 0};
    atomic_store(&tile->n_users, 1);
    atomic_store(&tile->n_refs, 1);
    atomic_store(&tile->n_asked, 0);
    atomic_store(&tile->n_came, 0);
    weft_record_tile(tile, kind != TEMPORARY);
    if (!tile_open(tile, kind)) {
        int rc = weft_tile_refuse(tile, err);
        weft_tile_release(tile);
        return rc;
    }
    *out = tile;
    return 0;
}

int weft_tile_create(struct weft_rt *rt, const struct weft_tile_id *id,
                     enum weft_mem_class c, size_t bytes,
                     struct weft_tile **out, struct weft_err *err)
{
    return tile_create(rt, id, c, bytes, PERMANENT, out, err);
}

int weft_tile_create_temp(struct weft_rt *rt, const struct weft_tile_id *id,
                          enum weft_mem_class c, size_t bytes,
                          struct weft_tile **out, struct weft_err *err)
{
    return tile_create(rt, id, c, bytes, TEMPORARY, out, err);
}

int weft_tile_reserve(struct weft_rt *rt, const struct weft_tile_id *id,
                      enum weft_mem_class c, size_t bytes,
                      struct weft_tile **out, struct weft_err *err)
{
    return tile_create(rt, id, c, bytes, RESERVED, out, err);
}

static void used_until(struct weft_tile *tile, int64_t after)
{
    long long before = atomic_load(&tile->after);
    while (before < after
           && !atomic_compare_exchange_weak(&tile->after, &before, after))
        continue;
}

/* After an error a tile may have several readers and no writer; when these
 * come at the same time, the memory of the first of them counts. */
static void *tile_fill(struct weft_tile *tile, struct weft_need *need)
{
    struct weft_pool *pool = pool_of(tile);
    void *none = NULL, *block = weft_pool_get(pool, need);
    if (need->after)
        used_until(tile, need->after);
    if (!block || atomic_compare_exchange_strong(&tile->data, &none, block))
        return block;
    weft_pool_put(pool, need, block);
    return none;
}

/* The tile that owns the memory: the whole of a part, else the tile itself. */
static struct weft_tile *base_of(struct weft_tile *tile)
{
    return tile->whole ? tile->whole : tile;
}

void weft_tile_used(struct weft_tile *tile, int64_t number)
{
    used_until(base_of(tile), number + 1);
}

int64_t weft_tile_user(const struct weft_tile *tile)
{
    return atomic_load(&(tile->whole ? tile->whole : tile)->after) - 1;
}

static void *inside(const struct weft_tile *tile, void *memory)
{
    return memory ? (char *) memory + tile->offset : NULL;
}

void *weft_tile_data(struct weft_tile *tile, bool zeroed)
{
    struct weft_tile *base = base_of(tile);
    void *data = atomic_load(&base->data);
    if (!data) {
        struct weft_need need = need_of(base);
        need.zeroed = zeroed;
        data = tile_fill(base, &need);
    }
    return inside(tile, data);
}

int weft_tile_refuse(const struct weft_tile *tile, struct weft_err *err)
{
    char label[160];
    struct weft_need need = need_of(tile);
    weft_tile_label(tile, label, sizeof label);
    return weft_pool_refuse(pool_of(tile), &need, label, err);
}

/* The memory of a message's tile that has none. */
static void *message_fill(struct weft_tile *tile, struct weft_tile *base)
{
    struct weft_need need = need_of(base);
    need.zeroed = atomic_load(&tile->n_receives) == 0;
    if (need.zeroed)
        atomic_store(&tile->trouble, WEFT_ESTATE);
    void *data = tile_fill(base, &need);
    if (data)
        return data;
    atomic_store(&tile->trouble, WEFT_ENOMEM);
    need.beyond_limit = true;
    data = tile_fill(base, &need);
    if (!data) {
        struct weft_err err;
        weft_tile_refuse(tile, &err);
        weft_world_abort(&err);
    }
    return data;
}

void *weft_tile_message(struct weft_tile *tile)
{
    struct weft_tile *base = base_of(tile);
    void *data = atomic_load(&base->data);
    tile->message_us = weft_rt_now_us(tile->rt);
    atomic_fetch_add(&tile->n_asked, 1);
    weft_ran_begin(tile->rt, atomic_exchange(&tile->receive, NULL));
    if (!data)
        data = message_fill(tile, base);
    weft_ran_done();
    return inside(tile, data);
}

static void tile_empty(struct weft_tile *tile)
{
    void *data = atomic_exchange(&tile->data, NULL);
    struct weft_need need = need_of(tile);
    need.after = tile->card ? atomic_exchange(&tile->after, 0) : 0;
    if (data) /* a part never has any */
        weft_pool_put(pool_of(tile), &need, data);
    else if (tile->is_reserved)
        weft_pool_unreserve(pool_of(tile), &need);
    tile->is_reserved = false;
}

void weft_tile_give_back(struct weft_tile *tile)
{
    if (tile->whole)
        weft_tile_done(tile->whole);
    else
        tile_empty(tile);
}

void weft_tile_give_up(struct weft_tile *tile)
{
    struct weft_rt *rt = tile->rt;
    struct weft_tile *whole = tile->whole;
    struct weft_tile **list = free_list(rt, tile->here, tile->card);
    tile->whole = NULL;
    tile->offset = 0;
    pthread_mutex_lock(&rt->mutex);
    tile->next = *list;
    *list = tile;
    pthread_mutex_unlock(&rt->mutex);
    if (whole)
        weft_tile_drop(whole);
}

void weft_tile_unhold(struct weft_tile *tile)
{
    weft_tile_done(tile);
    weft_tile_drop(tile);
}

void weft_tile_release(struct weft_tile *tile)
{
    if (!tile)
        return;
    weft_tile_drop_parts(tile);
    weft_record_release(tile);
    weft_ran_release(tile);
    weft_tile_unhold(tile);
    weft_ran_done();
}

void weft_tile_free_all(struct weft_rt *rt)
{
    while (rt->all_tile) {
        struct weft_tile *tile = rt->all_tile;
        rt->all_tile = tile->all;
        tile_empty(tile);
        weft_free(tile->part);
        atomic_store(&tile->n_users, 0);
        if (tile->handle)
            starpu_data_unregister(tile->handle);
        weft_free(tile);
    }
    rt->free_tile = rt->free_foreign = NULL;
    for (int i = 0; i < rt->n_cards && rt->card; i++)
        rt->card[i].free_tile = NULL;
}

/* ---- Memory ------------------------------------------------------------ */

void weft_tile_set_rows(struct weft_tile *tile,
                        const struct weft_work_rows *rows)
{
    tile->rows = *rows;
}

struct weft_work_rows weft_tile_rows(const struct weft_tile *tile)
{
    return tile->rows;
}

size_t weft_tile_bytes(const struct weft_tile *tile)
{
    return tile->bytes;
}

void weft_rt_memory(const struct weft_rt *rt, enum weft_mem_class c,
                    size_t *now_out, size_t *peak_out)
{
    *now_out = *peak_out = 0;
    for (int i = 0; i <= rt->n_cards; i++) {
        struct weft_pool *pool = i < rt->n_cards ? rt->card[i].pool
                                                 : rt->pool;
        pthread_mutex_lock(&pool->mutex);
        *now_out += pool->all.now_bytes[c];
        *peak_out += pool->all.peak_bytes[c];
        pthread_mutex_unlock(&pool->mutex);
    }
    if (c == WEFT_MEM_TASKS) {
        *now_out = (size_t) atomic_load(&rt->pending_bytes);
        *peak_out = (size_t) rt->most_pending_bytes;
    }
}

void weft_rt_memory_places(struct weft_rt *rt, enum weft_mem_class c,
                           size_t *peak_out)
{
    int n = weft_rt_n_places(rt);
    memset(peak_out, 0, (size_t) n * sizeof *peak_out);
    for (int k = 0; k <= rt->n_cards; k++) {
        struct weft_pool *pool = k < rt->n_cards ? rt->card[k].pool
                                                 : rt->pool;
        bool all_of_cards = c == WEFT_N_MEM_CLASSES && k == rt->n_cards;
        pthread_mutex_lock(&pool->mutex);
        for (int i = all_of_cards ? rt->n_cards : 0; i < rt->places_per_rank;
             i++)
            peak_out[rt->first_place + i] += pool->place[i].peak_bytes[c];
        pthread_mutex_unlock(&pool->mutex);
    }
    /* records are a rank's, and count at its first place in host memory */
    if (c == WEFT_MEM_TASKS || c == WEFT_N_MEM_CLASSES)
        peak_out[rt->first_place + rt->n_cards] += (size_t)
                                                       rt->most_pending_bytes;
    _Static_assert(sizeof(size_t) == sizeof(int64_t), "64-bit sizes");
    weft_world_reduce((int64_t *) peak_out, n, WEFT_MAX);
}
