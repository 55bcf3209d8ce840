/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles of a parameter group, in the order tasks take them. */
#ifndef WEFT_CODELETS_GROUP_H
#define WEFT_CODELETS_GROUP_H

#include "codelets/codelets.h"

enum { WEFT_GROUP_TILES = WEFT_MAX_BLOCKS + 1 };

/* LAYER: blocks, norms. EMBED: blocks. HEAD: blocks (none for a scalar head),
 * FINAL. Tiles that are NULL are left out. Returns how many. */
WEFT_INLINE int weft_group_tiles(const struct weft_params *p,
                                 enum weft_param_group group, int32_t layer,
                                 struct weft_tile *out[WEFT_GROUP_TILES])
{
    struct weft_tile *const *block = group == WEFT_GROUP_EMBED ? p->embed
                                   : group == WEFT_GROUP_HEAD
                                       ? p->head.block
                                       : p->layer[layer].block;
    struct weft_tile *norms = group == WEFT_GROUP_EMBED ? NULL
                            : group == WEFT_GROUP_HEAD
                                ? p->head.norms
                                : p->layer[layer].norms;
    int n = 0;
    for (int b = 0; b < WEFT_MAX_BLOCKS; b++)
        if (block[b])
            out[n++] = block[b];
    if (norms)
        out[n++] = norms;
    return n;
}

#endif
