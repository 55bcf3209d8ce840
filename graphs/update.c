/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/update.h"

#include "base/alloc.h"

/* The sum over groups lo .. lo + size - 1 of a bundle, at its owner. */
struct node {
    int32_t lo, size;
    bool any;  /* false: no samples, a sum of nothing */
    bool temp; /* tiles are ours */
    struct weft_layer_tiles tiles;
};

enum { MAX_NODES = WEFT_G_MAX_DP + 8 };

struct pending {
    int32_t n;
    struct node node[MAX_NODES];
};

struct weft_g_update {
    const struct weft_g_train *t;
    const struct weft_g_model *m;
    struct weft_seq *seq;
    struct weft_g_pass pass;
    struct pending *pending;    /* (n_bundles) */
    struct weft_tile **partial; /* (n_bundles) sums of squares */
    int32_t n_bundles;
};

/* ---- Small helpers ----------------------------------------------------------- */

static bool is_tied_embed(const struct weft_g_update *u,
                          const struct weft_g_bundle *b)
{
    return b->group == WEFT_GROUP_EMBED && u->m->shape.tied;
}

/* Tiles of a place are a bundle's work on one of its replicas' devices. */
static struct weft_where where_at(const struct weft_g_update *u,
                                  const struct weft_g_bundle *b,
                                  int32_t place)
{
    const struct weft_g_layout *home = &u->m->home;
    int32_t n = 0, pick, stage = weft_g_bundle_stage(u->m, b);
    if (is_tied_embed(u, b)) /* it is summed where the head is */
        stage = home->plan.pp - 1;
    int32_t device[WEFT_G_MAX_DP];
    struct weft_where where = u->pass.where;
    for (int32_t i = 0; i < home->plan.dp; i++) {
        const struct weft_g_member *m = weft_g_layout_member(home, i, stage,
                                                             b->tp);
        if (m->place == place)
            device[n++] = m->device;
    }
    pick = b->layer + 2;
    where.device = n > 0 ? device[pick % n] : -1;
    where.layer = b->layer;
    return where;
}

/* The same in the device's order, which bounds how many copies wait there. */
static struct weft_where turn_at(const struct weft_g_update *u,
                                 const struct weft_g_bundle *b, int32_t place)
{
    struct weft_where where = where_at(u, b, place);
    struct weft_g_order *order = u->t->order;
    where.position =
        ++order->next[where.device * WEFT_N_CHAINS + where.chain];
    return where;
}

typedef void (*tile_fn)(void *arg, struct weft_tile **a,
                        struct weft_tile **b);

/* Calls visit for every slot of a, with b's of the same place in it. */
static void for_each_slot(struct weft_layer_tiles *a,
                          struct weft_layer_tiles *b, tile_fn visit,
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

static void tiles_release(struct weft_layer_tiles *tiles)
{
    for_each_slot(tiles, tiles, release_slot, NULL);
}

static void copy_slot(void *arg, struct weft_tile **from,
                      struct weft_tile **to)
{
    const struct weft_g_update *u = arg;
    struct weft_where where = u->pass.where;
    if (*to)
        weft_insert_copy(u->seq, &where, *from, *to);
}

/* Tiles of one place to the same of another, where it has them. */
static void copy_tiles(struct weft_g_update *u, struct weft_layer_tiles from,
                       struct weft_layer_tiles to)
{
    for_each_slot(&from, &to, copy_slot, u);
}

/* Temporary tiles while they are made. */
struct making {
    struct weft_g_update *u;
    int32_t place, n;
    struct weft_tile *tile[WEFT_MAX_BLOCKS + 1];
};

static void gradient_slot(void *arg, struct weft_tile **like,
                          struct weft_tile **out)
{
    struct making *m = arg;
    *out = weft_g_temp(&m->u->pass, "gradient", WEFT_MEM_GRADIENTS, -1,
                       weft_tile_bytes(*like), m->place);
    m->tile[m->n++] = *out;
}

static void list_slot(void *arg, struct weft_tile **tile,
                      struct weft_tile **unused)
{
    struct making *m = arg;
    (void) unused;
    m->tile[m->n++] = *tile;
}

/* Copies of a bundle's gradient at its owner's. */
static struct weft_layer_tiles copies_at(struct weft_g_update *u,
                                         const struct weft_g_bundle *b,
                                         struct weft_layer_tiles *from,
                                         int32_t owner)
{
    struct making m = {.u = u, .place = owner};
    struct weft_layer_tiles out = {{NULL}, NULL};
    for_each_slot(from, &out, gradient_slot, &m);
    struct weft_where where = turn_at(u, b, owner);
    weft_insert_open(u->seq, &where, NULL, m.n, m.tile);
    copy_tiles(u, *from, out);
    return out;
}

/* ---- The tree over gradient groups -------------------------------------------- */

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
        .pass = {.rt = m->rt,
                 .seq = seq,
                 .name = m->name,
                 .shape = &m->shape,
                 .where = {.device = -1,
                           .priority = t->priority,
                           .call = t->call,
                           .chain = t->chain,
                           .iteration = t->iteration,
                           .micro_batch = -1,
                           .layer = -1}},
        .pending = weft_alloc(n, sizeof *u->pending),
        .partial = weft_alloc(n, sizeof *u->partial),
        .n_bundles = (int32_t) n,
    };
    *out = u;
    return u->pending && u->partial
             ? 0
             : weft_err_nomem(err, "an update", n * sizeof *u->pending);
}

