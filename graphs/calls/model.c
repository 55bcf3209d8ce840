/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "graphs/calls/shard.h"
#include "graphs/calls/tiles.h"
#include "plan/shares.h"

/* What a set of parameter-shaped tiles is for. */
enum use {
    USE_FWD,
    USE_FROZEN, /* what ZeRO 3 divides beside USE_FWD, which adapters are */
    USE_BWD,
    USE_OPT,
    USE_GRAD,
    USE_HOST,
    USE_MASTER,
    USE_HOST_MASTER,
    USE_HOST_OPT /* in USE_OPT's place where the state is offloaded */
};

static const enum weft_mem_class class_of[] = {
    WEFT_MEM_WEIGHTS,   WEFT_MEM_WEIGHTS,   WEFT_MEM_WEIGHTS,
    WEFT_MEM_OPTIMIZER, WEFT_MEM_GRADIENTS, WEFT_MEM_HOST,
    WEFT_MEM_OPTIMIZER, WEFT_MEM_HOST,      WEFT_MEM_HOST};

/* Whether a rank's places share one tile. */
static bool on_host(enum use use)
{
    return use == USE_HOST || use == USE_HOST_MASTER;
}

/* The kind whose size a tile has. The table of a tied embedding is made from
 * the head; where the head is another place's, it is copied into the table
 * first, so the table has room for the head's padding. */
static enum weft_tile_kind room_of(const struct weft_shape *shape,
                                   enum weft_tile_kind kind)
{
    return shape->tied && kind == WEFT_TILE_EMBED ? WEFT_TILE_HEAD : kind;
}

/* chunks NULL: a whole tile. */
static size_t use_bytes(const struct weft_shape *shape, enum use use,
                        enum weft_tile_kind kind, int32_t block,
                        const struct weft_range *chunks)
{
    struct weft_layout l;
    bool published = use == USE_FWD || use == USE_FROZEN || use == USE_HOST;
    weft_layout_get(shape, published ? room_of(shape, kind) : kind, block,
                    &l);
    struct weft_range all = {0, weft_layout_n_chunks(&l)};
    bool state = use == USE_OPT || use == USE_HOST_OPT || use == USE_GRAD;
    struct weft_range some = chunks ? *chunks
                           : state  ? weft_layout_trained(&l)
                                    : all;
    size_t begin = weft_layout_chunk(&l, some.first);
    size_t end = weft_layout_chunk(&l, weft_range_end(some));
    switch (use) {
    case USE_FWD:
    case USE_FROZEN:
    case USE_HOST:
        return weft_layout_chunk_byte(&l, shape->dtype, weft_range_end(some))
             - weft_layout_chunk_byte(&l, shape->dtype, some.first);
    case USE_BWD:
        return l.bwd_bytes;
    case USE_OPT:
    case USE_HOST_OPT:
        return shape->tied && kind == WEFT_TILE_EMBED
                 ? 0
                 : weft_opt_bytes(shape, kind, end - begin);
    case USE_MASTER:
    case USE_HOST_MASTER:
        return weft_master_apart(shape, kind) ? (end - begin) * sizeof(float)
                                              : 0;
    default:
        return (end - begin) * sizeof(float);
    }
}

size_t weft_g_fwd_bytes(const struct weft_shape *shape,
                        enum weft_tile_kind kind, int32_t block)
{
    return use_bytes(shape, USE_FWD, kind, block, NULL);
}

/* ---- Bundles ---------------------------------------------------------- */

static int32_t n_bundles(const struct weft_shape *s,
                         const struct weft_g_layout *home)
{
    return (s->n_layers + 2) * home->plan.tp;
}

static struct weft_g_bundle bundle_get(const struct weft_shape *s,
                                       const struct weft_g_layout *home,
                                       int32_t i)
{
    int32_t group = i / home->plan.tp;
    return (struct weft_g_bundle){
        .group = group == 0               ? WEFT_GROUP_EMBED
               : group == s->n_layers + 1 ? WEFT_GROUP_HEAD
                                          : WEFT_GROUP_LAYER,
        .layer = group == 0 || group == s->n_layers + 1 ? -1 : group - 1,
        .tp = i % home->plan.tp,
    };
}

static int32_t bundle_stage(const struct weft_g_layout *home,
                            const struct weft_g_bundle *b)
{
    return b->group == WEFT_GROUP_EMBED ? 0
         : b->group == WEFT_GROUP_HEAD
             ? home->plan.pp - 1
             : weft_g_layout_stage_of(home, b->layer);
}

