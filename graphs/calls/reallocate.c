/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameter reallocation: copies tiles from the places that have them to the
 * places at which a call needs them. All layouts consist of the same tensor
 * blocks, so going from one layout to another is copying whole tiles, or all
 * pieces of a tile where ZeRO has cut it. The places of both layouts determine
 * which tiles; weft_plan_moves() chooses the sources. Between GPUs and CPU
 * devices a tile moves once, and is then put into the other kind's order.
 *
 * A model with LoRA adapters has its frozen weights for good at all places where
 * a view has needed them; the adapters, the last parts of such tiles, move
 * there. With ZeRO 3 all of it moves.
 */
#include "base/alloc.h"
#include "codelets/parts.h"
#include "graphs/calls/shard.h"
#include "graphs/calls/tiles.h"

/* Calls visit for every tile that a stage's places need, once per place. */
typedef void (*need_fn)(void *arg, int32_t place, enum weft_tile_kind kind,
                        int32_t layer, int32_t block);

static void visit_member(const struct weft_shape *s,
                         const struct weft_g_stage *stage,
                         const struct weft_g_member *m, need_fn visit,
                         void *arg)
{
    for (int32_t b = m->blocks.first; b < m->blocks.first + m->blocks.n;
         b++) {
        if (stage->is_first)
            visit(arg, m->place, WEFT_TILE_EMBED, -1, b);
        for (int32_t l = stage->first; l < stage->end; l++)
            visit(arg, m->place, WEFT_TILE_LAYER, l, b);
        if (stage->is_last && !s->scalar_head)
            visit(arg, m->place, WEFT_TILE_HEAD, -1, b);
    }
}

static void for_each_need(const struct weft_shape *s,
                          const struct weft_g_layout *layout, need_fn visit,
                          void *arg)
{
    for (int32_t i = 0; i < layout->plan.dp; i++)
        for (int32_t at = 0; at < layout->plan.pp; at++) {
            struct weft_g_stage stage;
            weft_g_stage_get(layout, i, at, &stage);
            for (int32_t k = 0; k < stage.n; k++)
                visit_member(s, &stage, &stage.member[k], visit, arg);
            for (int32_t k = 0; k < stage.n_places; k++) {
                for (int32_t l = stage.first; l < stage.end; l++)
                    visit(arg, stage.place[k], WEFT_TILE_NORMS, l, 0);
                if (stage.is_last)
                    visit(arg, stage.place[k], WEFT_TILE_FINAL, -1, 0);
            }
        }
}

/* Tiles are numbered by group (embedding, layers, head), T + 1 for each:
 * its blocks, then its norms. */
static size_t n_tiles(const struct weft_shape *s)
{
    return ((size_t) s->n_layers + 2) * ((size_t) s->n_blocks + 1);
}

static size_t index_of(const struct weft_shape *s, enum weft_tile_kind kind,
                       int32_t layer, int32_t block)
{
    bool norms = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
    bool last = kind == WEFT_TILE_HEAD || kind == WEFT_TILE_FINAL;
    size_t row = kind == WEFT_TILE_EMBED ? 0
               : last                    ? (size_t) s->n_layers + 1
                                         : (size_t) layer + 1;
    return row * ((size_t) s->n_blocks + 1)
         + (size_t) (norms ? s->n_blocks : block);
}

static enum weft_tile_kind kind_at(const struct weft_shape *s, size_t index,
                                   int32_t *layer_out, int32_t *block_out)
{
    size_t n = (size_t) s->n_blocks + 1, row = index / n, column = index % n;
    bool norms = column == n - 1, last = row > (size_t) s->n_layers;
    *layer_out = row == 0 || last ? -1 : (int32_t) row - 1;
    *block_out = norms ? 0 : (int32_t) column;
    return row == 0 ? WEFT_TILE_EMBED
         : last     ? (norms ? WEFT_TILE_FINAL : WEFT_TILE_HEAD)
         : norms    ? WEFT_TILE_NORMS
                    : WEFT_TILE_LAYER;
}

/* The number that no tile has: an embedding has no norms. */
static bool is_embed_norms(const struct weft_shape *s, size_t index)
{
    return index == (size_t) s->n_blocks;
}

/* need[place * n + index]: whether a call of the layout reads the tile at the
 * place. */
struct needs {
    const struct weft_shape *shape;
    size_t n;
    bool *need;
};