void weft_g_update_watch(struct weft_g_update *u, struct weft_span *span)
{
    u->pass.where.span = span;
}

void weft_g_update_free(struct weft_g_update *u)
{
    if (!u)
        return;
    for (int32_t i = 0; i < u->n_bundles; i++) {
        for (int32_t k = 0; u->pending && k < u->pending[i].n; k++)
            if (u->pending[i].node[k].temp)
                tiles_release(&u->pending[i].node[k].tiles);
        if (u->partial)
            weft_tile_release(u->partial[i]);
    }
    weft_free(u->pending);
    weft_free(u->partial);
    weft_free(u);
}

void weft_g_update_add(struct weft_g_update *u, int32_t dp, int32_t stage,
                       const struct weft_params *left,
                       const struct weft_params *right)
{
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        if (weft_g_bundle_stage(u->m, &b) != stage)
            continue;
        struct weft_layer_tiles l = weft_g_bundle_tiles(u->m, &b, left);
        struct weft_layer_tiles r = weft_g_bundle_tiles(u->m, &b, right);
        struct weft_where where = u->pass.where;
        where.device =
            weft_g_layout_member(&u->m->home, dp, stage, b.tp)->device;
        where.layer = b.layer;
        weft_insert_grad_add(u->seq, &where, &l, &r);
    }
}

/* left + right, siblings; the right one goes. */
static struct node join(struct weft_g_update *u,
                        const struct weft_g_bundle *b, struct node left,
                        struct node right)
{
    struct node out = left.any ? left : right;
    out.lo = left.lo;
    out.size = 2 * left.size;
    if (left.any && right.any) {
        struct weft_where where = turn_at(u, b, weft_g_bundle_owner(u->m, b));
        weft_insert_grad_add(u->seq, &where, &left.tiles, &right.tiles);
        if (right.temp)
            tiles_release(&right.tiles);
    }
    return out;
}

/* Joins siblings as long as there are any. */
static void settle(struct weft_g_update *u, const struct weft_g_bundle *b,
                   struct pending *p)
{
    for (int32_t i = 0; i < p->n; i++)
        for (int32_t k = 0; k < p->n; k++) {
            struct node *l = &p->node[i], *r = &p->node[k];
            if (l->size != r->size || l->lo + l->size != r->lo
                || l->lo % (2 * l->size) != 0)
                continue;
            *l = join(u, b, *l, *r);
            p->node[k] = p->node[--p->n];
            i = k = -1;
            break;
        }
}

