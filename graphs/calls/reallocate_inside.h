/* SPDX-License-Identifier: Apache-2.0 */
/* What reallocate.c, which finds the tiles that a view wants, and
 * reallocate_tiles.c, which brings them, share. */
#ifndef WEFT_CALLS_REALLOCATE_INSIDE_H
#define WEFT_CALLS_REALLOCATE_INSIDE_H

#include "graphs/calls/calls.h"
#include "graphs/calls/tiles.h"

/* A view in the making. */
struct weft_g_opening {
    struct weft_g_view *view;
    struct weft_seq *seq;
    const struct weft_where *where;
    bool keeps; /* places get copies of what they have, too */
    int32_t *node, *have, *want; /* (n_places) */
    int32_t *lack;               /* (n_places): places that lack a piece */
    struct weft_move_load *load; /* (n_places) */
    struct weft_move *move;      /* (n_places) */
    struct weft_err *err;
};

/* One tile of the view: which places have it, and which need one. */
struct weft_g_wanted {
    enum weft_tile_kind kind;
    int32_t layer, block;
    int32_t n_have, n_want; /* of o->have, o->want */
};

/* The view's tile at a place; NULL: none yet. */
WEFT_INLINE struct weft_tile *weft_g_wanted_at(
    const struct weft_g_opening *opening, const struct weft_g_wanted *wanted,
    int32_t place)
{
    return weft_g_params_tile(&opening->view->fwd[place], wanted->kind,
                              wanted->layer, wanted->block);
}

/* These bring a tile to the places that want it. Errors: WEFT_ENOMEM. */

/* From places that have all of it. */
int weft_g_move_tile(struct weft_g_opening *opening,
                     const struct weft_g_wanted *wanted);
/* Where no place has all of it, piece by piece; a tied embedding from the
 * head's pieces. */
int weft_g_move_pieces(struct weft_g_opening *opening,
                       const struct weft_g_wanted *wanted);
/* Its adapters alone: its frozen weights stay there for good. */
int weft_g_move_adapters(struct weft_g_opening *opening,
                         const struct weft_g_wanted *wanted);
/* The trunk's tile, without adapters, for a model that has none. */
int weft_g_take_trunk(struct weft_g_opening *opening,
                      const struct weft_g_wanted *wanted);
/* A copy of a place's own tile, which others then get from the copy. */
int weft_g_keep_own(struct weft_g_opening *opening,
                    struct weft_g_wanted *wanted, int32_t place,
                    struct weft_tile *own);

#endif