static void note_need(void *arg, int32_t place, enum weft_tile_kind kind,
                      int32_t layer, int32_t block)
{
    struct needs *n = arg;
    n->need[(size_t) place * n->n + index_of(n->shape, kind, layer, block)] =
        true;
}

static int needs_init(const struct weft_shape *shape,
                      const struct weft_g_layout *layout, int32_t n_places,
                      struct needs *out, struct weft_err *err)
{
    *out = (struct needs){shape, n_tiles(shape), NULL};
    size_t n = (size_t) n_places * out->n;
    out->need = weft_alloc(n, sizeof *out->need);
    if (!out->need)
        return weft_err_nomem(err, "a reallocation", n);
    for_each_need(shape, layout, note_need, out);
    return 0;
}

/* ---- When moved weights come and go ------------------------------------ */

static struct weft_tile *last_of(const struct weft_shape *s,
                                 struct weft_tile *const block[],
                                 struct weft_tile *norms)
{
    for (int32_t b = s->n_blocks - 1; b >= 0; b--)
        if (block[b])
            return block[b];
    return norms;
}

struct weft_tile *weft_g_last_state(const struct weft_g_model *m,
                                    int32_t place)
{
    const struct weft_params *opt = m->trained ? &m->opt[place] : NULL;
    if (!opt)
        return NULL;
    struct weft_tile *tile = last_of(&m->shape, opt->head.block,
                                     opt->head.norms);
    for (int32_t l = m->shape.n_layers - 1; l >= 0 && !tile; l--)
        tile = last_of(&m->shape, opt->layer[l].block, opt->layer[l].norms);
    return tile ? tile : last_of(&m->shape, opt->embed, NULL);
}

/* Where a place's tile that weft_g_moved_end() writes is kept. */
static struct weft_tile **given_back(const struct weft_g_model *m,
                                     int32_t place)
{
    return &(m->host ? m->host : m)->given_back[place];
}

int weft_g_moved_after(const struct weft_g_model *m,
                       const struct weft_g_model *trained, int32_t place,
                       struct weft_tile **out, struct weft_err *err)
{
    const struct weft_tile_id id = {m->name, "moved weights", 0, -1, -1,
                                    place};
    struct weft_tile **own = given_back(m, place);
    int rc = 0;
    *out = weft_g_last_state(trained, place);
    if (!*out && !*own)
        rc = weft_tile_create(m->rt, &id, WEFT_MEM_SAMPLES, sizeof(int64_t),
                              own, err);
    if (!*out)
        *out = *own;
    return rc;
}

void weft_g_moved_end(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_g_model *m,
                      const struct weft_params *moved,
                      const struct weft_params *own)
{
    size_t most = n_tiles(&m->shape);
    struct weft_tile **list = weft_alloc(most + 1,
                                         sizeof(struct weft_tile *));
    if (!list)
        weft_seq_fail(seq, WEFT_ENOMEM, "out of memory for moved weights");
    for (int32_t p = 0; list && p < m->n_places; p++) {
        int n = 0;
        list[n++] = *given_back(m, p);
        for (size_t i = 0; i < most && list[0]; i++) {
            int32_t layer, block;
            enum weft_tile_kind kind = kind_at(&m->shape, i, &layer, &block);
            if (is_embed_norms(&m->shape, i))
                continue;
            struct weft_tile *tile = weft_g_params_tile(&moved[p], kind,
                                                        layer, block);
            if (tile
                && (!own
                    || tile
                           != weft_g_params_tile(&own[p], kind, layer,
                                                 block)))
                list[n++] = tile;
        }
        if (n > 1)
            weft_insert_open(seq, where, NULL, n, list);
    }
    weft_free(list);
}

/* ---- The view --------------------------------------------------------- */

