/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/gather.h"

#include "base/alloc.h"
#include "graphs/calls/relays.h"
#include "graphs/calls/tiles.h"

/* Buffers of one stage of one replica: two that layers use in turn, one for
 * the embedding, one for the head. All layers have tiles of the same sizes. */
enum { LAYER_A, LAYER_B, EMBED, HEAD, N_BUFFERS };

struct buffer {
    struct weft_layer_tiles *fwd, *bwd; /* (n_places) */
};

struct weft_g_gather {
    const struct weft_g_model *model;
    bool sharded;
    struct weft_g_relays *relays;
    struct buffer *buffer; /* (dp, pp, N_BUFFERS) */
    int32_t *turn;         /* (dp, pp): how many layers were gathered */
    struct weft_params *fwd, *bwd; /* (n_places): what was gathered last */
};

static enum weft_tile_kind kind_of(int32_t which)
{
    return which == EMBED ? WEFT_TILE_EMBED
         : which == HEAD  ? WEFT_TILE_HEAD
                          : WEFT_TILE_LAYER;
}

static bool has_buffer(const struct weft_shape *s,
                       const struct weft_g_stage *stage, int32_t which)
{
    return which == EMBED   ? stage->is_first
         : which == HEAD    ? stage->is_last && !s->scalar_head
         : which == LAYER_B ? stage->end - stage->first > 1
                            : true;
}

/* ---- Buffers ----------------------------------------------------------- */

typedef int (*buffer_fn)(void *arg, const struct weft_g_stage *stage,
                         int32_t which, int32_t place, int32_t block,
                         size_t fwd_bytes, size_t bwd_bytes);

/* Calls visit for every block's buffer; block -1: the norms. */
static int for_each_buffer(const struct weft_shape *s,
                           const struct weft_g_layout *home, buffer_fn visit,
                           void *arg)
{
    int rc = 0;
    for (int32_t i = 0; i < home->plan.dp * home->plan.pp * N_BUFFERS; i++) {
        int32_t which = i % N_BUFFERS, at = i / N_BUFFERS;
        struct weft_g_stage stage;
        struct weft_layout l;
        weft_g_stage_get(home, at / home->plan.pp, at % home->plan.pp,
                         &stage);
        for (int32_t k = 0; k < stage.n && has_buffer(s, &stage, which); k++)
            for (int32_t b = 0; b < stage.member[k].blocks.n && !rc; b++) {
                int32_t block = stage.member[k].blocks.first + b;
                weft_layout_get(s, kind_of(which), block, &l);
                rc = visit(arg, &stage, which, stage.member[k].place, block,
                           weft_g_fwd_bytes(s, kind_of(which), block),
                           l.bwd_bytes);
            }
        bool norms = which != EMBED
                  && (which == HEAD ? stage.is_last
                                    : has_buffer(s, &stage, which));
        weft_layout_get(s, which == HEAD ? WEFT_TILE_FINAL : WEFT_TILE_NORMS,
                        0, &l);
        for (int32_t p = 0; p < stage.n_places && norms && !rc; p++)
            rc = visit(arg, &stage, which, stage.place[p], -1, l.fwd_bytes,
                       0);
    }
    return rc;
}

static struct buffer *buffer_of(const struct weft_g_gather *g,
                                const struct weft_g_stage *stage,
                                int32_t which)
{
    int32_t at = stage->dp * g->model->home.plan.pp + stage->index;
    return &g->buffer[at * N_BUFFERS + which];
}

/* Whether a place owns all pieces of a tile. A tied embedding is made of the
 * head's. */
static bool has_whole(const struct weft_g_model *m, enum weft_tile_kind kind,
                      const struct weft_g_owned_pieces *p, int32_t place)
{
    bool tied = m->shape.tied && kind == WEFT_TILE_EMBED;
    return p->n == 1 && p->piece[0].place == place && !tied;
}

/* Whether a place has what would come to a buffer: then it does of all layers,
 * which are cut alike. */
static bool is_needless(const struct weft_g_model *m,
                        const struct weft_g_stage *stage, int32_t which,
                        int32_t place, int32_t block)
{
    enum weft_tile_kind kind = block >= 0    ? kind_of(which)
                             : which == HEAD ? WEFT_TILE_FINAL
                                             : WEFT_TILE_NORMS;
    struct weft_g_owned_pieces p;
    weft_g_owned_pieces_get(m, kind, stage->first, block >= 0 ? block : 0,
                            &p);
    return has_whole(m, kind, &p, place);
}

struct creation {
    struct weft_g_gather *gather;
    struct weft_err *err;
};

