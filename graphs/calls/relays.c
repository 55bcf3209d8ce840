/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/relays.h"

#include "base/alloc.h"
#include "graphs/calls/tiles.h"

/* What a rank has of a piece that another one owns. */
struct copy {
    struct weft_tile *tile; /* NULL: nothing */
    int64_t version;        /* of the weights in it; 0: only frozen ones */
};

/* The copies of a tile's pieces, of all ranks. */
struct copies {
    int32_t n;
    struct copy *of; /* (pieces, ranks) */
};

/* Of each layer, and of the embedding and the head, blocks and norms. */
enum { NORMS = WEFT_MAX_BLOCKS, N_TILES };
enum { EMBED, HEAD, N_TABLES };

struct weft_g_relays {
    const struct weft_g_model *model;
    int32_t n_ranks;
    int64_t version;       /* of the weights, from 1 on */
    struct copies *copies; /* (n_layers + N_TABLES, N_TILES) */
};

static struct copies *copies_of(const struct weft_g_relays *r,
                                enum weft_tile_kind kind, int32_t layer,
                                int32_t block)
{
    const struct weft_shape *s = &r->model->shape;
    bool norms = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
    if (kind == WEFT_TILE_EMBED)
        /* a tied one's pieces come to the head's relays in the same stage */
        layer = s->n_layers
              + (s->tied && r->model->home.plan.pp == 1 ? HEAD : EMBED);
    else if (kind == WEFT_TILE_HEAD || kind == WEFT_TILE_FINAL)
        layer = s->n_layers + HEAD;
    return &r->copies[layer * N_TILES + (norms ? NORMS : block)];
}

/* ---- Life cycle ---------------------------------------------------------- */

/* The places that gather a tile. */
static struct weft_g_places places_of(const struct weft_g_model *m,
                                      enum weft_tile_kind kind, int32_t layer,
                                      int32_t block)
{
    const struct weft_g_layout *home = &m->home;
    bool is_head = kind == WEFT_TILE_HEAD || kind == WEFT_TILE_FINAL;
    bool norms = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
    int32_t stage = kind == WEFT_TILE_EMBED ? 0
                  : is_head                 ? home->plan.pp - 1
                            : weft_g_layout_stage_of(home, layer);
    return weft_g_layout_places(
        home, stage, norms ? -1 : weft_g_member_of(&m->shape, home, block));
}

static int create(struct weft_g_relays *r, enum weft_tile_kind kind,
                  int32_t layer, int32_t block, struct weft_err *err)
{
    const struct weft_g_model *m = r->model;
    struct copies *all = copies_of(r, kind, layer, block);
    struct weft_g_places places = places_of(m, kind, layer, block);
    struct weft_g_owned_pieces p;
    int rc = 0;
    if (all->of)
        return 0;
    weft_g_owned_pieces_get(m, kind, layer, block, &p);
    size_t n = (size_t) p.n * (size_t) r->n_ranks;
    all->of = weft_alloc(n, sizeof *all->of);
    if (!all->of)
        return weft_err_nomem(err, m->name, n * sizeof *all->of);
    all->n = p.n * r->n_ranks;
    for (int32_t k = 0; k < places.n;) {
        struct weft_range of = weft_g_places_of_rank(m->rt, places, k);
        int32_t rank = weft_rt_place_rank(m->rt, places.at[k]);
        for (int32_t i = 0; i < p.n && !rc; i++) {
            struct copy *copy = &all->of[i * r->n_ranks + rank];
            int32_t at = weft_g_relay(m->rt, p.piece[i].place, places, of);
            struct weft_tile_id id = {
                m->name, "relayed weights", 0, layer, block, at};
            weft_assert(!copy->tile); /* a rank's places follow one another */
            if (at >= 0)
                rc = weft_tile_create(m->rt, &id, WEFT_MEM_WEIGHTS,
                                      weft_tile_bytes(p.tile[i]), &copy->tile,
                                      err);
        }
        k = weft_range_end(of);
    }
    return rc;
}

static int create_all(struct weft_g_relays *r, struct weft_err *err)
{
    const struct weft_shape *s = &r->model->shape;
    int rc = 0;
    for (int32_t l = 0; l < s->n_layers && !rc; l++) {
        for (int32_t b = 0; b < s->n_blocks && !rc; b++)
            rc = create(r, WEFT_TILE_LAYER, l, b, err);
        if (!rc)
            rc = create(r, WEFT_TILE_NORMS, l, 0, err);
    }
    for (int32_t b = 0; b < s->n_blocks && !rc; b++) {
        rc = create(r, WEFT_TILE_EMBED, -1, b, err);
        if (!rc && !s->scalar_head)
            rc = create(r, WEFT_TILE_HEAD, -1, b, err);
    }
    return rc ? rc : create(r, WEFT_TILE_FINAL, -1, 0, err);
}

int weft_g_relays_create(const struct weft_g_model *model,
                         struct weft_g_relays **out, struct weft_err *err)
{
    size_t n = (size_t) (model->shape.n_layers + N_TABLES) * N_TILES;
    struct weft_g_relays *r;
    *out = NULL;
    if (!model->home.plan.hpz)
        return 0;
    r = weft_alloc(1, sizeof *r);
    if (!r)
        return weft_err_nomem(err, model->name, sizeof *r);
    *out = r;
    r->model = model;
    r->version = 1;
    r->n_ranks = model->n_places / model->home.places_per_rank;
    r->copies = weft_alloc(n, sizeof *r->copies);
    if (!r->copies)
        return weft_err_nomem(err, model->name, n * sizeof *r->copies);
    return create_all(r, err);
}

void weft_g_relays_free(struct weft_g_relays *r)
{
    if (!r)
        return;
    int32_t n = (r->model->shape.n_layers + N_TABLES) * N_TILES;
    for (int32_t i = 0; r->copies && i < n; i++) {
        for (int32_t k = 0; k < r->copies[i].n; k++)
            weft_tile_release(r->copies[i].of[k].tile);
        weft_free(r->copies[i].of);
    }
    weft_free(r->copies);
    weft_free(r);
}

/* ---- Use ----------------------------------------------------------------- */

void weft_g_relays_renew(struct weft_g_relays *r)
{
    if (r)
        r->version++;
}

struct weft_tile *weft_g_relays_source(struct weft_g_relays *r,
                                       struct weft_seq *seq,
                                       const struct weft_where *where,
                                       enum weft_tile_kind kind,
                                       int32_t layer, int32_t block,
                                       const struct weft_g_owned_pieces *p,
                                       int32_t i, int32_t place)
{
    if (!r)
        return p->tile[i];
    const struct copies *all = copies_of(r, kind, layer, block);
    int32_t rank = weft_rt_place_rank(r->model->rt, place);
    struct copy *copy = &all->of[i * r->n_ranks + rank];
    bool frozen = i < p->n_frozen;
    if (!copy->tile)
        return p->tile[i];
    if (!frozen && copy->version < r->version)
        weft_insert_copy(seq, where, p->tile[i], copy->tile);
    copy->version = r->version;
    return copy->tile;
}
