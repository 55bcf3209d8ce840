/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a frozen model's weights back from the host's copy. */
#include "graphs/calls/tiles.h"

struct restoring {
    struct weft_seq *seq;
    const struct weft_where *where;
    const struct weft_g_model *host, *trained;
    struct weft_g_model *out;
    struct weft_err *err;
};

/* The copy of a tile that the place's rank keeps, at any of its places. */
static struct weft_tile *copy_of(const struct weft_g_model *host,
                                 int32_t place, enum weft_tile_kind kind,
                                 int32_t layer, int32_t block)
{
    int32_t n = host->home.places_per_rank, first = place / n * n;
    struct weft_tile *tile = NULL;
    for (int32_t p = first; p < first + n && !tile; p++)
        tile = weft_g_params_tile(&host->fwd[p], kind, layer, block);
    return tile;
}

static int restore(void *arg, int32_t place, enum weft_tile_kind kind,
                   int32_t layer, int32_t block,
                   const struct weft_range *chunks)
{
    const struct restoring *r = arg;
    const struct weft_g_model *m = r->out;
    struct weft_tile *from = copy_of(r->host, place, kind, layer, block);
    struct weft_tile **to = weft_g_params_slot(&m->fwd[place], kind, layer,
                                               block);
    struct weft_tile_id id = {m->name, "weights", 0, layer, block, place};
    struct weft_tile *after = NULL;
    struct weft_where where = *r->where;
    weft_assert(from && !chunks);
    int rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_WEIGHTS,
                                   weft_tile_bytes(from), to, r->err);
    if (!rc)
        rc = weft_g_moved_after(m, r->trained, place, &after, r->err);
    if (rc)
        return rc;
    where.device = -1;
    where.position = 0;
    where.layer = layer;
    where.restores = where.moves = true;
    weft_insert_open(r->seq, &where, after, 1, to);
    weft_insert_copy(r->seq, &where, from, *to);
    return 0;
}

int weft_g_restore(struct weft_seq *seq, const struct weft_where *where,
                   const struct weft_g_model *host,
                   const struct weft_g_model *trained,
                   struct weft_g_model *out, struct weft_err *err)
{
    /* Tasks of the last use may still read the shape: it is written once. */
    if (!out->rt)
        out->shape = host->shape;
    out->rt = host->rt;
    out->host = host;
    out->name = host->name;
    out->n_places = host->n_places;
    struct restoring r = {seq, where, host, trained, out, err};
    int rc = weft_g_layout_copy(&host->home, &out->home, err);
    if (!rc)
        rc = weft_g_params_create(out, &out->fwd, err);
    return rc ? rc : weft_g_home_visit(&out->shape, &out->home, restore, &r);
}

void weft_g_give_back(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_g_model *m)
{
    if (m->fwd)
        weft_g_moved_end(seq, where, m, m->fwd, NULL);
    weft_g_model_release(m);
}