int32_t weft_g_n_bundles(const struct weft_g_model *m)
{
    return n_bundles(&m->shape, &m->home);
}

struct weft_g_bundle weft_g_bundle_get(const struct weft_g_model *m,
                                       int32_t i)
{
    return bundle_get(&m->shape, &m->home, i);
}

int32_t weft_g_bundle_stage(const struct weft_g_model *m,
                            const struct weft_g_bundle *b)
{
    return bundle_stage(&m->home, b);
}

struct weft_g_places weft_g_bundle_places(const struct weft_g_model *m,
                                          const struct weft_g_bundle *b)
{
    return weft_g_layout_places(&m->home, bundle_stage(&m->home, b), b->tp);
}

struct weft_layer_tiles weft_g_bundle_tiles(const struct weft_g_model *m,
                                            const struct weft_g_bundle *b,
                                            const struct weft_params *p)
{
    const struct weft_layer_tiles *all = b->group == WEFT_GROUP_LAYER
                                           ? &p->layer[b->layer]
                                           : &p->head;
    bool embeds = b->group == WEFT_GROUP_EMBED;
    struct weft_tile *const *block = embeds ? p->embed : all->block;
    struct weft_layer_tiles out = {.norms = b->tp == 0 && !embeds ? all->norms
                                                                  : NULL};
    struct weft_range range = weft_plan_range(m->shape.n_blocks,
                                              m->home.plan.tp, b->tp);
    for (int32_t i = range.first; i < range.first + range.n; i++)
        out.block[i] = block[i];
    return out;
}

/* ---- Who holds what --------------------------------------------------- */

/* Calls visit for the tiles of a bundle at one place, with or without the
 * group's norms. With a shard: for the parts of the tiles that it owns. */
static int visit_bundle(const struct weft_shape *s,
                        const struct weft_g_layout *home,
                        const struct weft_g_bundle *b, int32_t place,
                        bool norms, const struct weft_g_shard *shard,
                        weft_g_tile_fn visit, void *arg)
{
    static const enum weft_tile_kind block_kind[] = {
        WEFT_TILE_LAYER, WEFT_TILE_EMBED, WEFT_TILE_HEAD};
    struct weft_range range = weft_plan_range(s->n_blocks, home->plan.tp,
                                              b->tp);
    bool blocks = !(s->scalar_head && b->group == WEFT_GROUP_HEAD);
    const struct weft_range *chunks = NULL;
    int rc = 0;
    for (int32_t i = range.first; i < weft_range_end(range) && !rc && blocks;
         i++) {
        chunks = shard ? &shard->chunks.of[i] : NULL;
        if (!chunks || chunks->n > 0)
            rc = visit(arg, place, block_kind[b->group], b->layer, i, chunks);
    }
    chunks = shard ? &shard->chunks.of[WEFT_MAX_BLOCKS] : NULL;
    if (rc || b->group == WEFT_GROUP_EMBED || !norms
        || (chunks && chunks->n == 0))
        return rc;
    return visit(arg, place,
                 b->group == WEFT_GROUP_HEAD ? WEFT_TILE_FINAL
                                             : WEFT_TILE_NORMS,
                 b->layer, 0, chunks);
}

/* Whether bundle b is the first of its group at the place. As published norms
 * are at every member's place, they are visited with that bundle. */
static bool is_first_at(const struct weft_g_layout *home,
                        const struct weft_g_bundle *b, int32_t place)
{
    for (int32_t k = 0; k < b->tp; k++) {
        struct weft_g_places other = weft_g_layout_places(
            home, bundle_stage(home, b), k);
        for (int32_t i = 0; i < other.n; i++)
            if (other.at[i] == place)
                return false;
    }
    return true;
}

/* Visits the shards of a bundle, each at its owner's place. */
static int visit_shards(const struct weft_shape *s,
                        const struct weft_g_layout *home, enum weft_g_row row,
                        const struct weft_g_bundle *b, weft_g_tile_fn visit,
                        void *arg)
{
    const struct weft_g_model model = {.shape = *s, .home = *home};
    struct weft_g_shard shard[WEFT_G_MAX_DP];
    int32_t n = weft_g_shards(&model, row, b, shard);
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = visit_bundle(s, home, b, shard[i].place, b->tp == 0, &shard[i],
                          visit, arg);
    return rc;
}

/* Whether an earlier one of n places is of the same rank as place[n]. */
static bool has_rank(const struct weft_g_layout *home, const int32_t *place,
                     int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        if (place[k] / home->places_per_rank
            == place[n] / home->places_per_rank)
            return true;
    return false;
}

