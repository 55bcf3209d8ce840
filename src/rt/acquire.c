/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own access to tiles, in turn with the tasks. */
#include <string.h>

#include "rt/internal.h"

/* Brings a card's tile to host memory, where the program can access it. */
static void *bring_home(struct weft_tile *tile, enum weft_mode mode)
{
    void *from = weft_tile_data(tile, true);
    void *host = weft_memory_pinned.get(tile->rt->pool, tile->bytes);
    weft_assert(!tile->acquired);
    if (!host || !from)
        weft_insert_nomem("a copy of a GPU's tile", tile->bytes);
    if (mode != WEFT_WRITE)
        weft_card_copy(STARPU_MAIN_RAM, host, weft_tile_node(tile), from,
                       tile->bytes, NULL);
    tile->acquired = host;
    tile->acquired_writes = mode != WEFT_READ;
    return host;
}

static void take_back(struct weft_tile *tile)
{
    if (tile->acquired_writes)
        weft_card_copy(weft_tile_node(tile), weft_tile_memory(tile),
                       STARPU_MAIN_RAM, tile->acquired, tile->bytes, NULL);
    weft_memory_pinned.put(tile->rt->pool, tile->acquired, tile->bytes);
    tile->acquired = NULL;
}

/* Waits for its turn among the tasks. */
static void take_turn(struct weft_tile *tile, enum weft_mode mode)
{
    /* tiles of other ranks, and recorded ones, have no memory */
    weft_assert(tile->handle);
    for (int i = 0; i < weft_tile_n_parts(tile); i++) {
        struct weft_tile *part = weft_tile_part(tile, i);
        int rc = starpu_data_acquire_on_node(
            part->handle, (int) weft_tile_node(part), weft_starpu_mode(mode));
        weft_assert(rc == 0); /* it fails only inside a task */
        WEFT_TSAN_ACQUIRE(part);
    }
    weft_tile_await(tile);
}

static void end_turn(struct weft_tile *tile)
{
    for (int i = 0; i < weft_tile_n_parts(tile); i++) {
        struct weft_tile *part = weft_tile_part(tile, i);
        WEFT_TSAN_RELEASE(part);
        starpu_data_release_on_node(part->handle, (int) weft_tile_node(part));
    }
}

void *weft_tile_acquire(struct weft_tile *tile, enum weft_mode mode)
{
    take_turn(tile, mode);
    /* When the sequence has failed, nobody wrote the tile; it is then
     * zeros. */
    return tile->card ? bring_home(tile, mode) : weft_tile_data(tile, true);
}

void weft_tile_unacquire(struct weft_tile *tile)
{
    if (tile->acquired)
        take_back(tile);
    end_turn(tile);
}

/* ---- A part of a tile ------------------------------------------------- */

/* Pinned memory through which a card's tiles come and go, as pinning as much as
 * they have takes longer than copying it. */
enum { STAGE_BYTES = 16 << 20 };

static char *stage(struct weft_rt *rt)
{
    if (!rt->stage)
        rt->stage = weft_memory_pinned.get(rt->pool, STAGE_BYTES);
    if (!rt->stage)
        weft_insert_nomem("copies of GPUs' tiles", STAGE_BYTES);
    return rt->stage;
}

void weft_stage_free(struct weft_rt *rt)
{
    if (rt->stage)
        weft_memory_pinned.put(rt->pool, rt->stage, STAGE_BYTES);
    rt->stage = NULL;
}

/* Copies bytes from a place in a card's tile to the host, or the other way. */
static void copy_part(struct weft_tile *tile, char *at, char *host,
                      size_t bytes, bool reads)
{
    char *pinned = stage(tile->rt);
    unsigned node = weft_tile_node(tile);
    for (size_t n; bytes > 0; at += n, host += n, bytes -= n) {
        n = bytes < STAGE_BYTES ? bytes : STAGE_BYTES;
        if (reads) {
            weft_card_copy(STARPU_MAIN_RAM, pinned, node, at, n, NULL);
            memcpy(host, pinned, n);
        } else {
            memcpy(pinned, host, n);
            weft_card_copy(node, at, STARPU_MAIN_RAM, pinned, n, NULL);
        }
    }
}

void weft_tile_read(struct weft_tile *tile, size_t offset, size_t bytes,
                    void *to)
{
    weft_assert(offset + bytes <= tile->bytes);
    take_turn(tile, WEFT_READ);
    char *from = weft_tile_data(tile, true);
    if (!from)
        weft_insert_nomem("a tile", tile->bytes);
    if (tile->card)
        copy_part(tile, from + offset, to, bytes, true);
    else
        memcpy(to, from + offset, bytes);
    end_turn(tile);
}

void weft_tile_write(struct weft_tile *tile, size_t offset, size_t bytes,
                     const void *from)
{
    weft_assert(offset + bytes <= tile->bytes);
    take_turn(tile, WEFT_READ_WRITE);
    char *to = weft_tile_data(tile, true);
    if (!to)
        weft_insert_nomem("a tile", tile->bytes);
    if (tile->card)
        copy_part(tile, to + offset, (char *) (uintptr_t) from, bytes, false);
    else
        memcpy(to + offset, from, bytes);
    end_turn(tile);
}

bool weft_tile_ready(struct weft_tile *tile)
{
    for (int i = 0; i < weft_tile_n_parts(tile); i++)
        if (atomic_load(&weft_tile_part(tile, i)->n_writers) != 0)
            return false;
    return true;
}
