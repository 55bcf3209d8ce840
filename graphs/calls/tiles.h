/* SPDX-License-Identifier: Apache-2.0 */
/* Visits a model's tiles; for the files of graphs/ alone. */
#ifndef WEFT_CALLS_TILES_H
#define WEFT_CALLS_TILES_H

#include "graphs/calls/calls.h"

/* A set without tiles for every place (m->n_places). Goes with the model, also
 * after an error (WEFT_ENOMEM). */
int weft_g_params_create(const struct weft_g_model *m,
                         struct weft_params **out, struct weft_err *err);

struct weft_tile **weft_g_params_slot(struct weft_params *params,
                                      enum weft_tile_kind kind, int32_t layer,
                                      int32_t block);

/* chunks: those chunks of the tile that the place holds; NULL: all. */
typedef int (*weft_g_tile_fn)(void *arg, int32_t place,
                              enum weft_tile_kind kind, int32_t layer,
                              int32_t block, const struct weft_range *chunks);
/* Calls `visit` once for every published tile at every place of the home
 * layout; stops when it returns other than 0, and returns that. */
int weft_g_home_visit(const struct weft_shape *shape,
                      const struct weft_g_layout *home, weft_g_tile_fn visit,
                      void *arg);

/* The tile that the last task of an optimizer step at the place writes, or
 * NULL. */
struct weft_tile *weft_g_last_state(const struct weft_g_model *m,
                                    int32_t place);

#endif
