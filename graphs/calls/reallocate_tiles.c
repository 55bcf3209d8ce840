/* SPDX-License-Identifier: Apache-2.0 */
/* How one tile comes to the places that a view wants it at. */
#include "base/alloc.h"
#include "codelets/parts.h"
#include "graphs/calls/reallocate_inside.h"
#include "graphs/calls/shard.h"

static int keep(struct weft_g_view *v, struct weft_tile *tile,
                struct weft_err *err)
{
    if (v->n_copies % 64 == 0) {
        size_t n = (size_t) v->n_copies + 64;
        void *more = weft_realloc(v->copy, n, sizeof *v->copy);
        if (!more) {
            weft_tile_release(tile);
            return weft_err_nomem(err, "a reallocation", n * sizeof *v->copy);
        }
        v->copy = more;
    }
    v->copy[v->n_copies++] = tile;
    return 0;
}

/* Creates a temporary tile at each place that needs a copy, cut into n pieces
 * like its sources. */
static int make_tiles(struct weft_g_opening *o, const struct weft_g_wanted *w,
                      int32_t n, const size_t at[])
{
    struct weft_g_view *v = o->view;
    const struct weft_g_model *m = v->model;
    size_t bytes = weft_g_fwd_bytes(&m->shape, w->kind, w->block);
    int rc = 0;
    for (int32_t i = 0; i < w->n_want && !rc; i++) {
        struct weft_tile_id id = {m->name,  "moved weights", 0,
                                  w->layer, w->block,        o->want[i]};
        struct weft_tile *after,
            **to = weft_g_params_slot(&v->fwd[o->want[i]], w->kind, w->layer,
                                      w->block);
        rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_WEIGHTS, bytes, to,
                                   o->err);
        if (rc)
            break;
        rc = keep(v, *to, o->err);
        if (!rc)
            rc = weft_tile_cut(*to, n, at, o->err);
        if (!rc)
            rc = weft_g_moved_after(m, m, o->want[i], &after, o->err);
        if (!rc)
            weft_insert_open(o->seq, o->where, after, 1, to);
    }
    return rc;
}

/* Copies a tile from places that have it in the right order. */
static void send(struct weft_g_opening *o, const struct weft_g_wanted *w,
                 int32_t n_have, const int32_t *have, int32_t n_want,
                 const int32_t *want)
{
    size_t bytes = weft_g_fwd_bytes(&o->view->model->shape, w->kind,
                                    w->block);
    int32_t n = n_want == 0
                  ? 0
                  : weft_plan_moves(o->node, n_have, have, n_want, want,
                                    (double) bytes, o->load, o->move);
    for (int32_t i = 0; i < n; i++) {
        weft_insert_copy(o->seq, o->where,
                         weft_g_wanted_at(o, w, o->move[i].from),
                         weft_g_wanted_at(o, w, o->move[i].to));
        o->view->copied_bytes += bytes;
    }
}

/* Copies one part of a tile from places that have it. */
static void send_part(struct weft_g_opening *o, const struct weft_g_wanted *w,
                      int32_t part)
{
    double bytes = 0;
    if (w->n_have > 0)
        bytes = (double) weft_tile_bytes(
            weft_tile_part(weft_g_wanted_at(o, w, o->have[0]), part));
    int32_t n = weft_plan_moves(o->node, w->n_have, o->have, w->n_want,
                                o->want, bytes, o->load, o->move);
    for (int32_t i = 0; i < n; i++) {
        weft_insert_copy(
            o->seq, o->where,
            weft_tile_part(weft_g_wanted_at(o, w, o->move[i].from), part),
            weft_tile_part(weft_g_wanted_at(o, w, o->move[i].to), part));
        o->view->copied_bytes += (size_t) bytes;
    }
}

/* Copies a tile from a place of the other kind of device, into a temporary
 * tile, and puts it into the order of this place's. */
