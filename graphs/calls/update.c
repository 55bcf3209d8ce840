/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/update_inside.h"

#include "base/alloc.h"

/* ---- Small helpers ----------------------------------------------------- */

int32_t weft_g_sum_stage(const struct weft_g_update *u,
                         const struct weft_g_bundle *b)
{
    return weft_g_is_tied_embed(u, b) ? u->m->home.plan.pp - 1
                                      : weft_g_bundle_stage(u->m, b);
}

static size_t elements_of(const struct weft_g_update *u,
                          enum weft_tile_kind kind, int32_t tp)
{
    const struct weft_g_layout *home = &u->m->home;
    const size_t *before = home->before[WEFT_G_TRAINED][kind];
    struct weft_range range = weft_plan_range(u->m->shape.n_blocks,
                                              home->plan.tp, tp);
    return before[weft_range_end(range)] - before[range.first];
}

/* Which of n devices updates a bundle: bundles in order are divided so that
 * each device has about as many elements. */
static int32_t device_of(const struct weft_g_update *u,
                         const struct weft_g_bundle *b, int32_t n)
{
    const struct weft_g_layout *home = &u->m->home;
    bool tied = u->m->shape.tied;
    int32_t stage = weft_g_sum_stage(u, b);
    int32_t first = home->first_layer[stage];
    size_t layer = elements_of(u, WEFT_TILE_LAYER, b->tp);
    size_t layers = (size_t) (home->first_layer[stage + 1] - first) * layer;
    size_t embed = stage > 0 || tied ? 0
                                     : elements_of(u, WEFT_TILE_EMBED, b->tp);
    size_t head = stage < home->plan.pp - 1
                    ? 0
                    : elements_of(u, WEFT_TILE_HEAD, b->tp);
    size_t all = embed + layers + head, middle = embed + layers + head / 2;
    if (b->group == WEFT_GROUP_LAYER)
        middle = embed + (size_t) (b->layer - first) * layer + layer / 2;
    else if (b->group == WEFT_GROUP_EMBED && !tied)
        middle = embed / 2;
    return middle < all ? (int32_t) (middle * (size_t) n / all) : n - 1;
}

struct weft_where weft_g_update_at(const struct weft_g_update *u,
                                   const struct weft_g_bundle *b,
                                   int32_t stage, int32_t place)
{
    const struct weft_g_layout *home = &u->m->home;
    int32_t n = 0;
    int32_t device[WEFT_G_MAX_DP];
    struct weft_where where = u->pass.where;
    for (int32_t i = 0; i < home->plan.dp; i++) {
        const struct weft_g_member *m = weft_g_layout_member(home, i, stage,
                                                             b->tp);
        if (m->place == place)
            device[n++] = m->device;
    }
    where.device = n > 0 ? device[device_of(u, b, n)] : -1;
    where.layer = b->layer;
    return where;
}

struct weft_where weft_g_update_turn(const struct weft_g_update *u,
                                     const struct weft_g_bundle *b,
                                     int32_t place)
{
    struct weft_where where = weft_g_update_at(u, b, weft_g_sum_stage(u, b),
                                               place);
    struct weft_g_order *order = u->t->order;
    where.position =
        ++order->next[where.device * WEFT_N_CHAINS + where.chain];
    return where;
}

void weft_g_for_each_slot(struct weft_layer_tiles *a,
                          struct weft_layer_tiles *b, weft_g_slot_fn visit,
                          void *arg)
{
    for (int32_t i = 0; i < WEFT_MAX_BLOCKS; i++)
        if (a->block[i])
            visit(arg, &a->block[i], &b->block[i]);
    if (a->norms)
        visit(arg, &a->norms, &b->norms);
}

static void release_slot(void *arg, struct weft_tile **tile,
                         struct weft_tile **unused)
{
    (void) arg;
    (void) unused;
    weft_tile_release(*tile);
}

void weft_g_tiles_release(struct weft_layer_tiles *tiles)
{
    weft_g_for_each_slot(tiles, tiles, release_slot, NULL);
}

bool weft_g_tiles_none(const struct weft_layer_tiles *tiles)
{
    bool any = tiles->norms != NULL;
    for (int32_t b = 0; b < WEFT_MAX_BLOCKS; b++)
        any = any || tiles->block[b];
    return !any;
}