/* Visits every tile of a use at every place once. With ZeRO 3 there are no
 * transposes and tied tables, which are made whenever they are read. The
 * host's tiles are at the first place of a rank that needs them, for all of
 * its places. */
static int for_each_tile(const struct weft_shape *s,
                         const struct weft_g_layout *home, enum use use,
                         weft_g_tile_fn visit, void *arg)
{
    int32_t zero = home->plan.zero, rc = 0;
    bool state = use == USE_OPT || use == USE_HOST_OPT;
    bool sharded = zero >= (state ? 1 : 3);
    if (sharded && use == USE_BWD)
        return 0;
    for (int32_t i = 0; i < n_bundles(s, home) && !rc; i++) {
        struct weft_g_bundle b = bundle_get(s, home, i);
        if (sharded && s->tied && b.group == WEFT_GROUP_EMBED)
            continue;
        if (sharded) {
            rc = visit_shards(
                s, home, use == USE_FROZEN ? WEFT_G_FROZEN : WEFT_G_TRAINED,
                &b, visit, arg);
            continue;
        }
        struct weft_g_places place = weft_g_layout_places(
            home, bundle_stage(home, &b), b.tp);
        for (int32_t k = 0; k < place.n && !rc; k++) {
            bool norms = b.tp == 0
                      || ((use == USE_FWD || use == USE_HOST)
                          && is_first_at(home, &b, place.at[k]));
            if (on_host(use) && has_rank(home, place.at, k))
                continue;
            rc = visit_bundle(s, home, &b, place.at[k], norms, NULL, visit,
                              arg);
        }
    }
    return rc;
}

int weft_g_home_visit(const struct weft_shape *shape,
                      const struct weft_g_layout *home, weft_g_tile_fn visit,
                      void *arg)
{
    return for_each_tile(shape, home, USE_FWD, visit, arg);
}

/* ---- Creating --------------------------------------------------------- */

struct weft_tile **weft_g_params_slot(struct weft_params *p,
                                      enum weft_tile_kind kind, int32_t layer,
                                      int32_t block)
{
    switch (kind) {
    case WEFT_TILE_EMBED:
        return &p->embed[block];
    case WEFT_TILE_HEAD:
        return &p->head.block[block];
    case WEFT_TILE_FINAL:
        return &p->head.norms;
    case WEFT_TILE_NORMS:
        return &p->layer[layer].norms;
    default:
        return &p->layer[layer].block[block];
    }
}

struct weft_tile *weft_g_params_tile(const struct weft_params *p,
                                     enum weft_tile_kind kind, int32_t layer,
                                     int32_t block)
{
    bool layers = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_LAYER;
    if (layers && !p->layer)
        return NULL;
    return *weft_g_params_slot((struct weft_params *) (uintptr_t) p, kind,
                               layer, block);
}

struct creation {
    const struct weft_g_model *model;
    enum use use;
    struct weft_params *at; /* (n_places), or one for all places */
    bool one;
    struct weft_err *err;
};

/* Cuts a whole tile into the pieces of its owners. */
static int cut(const struct creation *c, struct weft_tile *tile,
               enum weft_tile_kind kind, int32_t layer, int32_t block)
{
    const struct weft_shape *shape = &c->model->shape;
    const struct weft_g_layout *home = &c->model->home;
    struct weft_g_piece piece[WEFT_G_MAX_DP];
    size_t at[WEFT_G_MAX_DP];
    int32_t n = 1;
    if (c->use == USE_FWD && c->model->trained) {
        n = weft_g_published_cut(shape, home, kind, layer, block, at);
    } else if (c->use == USE_GRAD) {
        n = weft_g_pieces(shape, home, WEFT_G_TRAINED, kind, layer, block,
                          piece);
        weft_g_pieces_cut(shape, kind, block, false, n, piece, at);
    }
    return weft_tile_cut(tile, n, at, c->err);
}

static int create(void *arg, int32_t place, enum weft_tile_kind kind,
                  int32_t layer, int32_t block,
                  const struct weft_range *chunks)
{
    static const char *const name[] = {"weights",
                                       "frozen weights",
                                       "transposed weights",
                                       "optimizer state",
                                       "gradient",
                                       "weights on the host",
                                       "master weights",
                                       "master weights on the host",
                                       "optimizer state on the host"};
    const struct creation *c = arg;
    size_t bytes = use_bytes(&c->model->shape, c->use, kind, block, chunks);
    struct weft_tile_id id = {c->model->name, name[c->use], 0,
                              layer,          block,        place};
    struct weft_tile **slot = weft_g_params_slot(
        c->one ? c->at : &c->at[place], kind, layer, block);
    if (bytes == 0)
        return 0;
    int rc = weft_tile_create(c->model->rt, &id, class_of[c->use], bytes,
                              slot, c->err);
    return rc || chunks ? rc : cut(c, *slot, kind, layer, block);
}