static int convert(struct weft_g_opening *o, const struct weft_g_wanted *w,
                   int32_t place)
{
    const struct weft_g_model *m = o->view->model;
    struct weft_tile *to = weft_g_wanted_at(o, w, place);
    size_t bytes = weft_tile_bytes(to);
    weft_plan_moves(o->node, w->n_have, o->have, 1, &place, (double) bytes,
                    o->load, o->move);
    struct weft_tile *from = weft_g_wanted_at(o, w, o->move[0].from), *raw;
    struct weft_tile_id id = {
        m->name, "weights in another order", 0, w->layer, w->block, place};
    struct weft_where where = *o->where;
    int rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_WEIGHTS, bytes, &raw,
                                   o->err);
    if (rc)
        return rc;
    rc = weft_tile_cut_like(raw, from, o->err);
    where.device = -1;
    where.position = 0;
    if (!rc) {
        weft_insert_copy(o->seq, o->where, from, raw);
        weft_insert_reorder(o->seq, &where, &m->shape, w->kind, w->block,
                            weft_rt_is_gpu_place(m->rt, place), raw, to);
        o->view->copied_bytes += bytes;
    }
    weft_tile_release(raw);
    return rc;
}

/* Puts places of the home's kind of device before the others; returns how many
 * they are. */
static int32_t own_kind_first(struct weft_g_opening *o, int32_t n)
{
    const struct weft_g_model *m = o->view->model;
    int32_t n_own = 0, n_other = 0;
    for (int32_t i = 0; i < n; i++)
        if (weft_rt_is_gpu_place(m->rt, o->want[i]) == m->home.on_gpus)
            o->want[n_own++] = o->want[i];
        else
            o->lack[n_other++] = o->want[i];
    for (int32_t i = 0; i < n_other; i++)
        o->want[n_own + i] = o->lack[i];
    return n_own;
}

/* How a tile of which places have all is cut: into so many pieces. */
static int32_t cut_of(const struct weft_g_model *m,
                      const struct weft_g_wanted *w, size_t at[WEFT_G_MAX_DP])
{
    if (!m->trained || m->home.plan.zero >= 3) /* its only owner has it as one
                                                  piece */
        return 1;
    return weft_g_published_cut(&m->shape, &m->home, w->kind, w->layer,
                                w->block, at);
}

/* ---- Tiles -------------------------------------------------------------- */

/* Copies a place's own tile, which others then get from the copy. */
int weft_g_keep_own(struct weft_g_opening *o, struct weft_g_wanted *w,
                    int32_t place, struct weft_tile *own)
{
    size_t at[WEFT_G_MAX_DP];
    int32_t n = cut_of(o->view->model, w, at);
    o->want[0] = place;
    w->n_want = 1;
    int rc = make_tiles(o, w, n, at);
    if (!rc)
        weft_insert_copy(o->seq, o->where, own,
                         weft_g_wanted_at(o, w, place));
    w->n_want = 0;
    return rc;
}

/* Copies one tile from places that have all of it. */
int weft_g_move_tile(struct weft_g_opening *o, const struct weft_g_wanted *w)
{
    const struct weft_g_model *m = o->view->model;
    size_t at[WEFT_G_MAX_DP];
    int32_t n_own = weft_reorders(&m->shape, w->kind)
                      ? own_kind_first(o, w->n_want)
                      : w->n_want;
    int rc = make_tiles(o, w, cut_of(m, w, at), at);
    if (!rc)
        send(o, w, w->n_have, o->have, n_own, o->want);
    if (rc || n_own == w->n_want)
        return rc;
    const int32_t *other = o->want + n_own;
    rc = convert(o, w, other[0]);
    if (!rc)
        send(o, w, 1, other, w->n_want - n_own - 1, other + 1);
    return rc;
}

/* Copies piece number i of a tile from its owner, or from a place that
 * received it before. */
static void move_piece(struct weft_g_opening *o,
                       const struct weft_g_wanted *w, int32_t i,
                       const struct weft_g_piece *piece,
                       struct weft_tile *owned)
{
    int32_t n_lack = 0, owner = piece->place;
    size_t bytes = weft_tile_bytes(owned);
    for (int32_t k = 0; k < w->n_want; k++) {
        if (o->want[k] == owner)
            weft_insert_copy(
                o->seq, o->where, owned,
                weft_tile_part(weft_g_wanted_at(o, w, owner), i));
        else
            o->lack[n_lack++] = o->want[k];
    }
    int32_t n = n_lack == 0
                  ? 0
                  : weft_plan_moves(o->node, 1, &owner, n_lack, o->lack,
                                    (double) bytes, o->load, o->move);
    for (int32_t k = 0; k < n; k++) {
        int32_t from = o->move[k].from, to = o->move[k].to;
        weft_insert_copy(
            o->seq, o->where,
            from == owner ? owned
                          : weft_tile_part(weft_g_wanted_at(o, w, from), i),
            weft_tile_part(weft_g_wanted_at(o, w, to), i));
        o->view->copied_bytes += bytes;
    }
}