static int create(void *arg, const struct weft_g_stage *stage, int32_t which,
                  int32_t place, int32_t block, size_t fwd_bytes,
                  size_t bwd_bytes)
{
    const struct creation *c = arg;
    const struct weft_g_model *m = c->gather->model;
    struct buffer *b = buffer_of(c->gather, stage, which);
    struct weft_tile_id id = {m->name, "gathered weights", 0, -1, block,
                              place};
    struct weft_tile **slot = block < 0 ? &b->fwd[place].norms
                                        : &b->fwd[place].block[block];
    int rc = 0;
    if (!is_needless(m, stage, which, place, block))
        rc = weft_tile_create(m->rt, &id, WEFT_MEM_WEIGHTS, fwd_bytes, slot,
                              c->err);
    if (rc || bwd_bytes == 0)
        return rc;
    return weft_tile_create(m->rt, &id, WEFT_MEM_WEIGHTS, bwd_bytes,
                            &b->bwd[place].block[block], c->err);
}

static int params_alloc(const struct weft_g_model *m,
                        struct weft_params **out, struct weft_err *err)
{
    size_t n = (size_t) m->n_places, layers = (size_t) m->shape.n_layers;
    *out = weft_alloc(n, sizeof **out);
    for (size_t p = 0; *out && p < n; p++) {
        (*out)[p].layer = weft_alloc(layers, sizeof *(*out)->layer);
        if (!(*out)[p].layer)
            return weft_err_nomem(err, m->name, layers * 64);
    }
    return *out ? 0 : weft_err_nomem(err, m->name, n * sizeof **out);
}

static void params_free(const struct weft_g_model *m,
                        struct weft_params *params)
{
    for (int32_t p = 0; params && p < m->n_places; p++)
        weft_free(params[p].layer);
    weft_free(params);
}

int weft_g_gather_create(const struct weft_g_model *model,
                         struct weft_g_gather **out, struct weft_err *err)
{
    size_t places = (size_t) model->n_places;
    size_t n = (size_t) (model->home.plan.dp * model->home.plan.pp);
    struct weft_g_gather *g = weft_alloc(1, sizeof *g);
    if (!g)
        return weft_err_nomem(err, model->name, sizeof *g);
    g->model = model;
    *out = g;
    g->sharded = model->home.plan.zero >= 3;
    if (!g->sharded)
        return 0;
    g->buffer = weft_alloc(n * N_BUFFERS, sizeof *g->buffer);
    g->turn = weft_alloc(n, sizeof *g->turn);
    if (!g->buffer || !g->turn)
        return weft_err_nomem(err, model->name, n * sizeof *g->buffer);
    int rc = weft_g_relays_create(model, &g->relays, err);
    if (!rc)
        rc = params_alloc(model, &g->fwd, err);
    if (!rc)
        rc = params_alloc(model, &g->bwd, err);
    for (size_t i = 0; i < n * N_BUFFERS && !rc; i++) {
        g->buffer[i].fwd = weft_alloc(places, sizeof *g->buffer->fwd);
        g->buffer[i].bwd = weft_alloc(places, sizeof *g->buffer->bwd);
        if (!g->buffer[i].fwd || !g->buffer[i].bwd)
            rc = weft_err_nomem(err, model->name, places * 64);
    }
    struct creation c = {g, err};
    return rc ? rc : for_each_buffer(&model->shape, &model->home, create, &c);
}

static void tiles_release(struct weft_layer_tiles *tiles, int32_t n)
{
    for (int32_t p = 0; tiles && p < n; p++) {
        for (int32_t b = 0; b < WEFT_MAX_BLOCKS; b++)
            weft_tile_release(tiles[p].block[b]);
        weft_tile_release(tiles[p].norms);
    }
    weft_free(tiles);
}

void weft_g_gather_free(struct weft_g_gather *g)
{
    if (!g)
        return;
    const struct weft_g_model *m = g->model;
    int32_t n = m->home.plan.dp * m->home.plan.pp * N_BUFFERS;
    for (int32_t i = 0; g->buffer && i < n; i++) {
        tiles_release(g->buffer[i].fwd, m->n_places);
        tiles_release(g->buffer[i].bwd, m->n_places);
    }
    weft_g_relays_free(g->relays);
    params_free(m, g->fwd);
    params_free(m, g->bwd);
    weft_free(g->buffer);
    weft_free(g->turn);
    weft_free(g);
}

/* ---- Gathering --------------------------------------------------------- */

/* Returns a whole tile at `place`: the place's own if it has all of it, else
 * the buffer, to which the pieces are copied from their owners or relays. */
