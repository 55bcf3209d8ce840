/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/copies.h"

#include <string.h>

#include "base/alloc.h"

struct entry {
    struct weft_tile *tile, *copy; /* tile NULL: free */
    int32_t place;
};

/* A hash table with open addressing, by address of the tile. Entries are
 * visited in the table's order only to release them, as that order differs
 * between processes. */
struct weft_g_copies {
    struct weft_rt *rt;
    struct entry *entry; /* (capacity), a power of two */
    size_t n, capacity;
};

enum { FIRST = 256 };

int weft_g_copies_create(struct weft_rt *rt, struct weft_g_copies **out,
                         struct weft_err *err)
{
    struct weft_g_copies *c = weft_alloc(1, sizeof *c);
    if (c)
        c->entry = weft_alloc(FIRST, sizeof *c->entry);
    if (!c || !c->entry) {
        weft_free(c);
        return weft_err_nomem(err, "copies", FIRST * sizeof *c->entry);
    }
    c->rt = rt;
    c->capacity = FIRST;
    *out = c;
    return 0;
}

void weft_g_copies_free(struct weft_g_copies *c)
{
    if (!c)
        return;
    weft_g_copies_drop(c);
    weft_free(c->entry);
    weft_free(c);
}

void weft_g_copies_drop(struct weft_g_copies *c)
{
    for (size_t i = 0; i < c->capacity; i++)
        if (c->entry[i].tile)
            weft_tile_release(c->entry[i].copy);
    memset(c->entry, 0, c->capacity * sizeof *c->entry);
    c->n = 0;
}

static struct entry *find(struct entry *entry, size_t capacity,
                          const struct weft_tile *tile, int32_t place)
{
    uint64_t h = ((uint64_t) (uintptr_t) tile >> 4) + (uint64_t) place;
    h *= 0x9e3779b97f4a7c15u;
    for (size_t i = (size_t) (h >> 32) & (capacity - 1);;
         i = (i + 1) & (capacity - 1))
        if (!entry[i].tile
            || (entry[i].tile == tile && entry[i].place == place))
            return &entry[i];
}

static void grow(struct weft_g_copies *c)
{
    size_t capacity = c->capacity * 4;
    struct entry *entry = weft_insert_alloc(capacity, sizeof *entry,
                                            "copies");
    for (size_t i = 0; i < c->capacity; i++)
        if (c->entry[i].tile)
            *find(entry, capacity, c->entry[i].tile,
                  c->entry[i].place) = c->entry[i];
    weft_free(c->entry);
    c->entry = entry;
    c->capacity = capacity;
}

struct weft_tile *weft_g_copy_to(struct weft_seq *seq,
                                 const struct weft_where *where,
                                 struct weft_rt *rt, struct weft_tile *tile,
                                 enum weft_mem_class class, const char *kind,
                                 int32_t place)
{
    struct weft_tile_id id = {"copy", kind, 0, -1, -1, place};
    struct weft_tile *copy;
    struct weft_err err;
    struct weft_where at = *where;
    if (weft_tile_create_temp(rt, &id, class, weft_tile_bytes(tile), &copy,
                              &err)
        || weft_tile_cut_like(copy, tile, &err))
        weft_world_abort(&err);
    at.device = -1;
    at.position = 0;
    at.span = NULL; /* what a subtask reads may be copied long before */
    weft_insert_copy(seq, &at, tile, copy);
    return copy;
}

struct weft_tile *weft_g_copy_at(struct weft_g_copies *c,
                                 struct weft_seq *seq,
                                 const struct weft_where *where,
                                 struct weft_tile *tile, int32_t place)
{
    if (!tile || weft_tile_place(tile) == place)
        return tile;
    if (2 * c->n >= c->capacity)
        grow(c);
    struct entry *e = find(c->entry, c->capacity, tile, place);
    if (e->tile)
        return e->copy;
    struct weft_tile *copy = weft_g_copy_to(
        seq, where, c->rt, tile, WEFT_MEM_SAMPLES, "of a sample", place);
    *e = (struct entry){tile, copy, place};
    c->n++;
    return copy;
}

struct weft_tile *weft_g_sample_at(struct weft_g_copies *c,
                                   struct weft_seq *seq,
                                   const struct weft_where *where,
                                   struct weft_tile *tile, int32_t place)
{
    struct weft_where moving = *where;
    moving.moves = true;
    return weft_g_copy_at(c, seq, &moving, tile, place);
}
