/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles of a parameter group that are there, in the order tasks take
 * them: blocks ascending, then norms. */
#ifndef WEFT_CODELETS_GROUP_H
#define WEFT_CODELETS_GROUP_H

#include "codelets/bag.h"

/* index: the block, or WEFT_MAX_BLOCKS for the norms. */
struct weft_group_list {
    int32_t n;
    int32_t index[WEFT_SQUARES];
    size_t bytes[WEFT_SQUARES];
};

WEFT_INLINE struct weft_tile *weft_group_tile(
    const struct weft_layer_tiles *tiles, int32_t index)
{
    return index == WEFT_MAX_BLOCKS ? tiles->norms : tiles->block[index];
}

/* Adds those tiles that `tiles` has. */
WEFT_INLINE struct weft_group_list weft_bag_add_group(
    struct weft_bag *bag, const struct weft_layer_tiles *tiles,
    enum weft_mode mode)
{
    struct weft_group_list list = {.n = 0};
    for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
        struct weft_tile *tile = weft_group_tile(tiles, i);
        if (!tile)
            continue;
        weft_bag_add(bag, tile, mode);
        list.index[list.n] = i;
        list.bytes[list.n++] = weft_tile_bytes(tile);
    }
    return list;
}

#endif
