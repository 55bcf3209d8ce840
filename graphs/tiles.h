/* SPDX-License-Identifier: Apache-2.0 */
/* Walking over a model's tiles; for graphs alone. */
#ifndef WEFT_GRAPHS_TILES_H
#define WEFT_GRAPHS_TILES_H

#include "graphs/graphs.h"

struct weft_tile **weft_g_params_slot(struct weft_params *params,
                                      enum weft_tile_kind kind, int32_t layer,
                                      int32_t block);

/* chunks: what the place has of the tile; NULL: all of it. */
typedef int (*weft_g_tile_fn)(void *arg, int32_t place,
                              enum weft_tile_kind kind, int32_t layer,
                              int32_t block, const struct weft_range *chunks);
/* Every (place, published tile) of the home layout, once; stops at the first
 * that is not 0. */
int weft_g_home_visit(const struct weft_shape *shape,
                      const struct weft_g_layout *home, weft_g_tile_fn visit,
                      void *arg);

#endif