static void copy_slot(void *arg, struct weft_tile **from,
                      struct weft_tile **to)
{
    const struct weft_g_update *u = arg;
    if (*to && *to != *from)
        weft_insert_copy(u->seq, &u->pass.where, *from, *to);
}

void weft_g_copy_tiles(struct weft_g_update *u, struct weft_layer_tiles from,
                       struct weft_layer_tiles to)
{
    weft_g_for_each_slot(&from, &to, copy_slot, u);
}

void weft_g_move_tiles(struct weft_g_update *u, struct weft_layer_tiles from,
                       struct weft_layer_tiles to)
{
    u->pass.where.moves = true;
    weft_g_copy_tiles(u, from, to);
    u->pass.where.moves = false;
}

/* Temporary tiles that are being created. */
struct making {
    struct weft_g_update *u;
    const char *kind;
    enum weft_mem_class mem;
    int32_t layer, place;
};

static void temp_slot(void *arg, struct weft_tile **like,
                      struct weft_tile **out)
{
    const struct making *m = arg;
    *out = weft_g_temp(&m->u->pass, m->kind, m->mem, m->layer,
                       weft_tile_bytes(*like), m->place);
}

struct weft_layer_tiles weft_g_temp_like(struct weft_g_update *u,
                                         const char *kind,
                                         enum weft_mem_class mem,
                                         int32_t layer, int32_t place,
                                         struct weft_layer_tiles like)
{
    struct making m = {u, kind, mem, layer, place};
    struct weft_layer_tiles out = {.norms = NULL};
    weft_g_for_each_slot(&like, &out, temp_slot, &m);
    return out;
}

/* Copies a shard's gradient to temporary tiles at a place. */
static struct weft_layer_tiles copies_at(struct weft_g_update *u,
                                         const struct weft_g_bundle *b,
                                         int32_t place,
                                         struct weft_layer_tiles from)
{
    struct weft_layer_tiles out = weft_g_temp_like(
        u, "gradient", WEFT_MEM_GRADIENTS, b->layer, place, from);
    struct weft_where where = weft_g_update_turn(u, b, place);
    weft_insert_open_group(u->seq, &where, NULL, NULL, &out);
    weft_g_copy_tiles(u, from, out);
    return out;
}

/* ---- The tree over gradient groups ------------------------------------- */

/* Lists the shards of all bundles. Returns false when there is no memory. */
static bool list_owned(struct weft_g_update *u)
{
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_shard shard[WEFT_G_MAX_DP];
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        int32_t n = weft_g_shards(u->m, WEFT_G_TRAINED, &b, shard);
        struct weft_g_owned *more = weft_realloc(
            u->owned, (size_t) (u->n + n), sizeof *more);
        if (!more)
            return false;
        u->owned = more;
        u->first[i] = u->n;
        for (int32_t k = 0; k < n; k++)
            u->owned[u->n++] = (struct weft_g_owned){.shard = shard[k]};
    }
    u->first[u->n_bundles] = u->n;
    return true;
}

int weft_g_update_create(const struct weft_g_train *t, struct weft_seq *seq,
                         struct weft_g_update **out, struct weft_err *err)
{
    const struct weft_g_model *m = t->model;
    size_t n = (size_t) weft_g_n_bundles(m);
    struct weft_g_update *u = weft_alloc(1, sizeof *u);
    if (!u)
        return weft_err_nomem(err, "an update", sizeof *u);
    *u = (struct weft_g_update){
        .t = t,
        .m = m,
        .seq = seq,
        .pass = weft_g_train_pass(t, seq, -1),
        .first = weft_alloc(n + 1, sizeof *u->first),
        .replica = weft_alloc((size_t) m->n_places, sizeof *u->replica),
        .n_nodes = t->grads->n_groups, /* each has groups of its own */
        .n_bundles = (int32_t) n,
    };
    *out = u;
    if (!u->first || !u->replica || !list_owned(u))
        return weft_err_nomem(err, "an update", n * sizeof *u->owned);
    u->node = weft_alloc((size_t) u->n * (size_t) u->n_nodes,
                         sizeof *u->node);
    if (!u->node)
        return weft_err_nomem(err, "an update",
                              (size_t) u->n * sizeof *u->node);
    for (int32_t i = 0; i < u->n; i++)
        u->owned[i].node = u->node + (int64_t) i * u->n_nodes;
    return 0;
}