void weft_g_update_give(struct weft_g_update *u, int32_t dp, int32_t stage,
                        int32_t lo, int32_t size,
                        const struct weft_params *set, bool reused)
{
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        struct pending *p = &u->pending[i];
        if (weft_g_bundle_stage(u->m, &b) != stage)
            continue;
        struct node node = {lo, size, set != NULL, false, {{NULL}, NULL}};
        int32_t owner = weft_g_bundle_owner(u->m, &b);
        int32_t place =
            weft_g_layout_member(&u->m->home, dp, stage, b.tp)->place;
        if (set) {
            node.tiles = weft_g_bundle_tiles(u->m, &b, set);
            node.temp = place != owner || reused;
            if (node.temp)
                node.tiles = copies_at(u, &b, &node.tiles, owner);
        }
        weft_assert(p->n < MAX_NODES);
        p->node[p->n++] = node;
    }
    /* All bundles are on their way before the first is waited for. */
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        if (weft_g_bundle_stage(u->m, &b) == stage)
            settle(u, &b, &u->pending[i]);
    }
}

/* ---- Norm --------------------------------------------------------------------- */

/* The embedding's gradient is added to the head's, at one owner. */
static void add_tied(struct weft_g_update *u)
{
    int32_t tp = u->m->home.plan.tp;
    for (int32_t k = 0; k < tp && u->m->shape.tied; k++) {
        int32_t i = u->n_bundles - tp + k;
        struct weft_g_bundle head = weft_g_bundle_get(u->m, i);
        struct weft_where where = where_at(u, &head,
                                           weft_g_bundle_owner(u->m, &head));
        weft_insert_tied_add(u->seq, &where, &u->m->shape,
                             &u->pending[i].node[0].tiles,
                             &u->pending[k].node[0].tiles);
    }
}

static struct weft_tile *small_tile(struct weft_g_update *u, size_t bytes,
                                    int32_t place)
{
    return weft_g_temp(&u->pass, "norm", WEFT_MEM_SAMPLES, -1, bytes, place);
}

/* The norm, at the first device's place. */
static struct weft_tile *norm_of(struct weft_g_update *u)
{
    const struct weft_g_member *first = &u->m->home.member[0];
    int32_t tp = u->m->home.plan.tp, skip = u->m->shape.tied ? tp : 0;
    struct weft_tile *norm = small_tile(u, sizeof(struct weft_grad_norm),
                                        first->place);
    for (int32_t i = skip; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        int32_t owner = weft_g_bundle_owner(u->m, &b);
        struct weft_where where = turn_at(u, &b, owner);
        struct weft_tile *partial = small_tile(
            u, WEFT_SQUARES * sizeof(double), owner);
        weft_insert_sum_squares(u->seq, &where, &u->m->shape, b.group,
                                &u->pending[i].node[0].tiles, partial);
        u->partial[i] = partial;
        if (owner == first->place || !partial)
            continue;
        u->partial[i] = weft_g_copy_to(u->seq, &where, u->m->rt, partial,
                                       WEFT_MEM_SAMPLES, "norm",
                                       first->place);
        weft_tile_release(partial);
    }
    struct weft_where where = u->pass.where;
    where.device = first->device;
    weft_insert_grad_norm(u->seq, &where, u->t->grad_clip,
                          (u->n_bundles - skip) / tp, tp, u->partial + skip,
                          norm);
    return norm;
}

/* ---- AdamW ---------------------------------------------------------------------- */

static struct weft_layer_tiles blocks_of(struct weft_layer_tiles tiles)
{
    tiles.norms = NULL;
    return tiles;
}

/* The embedding's bundle of the same tp member. */
static struct weft_layer_tiles tables_of(const struct weft_g_update *u,
                                         const struct weft_g_bundle *head,
                                         int32_t place)
{
    struct weft_g_bundle embed = {WEFT_GROUP_EMBED, -1, head->tp};
    return weft_g_bundle_tiles(u->m, &embed, &u->m->fwd[place]);
}

static bool has_tiles(const struct weft_layer_tiles *tiles)
{
    for (int32_t b = 0; b < WEFT_MAX_BLOCKS; b++)
        if (tiles->block[b])
            return true;
    return false;
}