static struct weft_tile *fetch(struct weft_g_gather *g,
                               const struct weft_g_pass *pass,
                               enum weft_tile_kind kind, int32_t layer,
                               int32_t block, struct weft_tile *buffer,
                               int32_t place)
{
    struct weft_g_owned_pieces p;
    struct weft_where where = pass->where;
    weft_g_owned_pieces_get(g->model, kind, layer, block, &p);
    where.device = -1;
    where.position = 0;
    if (has_whole(g->model, kind, &p, place))
        return p.tile[0];
    weft_insert_cut(pass->seq, &where, buffer, p.n, p.at);
    for (int32_t i = 0; i < p.n; i++)
        weft_insert_copy(pass->seq, &where,
                         weft_g_relays_source(g->relays, pass->seq, &where,
                                              kind, layer, block, &p, i,
                                              place),
                         weft_tile_part(buffer, i));
    return buffer;
}

/* Sets g->fwd and g->bwd for a member's blocks of a parameter group. */
static void gather_blocks(struct weft_g_gather *g,
                          const struct weft_g_pass *pass,
                          const struct weft_g_member *at,
                          const struct buffer *b, enum weft_param_group group,
                          int32_t layer, int32_t which, bool transposed)
{
    const struct weft_shape *s = &g->model->shape;
    enum weft_tile_kind kind = kind_of(which);
    struct weft_params *fwd = &g->fwd[at->place], *bwd = &g->bwd[at->place];
    for (int32_t i = at->blocks.first; i < weft_range_end(at->blocks); i++) {
        *weft_g_params_slot(fwd, kind, layer, i) = fetch(
            g, pass, kind, layer, i, b->fwd[at->place].block[i], at->place);
        if (transposed)
            *weft_g_params_slot(bwd, kind, layer,
                                i) = b->bwd[at->place].block[i];
    }
    if (!transposed && !(s->tied && group == WEFT_GROUP_EMBED))
        return;
    struct weft_where where = weft_g_where_at(pass, at);
    if (transposed)
        weft_insert_transpose(pass->seq, &where, s, at->blocks, group, layer,
                              fwd, bwd);
    else
        weft_insert_tied_table(pass->seq, &where, s, at->blocks, NULL,
                               fwd->embed);
}

/* Sets g->fwd and g->bwd for a parameter group at all members' places. */
static void gather(struct weft_g_gather *g, const struct weft_g_pass *pass,
                   const struct weft_g_stage *stage,
                   enum weft_param_group group, int32_t layer, int32_t which,
                   bool transposed)
{
    const struct buffer *b = buffer_of(g, stage, which);
    enum weft_tile_kind kind = group == WEFT_GROUP_HEAD ? WEFT_TILE_FINAL
                                                        : WEFT_TILE_NORMS;
    for (int32_t k = 0;
         k < stage->n && has_buffer(&g->model->shape, stage, which); k++)
        gather_blocks(g, pass, &stage->member[k], b, group, layer, which,
                      transposed);
    for (int32_t p = 0; p < stage->n_places && group != WEFT_GROUP_EMBED;
         p++) {
        int32_t place = stage->place[p];
        *weft_g_params_slot(&g->fwd[place], kind, layer, 0) = fetch(
            g, pass, kind, layer, 0, b->fwd[place].norms, place);
    }
}

void weft_g_gather_renew(struct weft_g_gather *g)
{
    if (g->sharded)
        weft_g_relays_renew(g->relays);
}

const struct weft_params *weft_g_gather_embed(struct weft_g_gather *g,
                                              const struct weft_g_pass *pass,
                                              const struct weft_g_stage *at)
{
    if (!g->sharded)
        return g->model->fwd;
    gather(g, pass, at, WEFT_GROUP_EMBED, -1, EMBED, false);
    return g->fwd;
}

const struct weft_params *weft_g_gather_layer(struct weft_g_gather *g,
                                              const struct weft_g_pass *pass,
                                              const struct weft_g_stage *at,
                                              int32_t layer, bool transposed)
{
    if (!g->sharded)
        return g->model->fwd;
    int32_t *turn = &g->turn[at->dp * g->model->home.plan.pp + at->index];
    int32_t which = at->end - at->first > 1 ? (*turn)++ % 2 : LAYER_A;
    gather(g, pass, at, WEFT_GROUP_LAYER, layer, which, transposed);
    return g->fwd;
}

const struct weft_params *weft_g_gather_head(struct weft_g_gather *g,
                                             const struct weft_g_pass *pass,
                                             const struct weft_g_stage *at,
                                             const struct weft_params **bwd)
{
    *bwd = weft_g_gather_transposed(g);
    if (!g->sharded)
        return g->model->fwd;
    gather(g, pass, at, WEFT_GROUP_HEAD, -1, HEAD, true);
    return g->fwd;
}

const struct weft_params *weft_g_gather_transposed(
    const struct weft_g_gather *g)
{
    return g->sharded ? g->bwd : g->model->bwd;
}