struct opening {
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

/* One tile of the view: which places have it, and which need a copy. */
struct wanted {
    enum weft_tile_kind kind;
    int32_t layer, block;
    int32_t n_have, n_want; /* of o->have, o->want */
};

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
static int make_tiles(struct opening *o, const struct wanted *w, int32_t n,
                      const size_t at[])
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

/* The view's tile at a place. */
static struct weft_tile *tile_at(const struct opening *o,
                                 const struct wanted *w, int32_t place)
{
    return weft_g_params_tile(&o->view->fwd[place], w->kind, w->layer,
                              w->block);
}

/* Copies a tile from places that have it in the right order. */
static void send(struct opening *o, const struct wanted *w, int32_t n_have,
                 const int32_t *have, int32_t n_want, const int32_t *want)
{
    size_t bytes = weft_g_fwd_bytes(&o->view->model->shape, w->kind,
                                    w->block);
    int32_t n = n_want == 0
                  ? 0
                  : weft_plan_moves(o->node, n_have, have, n_want, want,
                                    (double) bytes, o->load, o->move);
    for (int32_t i = 0; i < n; i++) {
        weft_insert_copy(o->seq, o->where, tile_at(o, w, o->move[i].from),
                         tile_at(o, w, o->move[i].to));
        o->view->copied_bytes += bytes;
    }
}

/* Copies one part of a tile from places that have it. */
static void send_part(struct opening *o, const struct wanted *w, int32_t part)
{
    double bytes = 0;
    if (w->n_have > 0)
        bytes = (double) weft_tile_bytes(
            weft_tile_part(tile_at(o, w, o->have[0]), part));
    int32_t n = weft_plan_moves(o->node, w->n_have, o->have, w->n_want,
                                o->want, bytes, o->load, o->move);
    for (int32_t i = 0; i < n; i++) {
        weft_insert_copy(o->seq, o->where,
                         weft_tile_part(tile_at(o, w, o->move[i].from), part),
                         weft_tile_part(tile_at(o, w, o->move[i].to), part));
        o->view->copied_bytes += (size_t) bytes;
    }
}

/* Copies a tile from a place of the other kind of device, into a temporary
 * tile, and puts it into the order of this place's. */
static int convert(struct opening *o, const struct wanted *w, int32_t place)
{
    const struct weft_g_model *m = o->view->model;
    struct weft_tile *to = tile_at(o, w, place);
    size_t bytes = weft_tile_bytes(to);
    weft_plan_moves(o->node, w->n_have, o->have, 1, &place, (double) bytes,
                    o->load, o->move);
    struct weft_tile *from = tile_at(o, w, o->move[0].from), *raw;
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
static int32_t own_kind_first(struct opening *o, int32_t n)
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
static int32_t cut_of(const struct weft_g_model *m, const struct wanted *w,
                      size_t at[WEFT_G_MAX_DP])
{
    if (!m->trained || m->home.plan.zero >= 3) /* its only owner has it as one
                                                  piece */
        return 1;
    return weft_g_published_cut(&m->shape, &m->home, w->kind, w->layer,
                                w->block, at);
}

/* ---- LoRA ---------------------------------------------------------------- */

/* The tile that stays at a place where the home layout has none. */
static int get_resident(const struct weft_g_model *m, const struct wanted *w,
                        int32_t place, struct weft_tile **out,
                        struct weft_err *err)
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
static int move_adapters(struct opening *o, const struct wanted *w)
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

/* Gives the view of a model that has no tiles those of its trunk, without
 * adapters. */
static int take_trunk(struct opening *o, const struct needs *needs, size_t i,
                      const struct wanted *w)
{
    struct weft_g_view *v = o->view;
    const struct weft_g_model *trunk = v->model->trunk;
    size_t at[WEFT_G_MAX_DP];
    bool whole = cut_of(trunk, w, at) == 1;
    int rc = 0;
    for (int32_t p = 0; p < trunk->n_places && !rc; p++) {
        struct weft_tile *tile = weft_g_params_tile(&trunk->fwd[p], w->kind,
                                                    w->layer, w->block);
        if (!needs->need[(size_t) p * needs->n + i])
            continue;
        if (!tile)
            rc = get_resident(trunk, w, p, &tile, o->err);
        if (!rc)
            *weft_g_params_slot(&v->fwd[p], w->kind, w->layer,
                                w->block) = whole ? tile
                                                  : weft_tile_part(tile, 0);
    }
    return rc;
}

/* ---- Tiles -------------------------------------------------------------- */

/* Copies a place's own tile, which others then get from the copy. */
static int keep_own(struct opening *o, struct wanted *w, int32_t place,
                    struct weft_tile *own)
{
    size_t at[WEFT_G_MAX_DP];
    int32_t n = cut_of(o->view->model, w, at);
    o->want[0] = place;
    w->n_want = 1;
    int rc = make_tiles(o, w, n, at);
    if (!rc)
        weft_insert_copy(o->seq, o->where, own, tile_at(o, w, place));
    w->n_want = 0;
    return rc;
}

/* Copies one tile from places that have all of it. */
static int move_tile(struct opening *o, const struct wanted *w)
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
static void move_piece(struct opening *o, const struct wanted *w, int32_t i,
                       const struct weft_g_piece *piece,
                       struct weft_tile *owned)
{
    int32_t n_lack = 0, owner = piece->place;
    size_t bytes = weft_tile_bytes(owned);
    for (int32_t k = 0; k < w->n_want; k++) {
        if (o->want[k] == owner)
            weft_insert_copy(o->seq, o->where, owned,
                             weft_tile_part(tile_at(o, w, owner), i));
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
            from == owner ? owned : weft_tile_part(tile_at(o, w, from), i),
            weft_tile_part(tile_at(o, w, to), i));
        o->view->copied_bytes += bytes;
    }
}

/* Copies one tile of which no place has all, piece by piece; a tied embedding
 * from the head's pieces. */
static int move_pieces(struct opening *o, const struct wanted *w)
{
    struct weft_g_view *v = o->view;
    const struct weft_g_model *m = v->model;
    bool tied = m->shape.tied && w->kind == WEFT_TILE_EMBED;
    struct weft_g_piece piece[WEFT_G_MAX_PIECES];
    struct weft_tile *tile[WEFT_G_MAX_PIECES];
    size_t at[WEFT_G_MAX_PIECES];
    int32_t n = weft_g_owned_pieces(m, w->kind, w->layer, w->block, piece,
                                    tile, at);
    int rc = make_tiles(o, w, n, at);
    for (int32_t i = 0; i < n && !rc; i++)
        move_piece(o, w, i, &piece[i], tile[i]);
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

/* Whether a place's tile is the whole tile, and not a piece. */
static bool is_whole(const struct weft_g_model *m,
                     const struct weft_tile *tile, enum weft_tile_kind kind,
                     int32_t block)
{
    return tile
        && weft_tile_bytes(tile) == weft_g_fwd_bytes(&m->shape, kind, block);
}

/* Gives the view the tiles that places have, and lists those that have and
 * that lack one. */
static int take_own(struct opening *o, const struct needs *needs, size_t i,
                    struct wanted *w)
{
    struct weft_g_view *v = o->view;
    const struct weft_g_model *m = v->model;
    int rc = 0;
    for (int32_t p = 0; p < m->n_places && !rc; p++) {
        bool need = needs->need[(size_t) p * needs->n + i];
        struct weft_tile *tile = weft_g_params_tile(&m->fwd[p], w->kind,
                                                    w->layer, w->block);
        if (!is_whole(m, tile, w->kind, w->block))
            continue;
        *weft_g_params_slot(&v->fwd[p], w->kind, w->layer, w->block) = tile;
        if (o->keeps && need)
            rc = keep_own(o, w, p, tile);
        o->have[w->n_have++] = p;
    }
    for (int32_t p = 0; p < m->n_places; p++)
        if (needs->need[(size_t) p * needs->n + i] && !tile_at(o, w, p))
            o->want[w->n_want++] = p;
    return rc;
}

/* What comes to places from other nodes: a tile once to a node, to any of its
 * places. */
static void count_coming(struct opening *o, const struct needs *needs)
{
    const struct weft_g_model *m = o->view->model;
    for (size_t i = 0; i < needs->n; i++) {
        int32_t layer, block, n_node, end;
        enum weft_tile_kind kind = kind_at(&m->shape, i, &layer, &block);
        double bytes = (double) weft_g_fwd_bytes(&m->shape, kind, block);
        if (is_embed_norms(&m->shape, i))
            continue;
        for (int32_t p = 0; p < m->n_places; p = end) {
            bool there = false;
            n_node = 0;
            for (end = p; end < m->n_places && o->node[end] == o->node[p];
                 end++) {
                n_node += needs->need[(size_t) end * needs->n + i];
                there = there
                     || is_whole(m,
                                 weft_g_params_tile(&m->fwd[end], kind, layer,
                                                    block),
                                 kind, block);
            }
            for (int32_t q = p; q < end && !there; q++)
                if (needs->need[(size_t) q * needs->n + i])
                    o->load[q].comes += bytes / n_node;
        }
    }
}

static int view_fill(struct opening *o, const struct needs *needs)
{
    const struct weft_g_model *m = o->view->model;
    int rc = 0;
    for (size_t i = 0; i < needs->n && !rc; i++) {
        struct wanted w = {.n_have = 0};
        w.kind = kind_at(&m->shape, i, &w.layer, &w.block);
        if (is_embed_norms(&m->shape, i))
            continue;
        if (m->trunk) {
            rc = take_trunk(o, needs, i, &w);
            continue;
        }
        rc = take_own(o, needs, i, &w);
        if (!rc && w.n_want > 0)
            rc = m->resident  ? move_adapters(o, &w)
               : w.n_have > 0 ? move_tile(o, &w)
                              : move_pieces(o, &w);
    }
    return rc;
}

static int view_params(struct weft_g_view *v, struct weft_err *err)
{
    const struct weft_g_model *m = v->model;
    size_t n = (size_t) m->shape.n_layers;
    v->fwd = weft_alloc((size_t) m->n_places, sizeof *v->fwd);
    for (int32_t p = 0; v->fwd && p < m->n_places; p++) {
        v->fwd[p].layer = weft_alloc(n, sizeof *v->fwd[p].layer);
        if (!v->fwd[p].layer)
            return weft_err_nomem(err, m->name, n * sizeof *v->fwd[p].layer);
    }
    return v->fwd ? 0
                  : weft_err_nomem(err, m->name,
                                   (size_t) m->n_places * sizeof *v->fwd);
}

static int view_open(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_g_model *model,
                     const struct weft_g_layout *layout, bool keeps,
                     struct weft_g_view *out, struct weft_err *err)
{
    size_t n = (size_t) model->n_places;
    struct needs needs = {0};
    struct weft_where moving = *where;
    struct opening o = {.view = out,
                        .seq = seq,
                        .where = &moving,
                        .keeps = keeps,
                        .node = weft_alloc(n, sizeof *o.node),
                        .have = weft_alloc(n, sizeof *o.have),
                        .want = weft_alloc(n, sizeof *o.want),
                        .lack = weft_alloc(n, sizeof *o.lack),
                        .load = weft_alloc(n, sizeof *o.load),
                        .move = weft_alloc(n, sizeof *o.move),
                        .err = err};
    moving.moves = true;
    *out = (struct weft_g_view){.model = model, .seq = seq, .where = *where};
    int rc = weft_g_layout_copy(layout, &out->layout, err);
    if (!rc)
        rc = view_params(out, err);
    if (!rc)
        rc = needs_init(&model->shape, layout, model->n_places, &needs, err);
    if (!rc && !(o.node && o.have && o.want && o.lack && o.load && o.move))
        rc = weft_err_nomem(err, "a reallocation", n * 32);
    for (int32_t p = 0; p < model->n_places && !rc; p++)
        o.node[p] = weft_rt_place_rank(model->rt, p);
    if (!rc && !model->trunk)
        count_coming(&o, &needs);
    if (!rc)
        rc = view_fill(&o, &needs);
    weft_free(needs.need);
    weft_free(o.node);
    weft_free(o.have);
    weft_free(o.want);
    weft_free(o.lack);
    weft_free(o.load);
    weft_free(o.move);
    return rc;
}

int weft_g_view_open(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_g_model *model,
                     const struct weft_g_layout *layout,
                     struct weft_g_view *out, struct weft_err *err)
{
    return view_open(seq, where, model, layout, false, out, err);
}

int weft_g_view_keep(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_g_model *model,
                     const struct weft_g_layout *layout,
                     struct weft_g_view *out, struct weft_err *err)
{
    return view_open(seq, where, model, layout, true, out, err);
}

void weft_g_view_close(struct weft_g_view *v)
{
    if (v->n_copies > 0)
        weft_g_moved_end(v->seq, &v->where, v->model, v->fwd, v->model->fwd);
    for (int32_t i = 0; i < v->n_copies; i++)
        weft_tile_release(v->copy[i]);
    for (int32_t p = 0; v->fwd && p < v->model->n_places; p++)
        weft_free(v->fwd[p].layer);
    weft_free(v->fwd);
    weft_free(v->copy);
    weft_g_layout_release(&v->layout);
    *v = (struct weft_g_view){0};
}
