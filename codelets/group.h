/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles of a parameter group that are not NULL, in the order tasks take
 * them: blocks ascending, then norms. */
#ifndef WEFT_CODELETS_GROUP_H
#define WEFT_CODELETS_GROUP_H

#include "codelets/access_list.h"

/* An index is a block's number, or WEFT_MAX_BLOCKS for the norms. */
struct weft_group_list {
    int32_t n;
    int32_t index[WEFT_GROUP_TILES];
    size_t bytes[WEFT_GROUP_TILES];
};

WEFT_INLINE struct weft_tile *weft_group_tile(
    const struct weft_layer_tiles *tiles, int32_t index)
{
    return index == WEFT_MAX_BLOCKS ? tiles->norms : tiles->block[index];
}

WEFT_INLINE enum weft_tile_kind weft_group_kind(enum weft_param_group group,
                                                int32_t index)
{
    static const enum weft_tile_kind block_kind[] = {
        WEFT_TILE_LAYER, WEFT_TILE_EMBED, WEFT_TILE_HEAD};
    if (index < WEFT_MAX_BLOCKS)
        return block_kind[group];
    return group == WEFT_GROUP_LAYER ? WEFT_TILE_NORMS : WEFT_TILE_FINAL;
}

WEFT_INLINE void weft_group_layout(const struct weft_shape *shape,
                                   enum weft_param_group group, int32_t index,
                                   struct weft_layout *out)
{
    weft_layout_get(shape, weft_group_kind(group, index),
                    index < WEFT_MAX_BLOCKS ? index : 0, out);
}

/* Adds the tiles that are not NULL and returns which these are. */
WEFT_INLINE struct weft_group_list weft_access_list_add_group(
    struct weft_access_list *access, const struct weft_layer_tiles *tiles,
    enum weft_mode mode)
{
    struct weft_group_list list = {.n = 0};
    for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
        struct weft_tile *tile = weft_group_tile(tiles, i);
        if (!tile)
            continue;
        weft_access_list_add(access, tile, mode);
        list.index[list.n] = i;
        list.bytes[list.n++] = weft_tile_bytes(tile);
    }
    return list;
}

#endif