static void table_slot(void *arg, struct weft_tile **fwd,
                       struct weft_tile **table)
{
    const struct making *m = arg;
    const struct weft_shape *s = &m->u->m->shape;
    int32_t b = 0;
    const struct weft_layer_tiles *head = &m->u->m->fwd[m->place].head;
    while (head->block[b] != *fwd)
        b++;
    *table = weft_g_temp(&m->u->pass, "embedding table", WEFT_MEM_WEIGHTS, -1,
                         weft_g_fwd_bytes(s, WEFT_TILE_EMBED, b), m->place);
}

/* AdamW of a bundle at one place, with its tied tables. */
static void adamw_at(struct weft_g_update *u, const struct weft_g_bundle *b,
                     int32_t place, const struct weft_layer_tiles *grad,
                     struct weft_tile *norm, struct weft_layer_tiles *table)
{
    const struct weft_g_model *m = u->m;
    struct weft_layer_tiles fwd = weft_g_bundle_tiles(m, b, &m->fwd[place]);
    struct weft_layer_tiles opt = weft_g_bundle_tiles(m, b, &m->opt[place]);
    struct weft_layer_tiles bwd = weft_g_bundle_tiles(m, b, &m->bwd[place]);
    struct weft_where where = turn_at(u, b, place);
    weft_insert_adamw(
        u->seq, &where, &m->shape, &u->t->adamw, b->group, grad,
        weft_g_copy_at(u->t->copies, u->seq, &where, norm, place), &opt, &fwd,
        b->group == WEFT_GROUP_EMBED ? NULL : &bwd, table);
}

/* New tables of a tied embedding: written by AdamW where the head's place
 * holds them too, else made beside it and sent. */
static void update_tied_head(struct weft_g_update *u,
                             const struct weft_g_bundle *b, int32_t place,
                             const struct weft_layer_tiles *grad,
                             struct weft_tile *norm, bool send)
{
    struct weft_layer_tiles own = tables_of(u, b, place), made = own;
    struct weft_g_bundle embed = {WEFT_GROUP_EMBED, -1, b->tp};
    int32_t holder[WEFT_G_MAX_DP];
    bool has = has_tiles(&own);
    struct making m = {.u = u, .place = place};
    if (!has && send) {
        struct weft_layer_tiles fwd = blocks_of(
            weft_g_bundle_tiles(u->m, b, &u->m->fwd[place]));
        for_each_slot(&fwd, &made, table_slot, &m);
    }
    adamw_at(u, b, place, grad, norm, has || send ? &made : NULL);
    int32_t n = send ? weft_g_bundle_places(u->m, &embed, holder) : 0;
    for (int32_t i = 0; i < n; i++) {
        struct weft_layer_tiles to = tables_of(u, b, holder[i]);
        struct weft_layer_tiles head = weft_g_bundle_tiles(
            u->m, b, &u->m->opt[holder[i]]);
        /* who updates the head himself has written them */
        if (holder[i] != place && !has_tiles(&head))
            copy_tiles(u, made, to);
    }
    if (!has && send)
        tiles_release(&made);
}

/* The published weights from where they were updated to the other places that
 * hold them. */
