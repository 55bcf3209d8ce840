/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a frozen model's weights towards those of a trained one: these come to
 * its places by reallocation, and each place mixes the tiles that it holds. */
#include "graphs/calls/tiles.h"

struct following {
    struct weft_seq *seq;
    const struct weft_where *where;
    const struct weft_g_view *from;
    const struct weft_g_model *own;
    float mix;
};

static int follow(void *arg, int32_t place, enum weft_tile_kind kind,
                  int32_t layer, int32_t block,
                  const struct weft_range *chunks)
{
    const struct following *f = arg;
    const struct weft_g_model *own = f->own;
    struct weft_tile *fwd = weft_g_params_tile(&own->fwd[place], kind, layer,
                                               block);
    struct weft_tile *master = own->master ? weft_g_params_tile(
                                   &own->master[place], kind, layer, block)
                                           : NULL;
    struct weft_where where = *f->where;
    (void) chunks; /* all */
    if (!fwd)      /* another place has the host's copy for this one's rank */
        return 0;
    where.layer = layer;
    weft_insert_mix(
        f->seq, &where, &own->shape, kind, block, f->mix,
        weft_g_params_tile(&f->from->fwd[place], kind, layer, block), fwd,
        master);
    return 0;
}

int weft_g_follow(struct weft_seq *seq, const struct weft_where *where,
                  const struct weft_g_model *from, float mix,
                  const struct weft_g_model *own, struct weft_err *err)
{
    struct weft_g_view view;
    struct following f = {seq, where, &view, own, mix};
    int rc = weft_g_view_open(seq, where, from, &own->home, &view, err);
    if (!rc)
        rc = weft_g_home_visit(&own->shape, &own->home, follow, &f);
    weft_g_view_close(&view);
    return rc;
}