static int layers_alloc(const struct weft_g_model *m, struct weft_params *p,
                        struct weft_err *err)
{
    size_t n = (size_t) m->shape.n_layers;
    *p = (struct weft_params){0};
    p->layer = weft_alloc(n, sizeof *p->layer);
    return p->layer ? 0 : weft_err_nomem(err, m->name, n * sizeof *p->layer);
}

static void params_release(const struct weft_shape *shape,
                           struct weft_params *p)
{
    for (int32_t b = 0; b < shape->n_blocks; b++) {
        weft_tile_release(p->embed[b]);
        weft_tile_release(p->head.block[b]);
        for (int32_t l = 0; p->layer && l < shape->n_layers; l++)
            weft_tile_release(p->layer[l].block[b]);
    }
    for (int32_t l = 0; p->layer && l < shape->n_layers; l++)
        weft_tile_release(p->layer[l].norms);
    weft_tile_release(p->head.norms);
    weft_free(p->layer);
    *p = (struct weft_params){0};
}

int weft_g_params_create(const struct weft_g_model *m,
                         struct weft_params **out, struct weft_err *err)
{
    size_t n = (size_t) m->n_places;
    *out = weft_alloc(n, sizeof **out);
    if (!*out)
        return weft_err_nomem(err, m->name, n * sizeof **out);
    int rc = 0;
    for (int32_t p = 0; p < m->n_places && !rc; p++)
        rc = layers_alloc(m, &(*out)[p], err);
    return rc;
}

static int use_init(struct weft_g_model *m, enum use use,
                    struct weft_params **out, struct weft_err *err)
{
    int rc = weft_g_params_create(m, out, err);
    struct creation c = {m, use, *out, false, err};
    return rc ? rc : for_each_tile(&m->shape, &m->home, use, create, &c);
}

/* All but the tiles. */
static int model_begin(struct weft_rt *rt, const char *name,
                       const struct weft_shape *shape, bool trained,
                       const struct weft_g_layout *home,
                       struct weft_g_model *out, struct weft_err *err)
{
    *out = (struct weft_g_model){.rt = rt,
                                 .name = name,
                                 .shape = *shape,
                                 .trained = trained,
                                 .n_places = weft_rt_n_places(rt)};
    size_t n = (size_t) out->n_places;
    int rc = weft_g_layout_copy(home, &out->home, err);
    if (!trained)
        out->home.plan.zero = 0;
    out->given_back = weft_alloc(n, sizeof(struct weft_tile *));
    if (!rc && shape->lora_rank > 0 && out->home.plan.zero < 3)
        rc = weft_g_params_create(out, &out->resident, err);
    return rc || out->given_back
             ? rc
             : weft_err_nomem(err, name, n * sizeof(struct weft_tile *));
}

int weft_g_model_init(struct weft_rt *rt, const char *name,
                      const struct weft_shape *shape, bool trained,
                      const struct weft_g_layout *home,
                      struct weft_g_model *out, struct weft_err *err)
{
    int rc = model_begin(rt, name, shape, trained, home, out, err);
    if (!rc)
        rc = use_init(out, USE_FWD, &out->fwd, err);
    if (!rc && shape->lora_rank > 0 && out->home.plan.zero >= 3)
        rc = use_init(out, USE_FROZEN, &out->frozen, err);
    if (!rc && trained)
        rc = use_init(out, USE_BWD, &out->bwd, err);
    if (!rc && trained)
        rc = use_init(out, home->plan.offload ? USE_HOST_OPT : USE_OPT,
                      &out->opt, err);
    return rc;
}

int weft_g_model_share(const struct weft_g_model *trunk, const char *name,
                       const struct weft_shape *shape,
                       const struct weft_g_layout *home,
                       struct weft_g_model *out, struct weft_err *err)
{
    weft_assert(trunk->resident);
    int rc = model_begin(trunk->rt, name, shape, false, home, out, err);
    out->trunk = trunk;
    return rc ? rc : weft_g_params_create(out, &out->fwd, err);
}

