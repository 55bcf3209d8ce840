/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own access to tiles, in turn with the tasks. */
#include "rt/internal.h"

/* Brings a card's tile to host memory, where the program can access it. */
static void *bring_home(struct weft_tile *tile, enum weft_mode mode)
{
    void *from = weft_tile_data(tile, true);
    void *host = (void *) starpu_malloc_on_node_flags(
        STARPU_MAIN_RAM, tile->bytes, STARPU_MALLOC_PINNED);
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
    starpu_free_on_node_flags(STARPU_MAIN_RAM, (uintptr_t) tile->acquired,
                              tile->bytes, STARPU_MALLOC_PINNED);
    tile->acquired = NULL;
}

void *weft_tile_acquire(struct weft_tile *tile, enum weft_mode mode)
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
    /* When the sequence has failed, nobody wrote the tile; it is then
     * zeros. */
    return tile->card ? bring_home(tile, mode) : weft_tile_data(tile, true);
}

void weft_tile_unacquire(struct weft_tile *tile)
{
    if (tile->acquired)
        take_back(tile);
    for (int i = 0; i < weft_tile_n_parts(tile); i++) {
        struct weft_tile *part = weft_tile_part(tile, i);
        WEFT_TSAN_RELEASE(part);
        starpu_data_release_on_node(part->handle, (int) weft_tile_node(part));
    }
}

bool weft_tile_ready(struct weft_tile *tile)
{
    for (int i = 0; i < weft_tile_n_parts(tile); i++)
        if (atomic_load(&weft_tile_part(tile, i)->n_writers) != 0)
            return false;
    return true;
}