void weft_g_update_watch(struct weft_g_update *u, struct weft_span *span)
{
    u->pass.where.span = span;
}

void weft_g_update_free(struct weft_g_update *u)
{
    if (!u)
        return;
    for (int32_t i = 0; u->owned && i < u->n; i++) {
        struct weft_g_owned *o = &u->owned[i];
        for (int32_t k = 0; k < o->n; k++)
            if (o->node[k].temp)
                weft_g_tiles_release(&o->node[k].tiles);
        weft_tile_release(o->squares);
    }
    weft_free(u->owned);
    weft_free(u->node);
    weft_free(u->replica);
    weft_free(u->first);
    weft_free(u);
}

void weft_g_update_add(struct weft_g_update *u, int32_t dp, int32_t stage,
                       const struct weft_params *left,
                       const struct weft_params *right)
{
    weft_gang_begin(u->m->rt, "grad_add", NULL);
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        if (weft_g_bundle_stage(u->m, &b) != stage)
            continue;
        struct weft_layer_tiles l = weft_g_bundle_tiles(u->m, &b, left);
        struct weft_layer_tiles r = weft_g_bundle_tiles(u->m, &b, right);
        if (weft_g_tiles_none(&l))
            continue; /* nothing of it is trained */
        struct weft_where where = u->pass.where;
        where.device =
            weft_g_layout_member(&u->m->home, dp, stage, b.tp)->device;
        where.layer = b.layer;
        weft_insert_grad_add(u->seq, &where, &l, &r);
    }
    weft_gang_end(u->m->rt, "grad_add", -1, NULL);
}

/* Adds two siblings of the tree at one place, and releases the right one. */
static struct weft_g_node join(struct weft_g_update *u,
                               const struct weft_g_shard *shard,
                               struct weft_g_node left,
                               struct weft_g_node right)
{
    struct weft_g_node out = left.any ? left : right;
    out.lo = left.lo;
    out.size = 2 * left.size;
    if (left.any && right.any) {
        struct weft_where where = weft_g_update_turn(u, &shard->bundle,
                                                     left.place);
        weft_insert_grad_add(u->seq, &where, &left.tiles, &right.tiles);
        if (right.temp)
            weft_g_tiles_release(&right.tiles);
    }
    return out;
}

/* The number of the i-th node's sibling at its place; -1: none has come. */
static int32_t sibling(const struct weft_g_owned *o, int32_t i)
{
    const struct weft_g_node *a = &o->node[i];
    int32_t lo = a->lo ^ a->size;
    for (int32_t k = 0; k < o->n; k++) {
        const struct weft_g_node *b = &o->node[k];
        if (b->lo == lo && b->size == a->size && b->place == a->place)
            return k;
    }
    return -1;
}

/* Joins the node that came last with its sibling, what comes of them with its
 * own, and so on. */
static void join_last(struct weft_g_update *u, struct weft_g_owned *o)
{
    int32_t k;
    while ((k = sibling(o, o->n - 1)) >= 0) {
        struct weft_g_node last = o->node[--o->n], other = o->node[k];
        o->node[k] = o->node[o->n - 1];
        o->node[o->n - 1] = last.lo < other.lo
                              ? join(u, &o->shard, last, other)
                              : join(u, &o->shard, other, last);
    }
}

/* Joins siblings that have come to one place. */
static void join_all(struct weft_g_update *u, struct weft_g_owned *o)
{
    int32_t n = o->n;
    o->n = 0;
    for (int32_t i = 0; i < n; i++) {
        o->node[o->n++] = o->node[i];
        join_last(u, o);
    }
}

/* Those of places that are of the same rank as one of them. */
static struct weft_range rank_of(const struct weft_g_update *u,
                                 struct weft_g_places places, int32_t place)
{
    int32_t i = 0;
    for (;;) {
        struct weft_range of = weft_g_places_of_rank(u->m->rt, places, i);
        for (; i < weft_range_end(of); i++)
            if (places.at[i] == place)
                return of;
    }
}