static void publish(struct weft_g_update *u, const struct weft_g_bundle *b)
{
    const struct weft_g_model *m = u->m;
    int32_t stage = weft_g_bundle_stage(m, b), zero = m->home.plan.zero;
    int32_t owner = weft_g_bundle_owner(m, b), n, place[WEFT_G_MAX_DP * 8];
    struct weft_layer_tiles from = weft_g_bundle_tiles(m, b, &m->fwd[owner]);
    if (zero >= 3)
        return;
    n = zero >= 1 ? weft_g_bundle_places(m, b, place) : 0;
    for (int32_t i = 0; i < n; i++) {
        if (place[i] == owner)
            continue;
        copy_tiles(u, blocks_of(from),
                   weft_g_bundle_tiles(m, b, &m->fwd[place[i]]));
        if (b->group == WEFT_GROUP_EMBED || !has_tiles(&from))
            continue;
        struct weft_where where = where_at(u, b, place[i]);
        weft_insert_transpose(
            u->seq, &where, &m->shape,
            weft_plan_range(m->shape.n_blocks, m->home.plan.tp, b->tp),
            b->group, b->layer, &m->fwd[place[i]], &m->bwd[place[i]]);
    }
    /* norms: to every member's place that has no state of them */
    n = from.norms ? weft_g_layout_places(&m->home, stage, -1, place) : 0;
    for (int32_t i = 0; i < n; i++) {
        struct weft_layer_tiles opt = weft_g_bundle_tiles(m, b,
                                                          &m->opt[place[i]]);
        struct weft_layer_tiles norms = {
            {NULL},
            weft_params_group(&m->fwd[place[i]], b->group, b->layer).norms};
        if (!opt.norms)
            copy_tiles(u, (struct weft_layer_tiles){{NULL}, from.norms},
                       norms);
    }
}

/* The sum at a place that updates the bundle as well, in the accumulators of
 * one of its replicas: what was in them has been given. */
static struct weft_layer_tiles sum_at(struct weft_g_update *u,
                                      const struct weft_g_bundle *b,
                                      const struct weft_layer_tiles *sum,
                                      int32_t place)
{
    const struct weft_g_model *m = u->m;
    int32_t stage = weft_g_bundle_stage(m, b), d = 0;
    while (weft_g_layout_member(&m->home, d, stage, b->tp)->place != place)
        d++;
    struct weft_layer_tiles own = weft_g_bundle_tiles(
        m, b, &u->t->grads->set[d][0]);
    copy_tiles(u, *sum, own);
    return own;
}

static void update_bundle(struct weft_g_update *u,
                          const struct weft_g_bundle *b, struct node *sum,
                          struct weft_tile *norm)
{
    const struct weft_g_model *m = u->m;
    int32_t place[WEFT_G_MAX_DP], owner = weft_g_bundle_owner(m, b);
    int32_t n = weft_g_bundle_places(m, b, place);
    bool tied = m->shape.tied && b->group == WEFT_GROUP_HEAD;
    for (int32_t i = 0; i < n; i++) {
        struct weft_layer_tiles grad = sum->tiles;
        if (place[i] != owner && m->home.plan.zero >= 1)
            continue;
        if (place[i] != owner)
            grad = sum_at(u, b, &sum->tiles, place[i]);
        if (tied)
            update_tied_head(u, b, place[i], &grad, norm, place[i] == owner);
        else
            adamw_at(u, b, place[i], &grad, norm, NULL);
    }
    publish(u, b);
}

/* The owner goes on when all have fetched a sum that lies in temporary tiles,
 * so that those of the next step do not come on top. */
static void close_sums(struct weft_g_update *u)
{
    int32_t place[WEFT_G_MAX_DP];
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        struct node *sum = &u->pending[i].node[0];
        if (is_tied_embed(u, &b) || !sum->temp || u->m->home.plan.zero >= 1
            || weft_g_bundle_places(u->m, &b, place) == 1)
            continue;
        struct making m = {.u = u};
        for_each_slot(&sum->tiles, &sum->tiles, list_slot, &m);
        struct weft_where where = turn_at(u, &b,
                                          weft_g_bundle_owner(u->m, &b));
        weft_insert_open(u->seq, &where, NULL, m.n, m.tile);
    }
}

struct weft_tile *weft_g_update_finish(struct weft_g_update *u)
{
    for (int32_t i = 0; i < u->n_bundles; i++)
        weft_assert(u->pending[i].n == 1 && u->pending[i].node[0].any);
    add_tied(u);
    struct weft_tile *norm = norm_of(u);
    for (int32_t i = 0; i < u->n_bundles; i++) {
        struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
        if (!is_tied_embed(u, &b))
            update_bundle(u, &b, &u->pending[i].node[0], norm);
    }
    close_sums(u);
    return norm;
}