/* Copies one tile of which no place has all, piece by piece; a tied embedding
 * from the head's pieces. */
int weft_g_move_pieces(struct weft_g_opening *o,
                       const struct weft_g_wanted *w)
{
    struct weft_g_view *v = o->view;
    const struct weft_g_model *m = v->model;
    bool tied = m->shape.tied && w->kind == WEFT_TILE_EMBED;
    struct weft_g_owned_pieces p;
    weft_g_owned_pieces_get(m, w->kind, w->layer, w->block, &p);
    int rc = make_tiles(o, w, p.n, p.at);
    for (int32_t i = 0; i < p.n && !rc; i++)
        move_piece(o, w, i, &p.piece[i], p.tile[i]);
    for (int32_t k = 0; k < w->n_want && tied && !rc; k++) {
        struct weft_where where = *o->where;
        where.device = -1;
        where.position = 0;
        weft_insert_tied_table(o->seq, &where, &m->shape,
                               (struct weft_range){w->block, 1}, NULL,
                               v->fwd[o->want[k]].embed);
    }
    return rc;
}

/* ---- LoRA ---------------------------------------------------------------- */

/* The tile that stays at a place where the home layout has none. */
static int get_resident(const struct weft_g_model *m,
                        const struct weft_g_wanted *w, int32_t place,
                        struct weft_tile **out, struct weft_err *err)
{
    struct weft_tile **slot = weft_g_params_slot(&m->resident[place], w->kind,
                                                 w->layer, w->block);
    struct weft_tile_id id = {m->name,  "weights", 0,
                              w->layer, w->block,  place};
    size_t at[WEFT_G_MAX_DP];
    int rc = 0;
    if (!*slot) {
        rc = weft_tile_create(m->rt, &id, WEFT_MEM_WEIGHTS,
                              weft_g_fwd_bytes(&m->shape, w->kind, w->block),
                              slot, err);
        if (!rc)
            rc = weft_tile_cut(*slot, cut_of(m, w, at), at, err);
    }
    *out = *slot;
    return rc;
}

/* Copies the tile's adapters to the places that want it. */
int weft_g_move_adapters(struct weft_g_opening *o,
                         const struct weft_g_wanted *w)
{
    struct weft_g_view *v = o->view;
    const struct weft_g_model *m = v->model;
    size_t at[WEFT_G_MAX_DP];
    int32_t n_parts = cut_of(m, w, at);
    int rc = 0;
    for (int32_t i = 0; i < w->n_want && !rc; i++)
        rc = get_resident(m, w, o->want[i],
                          weft_g_params_slot(&v->fwd[o->want[i]], w->kind,
                                             w->layer, w->block),
                          o->err);
    for (int32_t k = weft_g_frozen_parts(&m->shape); k < n_parts && !rc; k++)
        send_part(o, w, k);
    return rc;
}

int weft_g_take_trunk(struct weft_g_opening *o, const struct weft_g_wanted *w)
{
    struct weft_g_view *v = o->view;
    const struct weft_g_model *trunk = v->model->trunk;
    size_t at[WEFT_G_MAX_DP];
    bool whole = cut_of(trunk, w, at) == 1;
    int rc = 0;
    for (int32_t i = 0; i < w->n_want && !rc; i++) {
        int32_t p = o->want[i];
        struct weft_tile *tile = weft_g_params_tile(&trunk->fwd[p], w->kind,
                                                    w->layer, w->block);
        if (!tile)
            rc = get_resident(trunk, w, p, &tile, o->err);
        if (!rc)
            *weft_g_params_slot(&v->fwd[p], w->kind, w->layer,
                                w->block) = whole ? tile
                                                  : weft_tile_part(tile, 0);
    }
    return rc;
}
