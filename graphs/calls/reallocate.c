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
#include "graphs/calls/reallocate_inside.h"

#include "base/alloc.h"

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
    struct weft_tile **list = weft_insert_alloc(most + 1, sizeof *list,
                                                "moved weights");
    for (int32_t p = 0; p < m->n_places; p++) {
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

/* Whether a place's tile is the whole tile, and not a piece. */
static bool is_whole(const struct weft_g_model *m,
                     const struct weft_tile *tile, enum weft_tile_kind kind,
                     int32_t block)
{
    return tile
        && weft_tile_bytes(tile) == weft_g_fwd_bytes(&m->shape, kind, block);
}

/* Gives the view the tiles that places have, and lists these places. */
static int take_own(struct weft_g_opening *o, const struct needs *needs,
                    size_t i, struct weft_g_wanted *w)
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
            rc = weft_g_keep_own(o, w, p, tile);
        o->have[w->n_have++] = p;
    }
    return rc;
}

/* What comes to places from other nodes: a tile once to a node, to any of its
 * places. */
static void count_coming(struct weft_g_opening *o, const struct needs *needs)
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

static int view_fill(struct weft_g_opening *o, const struct needs *needs)
{
    const struct weft_g_model *m = o->view->model;
    int rc = 0;
    for (size_t i = 0; i < needs->n && !rc; i++) {
        struct weft_g_wanted w = {.n_have = 0};
        w.kind = kind_at(&m->shape, i, &w.layer, &w.block);
        if (is_embed_norms(&m->shape, i))
            continue;
        if (!m->trunk) /* which has the tiles */
            rc = take_own(o, needs, i, &w);
        for (int32_t p = 0; p < m->n_places; p++)
            if (needs->need[(size_t) p * needs->n + i]
                && !weft_g_wanted_at(o, &w, p))
                o->want[w.n_want++] = p;
        if (!rc && w.n_want > 0)
            rc = m->trunk     ? weft_g_take_trunk(o, &w)
               : m->resident  ? weft_g_move_adapters(o, &w)
               : w.n_have > 0 ? weft_g_move_tile(o, &w)
                              : weft_g_move_pieces(o, &w);
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
    struct weft_g_opening o = {.view = out,
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