int weft_g_host_init(struct weft_rt *rt, const char *name,
                     const struct weft_shape *shape,
                     const struct weft_g_layout *home,
                     struct weft_g_model *out, struct weft_err *err)
{
    int rc = model_begin(rt, name, shape, false, home, out, err);
    return rc ? rc : use_init(out, USE_HOST, &out->fwd, err);
}

int weft_g_masters_init(struct weft_g_model *model, bool host,
                        struct weft_err *err)
{
    return use_init(model, host ? USE_HOST_MASTER : USE_MASTER,
                    &model->master, err);
}

void weft_g_model_release(struct weft_g_model *m)
{
    struct weft_params *use[] = {m->fwd,    m->bwd,      m->opt,
                                 m->master, m->resident, m->frozen};
    for (size_t i = 0; i < WEFT_COUNT(use); i++) {
        for (int32_t p = 0; use[i] && p < m->n_places; p++)
            params_release(&m->shape, &use[i][p]);
        weft_free(use[i]);
    }
    for (int32_t p = 0; m->given_back && p < m->n_places; p++)
        weft_tile_release(m->given_back[p]);
    weft_free(m->given_back);
    m->given_back = NULL;
    weft_g_layout_release(&m->home);
    m->fwd = m->bwd = m->opt = m->master = m->resident = m->frozen = NULL;
}

/* ---- Gradients -------------------------------------------------------- */

int32_t weft_g_grads_needed(struct weft_range mine)
{
    int32_t most = 0, held = 0;
    /* Sets are joined as a binary counter counts the replica's leaves: the
     * right one of two siblings is free again after it is added to the left
     * one. */
    for (int32_t g = mine.first; g < mine.first + mine.n; g++) {
        held++;
        most = held > most ? held : most;
        for (int32_t size = 1;
             (g + 1) % (2 * size) == 0 && g + 1 - 2 * size >= mine.first;
             size *= 2)
            held--;
    }
    return most;
}

/* Visits every tile of one replica's gradient set. */
static int for_each_gradient(const struct weft_shape *s,
                             const struct weft_g_layout *home, int32_t d,
                             weft_g_tile_fn visit, void *arg)
{
    int rc = 0;
    for (int32_t i = 0; i < n_bundles(s, home) && !rc; i++) {
        struct weft_g_bundle b = bundle_get(s, home, i);
        const struct weft_g_member *m = weft_g_layout_member(
            home, d, bundle_stage(home, &b), b.tp);
        rc = visit_bundle(s, home, &b, m->place, b.tp == 0, NULL, visit, arg);
    }
    return rc;
}

static int32_t n_sets(const struct weft_g_layout *home, int32_t n_groups,
                      int32_t d)
{
    return home->plan.zero >= 2
             ? 1
             : weft_g_grads_needed(weft_plan_share(&home->plan, n_groups, d));
}

int weft_g_grads_init(const struct weft_g_model *model, int32_t n_groups,
                      struct weft_g_grads *out, struct weft_err *err)
{
    int32_t dp = model->home.plan.dp;
    int rc = 0;
    *out = (struct weft_g_grads){
        .n_groups = n_groups,
        .dp = dp,
        .n_sets = weft_alloc((size_t) dp, sizeof *out->n_sets),
        .set = weft_alloc((size_t) dp, sizeof *out->set)};
    if (!out->n_sets || !out->set)
        return weft_err_nomem(err, "gradients", (size_t) dp * 16);
    for (int32_t d = 0; d < dp && !rc; d++) {
        int32_t n = n_sets(&model->home, n_groups, d);
        out->set[d] = weft_alloc((size_t) n, sizeof *out->set[d]);
        if (!out->set[d])
            return weft_err_nomem(err, "gradients",
                                  (size_t) n * sizeof *out->set[d]);
        for (int32_t i = 0; i < n && !rc; i++) {
            struct creation c = {model, USE_GRAD, &out->set[d][i], true, err};
            out->n_sets[d]++;
            rc = layers_alloc(model, &out->set[d][i], err);
            if (!rc)
                rc = for_each_gradient(&model->shape, &model->home, d, create,
                                       &c);
        }
    }
    return rc;
}

void weft_g_grads_release(const struct weft_g_model *model,
                          struct weft_g_grads *grads)
{
    for (int32_t d = 0; grads->set && grads->n_sets && d < grads->dp; d++) {
        for (int32_t i = 0; i < grads->n_sets[d]; i++)
            params_release(&model->shape, &grads->set[d][i]);
        weft_free(grads->set[d]);
    }
    weft_free(grads->n_sets);
    weft_free(grads->set);
    *grads = (struct weft_g_grads){0};
}
