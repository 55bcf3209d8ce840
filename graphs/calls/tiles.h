/* SPDX-License-Identifier: Apache-2.0 */
/* Visits a model's tiles; for the files of graphs/ alone. */
#ifndef WEFT_CALLS_TILES_H
#define WEFT_CALLS_TILES_H

#include "graphs/calls/calls.h"

/* A set without tiles for every place (m->n_places). Goes with the model, also
 * after an error (WEFT_ENOMEM). */
int weft_g_params_create(const struct weft_g_model *m,
                         struct weft_params **out, struct weft_err *err);

/* Where the set keeps that tile. */
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

/* What gives weights of m that are moved to a place their memory waits for this
 * tile to be written: the last state that an optimizer step of `trained`
 * writes there or, where there is none, the tile that weft_g_moved_end()
 * writes. New weights depend on all uses of the old ones, so nothing that could
 * be done earlier waits. Errors: WEFT_ENOMEM. */
int weft_g_moved_after(const struct weft_g_model *m,
                       const struct weft_g_model *trained, int32_t place,
                       struct weft_tile **out, struct weft_err *err);
/* Submits that the tiles of `moved` (n_places) which are not those of `own`
 * (NULL: none are) are given back, after the tasks that use them. */
void weft_g_moved_end(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_g_model *m,
                      const struct weft_params *moved,
                      const struct weft_params *own);

#endif