void weft_g_update_give(struct weft_g_update *u, int32_t dp, int32_t stage,
                        int32_t lo, int32_t size,
                        const struct weft_params *set, bool reused)
{
    struct weft_g_places places = {0, NULL};
    struct weft_range rank = {0, 0};
    for (int32_t i = 0, tp = -1; i < u->n; i++) {
        struct weft_g_owned *o = &u->owned[i];
        const struct weft_g_bundle *b = &o->shard.bundle;
        if (weft_g_bundle_stage(u->m, b) != stage)
            continue;
        int32_t place =
            weft_g_layout_member(&u->m->home, dp, stage, b->tp)->place;
        if (b->tp != tp) {
            places = weft_g_layout_places(&u->m->home, stage, tp = b->tp);
            rank = rank_of(u, places, place);
        }
        int32_t relay = weft_g_is_tied_embed(u, b)
                          ? -1 /* it is added at places of the head */
                          : weft_g_relay(u->m->rt, o->shard.place, places,
                                         rank);
        struct weft_g_node node = {
            lo,          size,  relay >= 0 ? relay : o->shard.place,
            set != NULL, false, {.norms = NULL}};
        if (set) {
            node.tiles = weft_g_shard_parts(u->m, &o->shard, set);
            node.temp = place != node.place || reused;
            if (node.temp)
                node.tiles = copies_at(u, b, node.place, node.tiles);
        }
        weft_assert(o->n < u->n_nodes);
        o->node[o->n++] = node;
    }
    /* All shards are sent before an addition waits for the first of them. */
    for (int32_t i = 0; i < u->n; i++)
        if (weft_g_bundle_stage(u->m, &u->owned[i].shard.bundle) == stage)
            join_last(u, &u->owned[i]);
}

/* A sum in temporary tiles that is being brought to its shard's owner. */
struct left {
    const struct weft_g_bundle *bundle;
    int32_t place;
    struct weft_layer_tiles tiles;
};

/* When all groups were given, the sums of other ranks come to the owners. Where
 * they were, the next tasks wait until all have come (close_sum()). */
static void bring_sums(struct weft_g_update *u)
{
    size_t n = 0;
    for (int32_t i = 0; i < u->n; i++)
        n += (size_t) u->owned[i].n;
    struct left *left = weft_insert_alloc(n, sizeof *left, "gradients");
    n = 0;
    for (int32_t i = 0; i < u->n; i++) {
        struct weft_g_owned *o = &u->owned[i];
        for (int32_t k = 0; k < o->n; k++) {
            struct weft_g_node *node = &o->node[k];
            if (node->any && node->place != o->shard.place) {
                if (node->temp)
                    left[n++] = (struct left){&o->shard.bundle, node->place,
                                              node->tiles};
                node->tiles = copies_at(u, &o->shard.bundle, o->shard.place,
                                        node->tiles);
                node->temp = true;
            }
            node->place = o->shard.place;
        }
    }
    for (size_t i = 0; i < n; i++) {
        struct weft_where where = weft_g_update_turn(u, left[i].bundle,
                                                     left[i].place);
        weft_insert_open_group(u->seq, &where, NULL, NULL, &left[i].tiles);
        weft_g_tiles_release(&left[i].tiles);
    }
    weft_free(left);
    for (int32_t i = 0; i < u->n; i++)
        join_all(u, &u->owned[i]);
}

/* ---- Norm -------------------------------------------------------------- */

/* The shard of another bundle that the same place owns. */
static struct weft_g_owned *owned_at(struct weft_g_update *u, int32_t bundle,
                                     int32_t place)
{
    int32_t i = u->first[bundle];
    while (u->owned[i].shard.place != place)
        i++;
    weft_assert(i < u->first[bundle + 1]);
    return &u->owned[i];
}

/* Adds the embedding's gradient to the head's; a place owns the same chunks of
 * both. */
static void add_tied(struct weft_g_update *u)
{
    int32_t tp = u->m->home.plan.tp;
    for (int32_t i = 0; u->m->shape.tied && i < u->first[tp]; i++) {
        struct weft_g_owned *embed = &u->owned[i];
        const struct weft_g_bundle *b = &embed->shard.bundle;
        struct weft_g_owned *head = owned_at(u, u->n_bundles - tp + b->tp,
                                             embed->shard.place);
        struct weft_where where = weft_g_update_at(
            u, b, weft_g_sum_stage(u, b), embed->shard.place);
        weft_insert_tied_add(u->seq, &where, &u->m->shape,
                             &embed->shard.chunks, &head->node[0].tiles,
                             &embed->node[0].tiles);
    }
}

static struct weft_tile *small_tile(struct weft_g_update *u, size_t bytes,
                                    int32_t place)
{
    return weft_g_temp(&u->pass, "norm", WEFT_MEM_SAMPLES, -1, bytes, place);
}

/* Sums of squares of a shard's gradient, in a tile at the norm's place. */
static struct weft_tile *squares_of(struct weft_g_update *u,
                                    struct weft_g_owned *o, int32_t place)
{
    const struct weft_g_shard *s = &o->shard;
    struct weft_where where = weft_g_update_turn(u, &s->bundle, s->place);
    int32_t number = s->bundle.group == WEFT_GROUP_EMBED ? 0
                   : s->bundle.group == WEFT_GROUP_HEAD
                       ? u->m->shape.n_layers + 1
                       : s->bundle.layer + 1;
    struct weft_tile *squares = small_tile(
        u, weft_squares_bytes(&u->m->shape, s->bundle.group, &s->chunks),
        s->place);
    weft_insert_sum_squares(u->seq, &where, &u->m->shape, s->bundle.group,
                            number, &s->chunks, &o->node[0].tiles, squares);
    if (s->place == place)
        return squares;
    struct weft_tile *copy = weft_g_copy_to(u->seq, &where, u->m->rt, squares,
                                            WEFT_MEM_SAMPLES, "norm", place);
    weft_tile_release(squares);
    return copy;
}

/* The gradient norm, in a tile at the first device's place. A tied embedding's
 * gradient is part of the head's. */
static struct weft_tile *norm_of(struct weft_g_update *u)
{
    const struct weft_g_member *first = &u->m->home.member[0];
    int32_t skip = u->m->shape.tied ? u->first[u->m->home.plan.tp] : 0;
    struct weft_tile *norm = small_tile(u, sizeof(struct weft_grad_norm),
                                        first->place);
    size_t n = (size_t) (u->n - skip);
    struct weft_tile **squares = weft_insert_alloc(n, sizeof *squares,
                                                   "a norm");
    for (int32_t i = skip; i < u->n; i++)
        u->owned[i].squares = squares_of(u, &u->owned[i], first->place);
    for (size_t i = 0; i < n; i++)
        squares[i] = u->owned[(size_t) skip + i].squares;
    struct weft_where where = u->pass.where;
    where.device = first->device;
    weft_insert_grad_norm(u->seq, &where, &u->m->shape, u->t->grad_clip,
                          (int32_t) n, squares,
                          weft_g_copy_at(u->t->copies, u->seq, &where,
                                         u->t->loss.gate, first->place),
                          norm);
    weft_free(squares);
    return norm;
}

/* Where a sum lies in temporary tiles, the owner's next tasks wait until all
 * places have copied it, so that it is released before the next step allocates
 * its own. */
static void close_sum(struct weft_g_update *u, struct weft_g_owned *o)
{
    const struct weft_g_bundle *b = &o->shard.bundle;
    struct weft_g_node *sum = &o->node[0];
    if (!sum->temp || weft_g_bundle_places(u->m, b).n == 1)
        return;
    struct weft_where where = weft_g_update_turn(u, b, o->shard.place);
    weft_insert_open_group(u->seq, &where, NULL, NULL, &sum->tiles);
}

struct weft_tile *weft_g_update_finish(struct weft_g_update *u)
{
    bring_sums(u);
    for (int32_t i = 0; i < u->n; i++)
        weft_assert(u->owned[i].n == 1 && u->owned[i].node[0].any);
    add_tied(u);
    struct weft_tile *norm = norm_of(u);
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        if (!weft_g_is_tied_embed(u, &b))
            weft_g_update_weights(u, i, norm);
    }
    for (int32_t i = 0; i < u->n && u->m->home.plan.zero == 0; i++)
        if (!weft_g_is_tied_embed(u, &u->owned[i].shard.bundle))
            close_sum(u, &u->owned[i]);
    return norm;
}
