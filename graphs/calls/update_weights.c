/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW at every place, on its shards or, without ZeRO, on all weights that it
 * has, whose state may lie in host memory between steps; and copying the new
 * published weights to the other places that hold them.
 */
#include "graphs/calls/update_inside.h"

/* ---- AdamW ------------------------------------------------------------- */

/* The state that update number i has at a place: of shard i with ZeRO, else of
 * bundle i. Empty: none. */
static struct weft_layer_tiles state_at(const struct weft_g_update *u,
                                        int32_t i, int32_t place)
{
    const struct weft_g_model *m = u->m;
    const struct weft_params *opt = &m->opt[place];
    if (m->home.plan.zero == 0) {
        struct weft_g_bundle b = weft_g_bundle_get(m, i);
        return weft_g_bundle_tiles(m, &b, opt);
    }
    const struct weft_g_shard *s = &u->owned[i].shard;
    return s->place == place ? weft_g_shard_tiles(m, s, opt)
                             : (struct weft_layer_tiles){.norms = NULL};
}

/* Of the updates at a place, the state of the n-th before number i; before the
 * first one come the last of the step before. */
static struct weft_layer_tiles state_before(const struct weft_g_update *u,
                                            int32_t i, int32_t place,
                                            int32_t n)
{
    int32_t all = u->m->home.plan.zero == 0 ? u->n_bundles : u->n;
    struct weft_layer_tiles state;
    do {
        i = (i > 0 ? i : all) - 1;
        state = state_at(u, i, place);
        n -= !weft_g_tiles_none(&state);
    } while (n > 0);
    return state;
}

/* How many updates' states are at a place at a time, of those that are
 * offloaded: while one comes, another goes. */
enum { STATES = 2 };

/* AdamW at a place, with number i's state. Where that is offloaded, it comes
 * from host memory when the norm is known and the state of the last update but
 * one has gone, and goes back. That it comes in its turn bounds what is
 * there. */
static void adamw(struct weft_g_update *u, int32_t i,
                  const struct weft_g_bundle *b,
                  const struct weft_chunks *chunks, int32_t place,
                  const struct weft_layer_tiles *grad, struct weft_tile *norm,
                  const struct weft_layer_tiles *fwd)
{
    const struct weft_g_model *m = u->m;
    bool offload = m->home.plan.offload;
    struct weft_layer_tiles state = state_at(u, i, place), opt = state;
    struct weft_where where = weft_g_update_turn(u, b, place);
    norm = weft_g_copy_at(u->t->copies, u->seq, &where, norm, place);
    if (offload) {
        struct weft_layer_tiles before = state_before(u, i, place, STATES);
        opt = weft_g_temp_like(u, "optimizer state", WEFT_MEM_OPTIMIZER,
                               b->layer, place, state);
        weft_insert_open_group(u->seq, &where, norm, &before, &opt);
        weft_g_move_tiles(u, state, opt);
        where = weft_g_update_turn(u, b, place);
    }
    weft_insert_adamw(u->seq, &where, &m->shape, &u->t->adamw, b->group,
                      chunks, grad, norm, &opt, fwd);
    if (offload) {
        weft_g_move_tiles(u, opt, state);
        weft_g_tiles_release(&opt);
    }
}

/* AdamW on one shard, at its owner's place. */
static void update_shard(struct weft_g_update *u, int32_t i,
                         struct weft_tile *norm)
{
    const struct weft_g_model *m = u->m;
    const struct weft_g_owned *o = &u->owned[i];
    const struct weft_g_shard *s = &o->shard;
    struct weft_layer_tiles fwd = m->home.plan.zero >= 3
                                    ? weft_g_shard_tiles(m, s,
                                                         &m->fwd[s->place])
                                    : weft_g_shard_published(m, s, s->place);
    adamw(u, i, &s->bundle, &s->chunks, s->place, &o->node[0].tiles, norm,
          &fwd);
}

/* ---- From an owner to all places ------------------------------------- */

typedef void (*spread_fn)(struct weft_g_update *u,
                          const struct weft_g_owned *owned, int32_t from,
                          int32_t to);

/* Calls copy for every place that what an owner has is copied to, from which
 * place: it comes to a rank once. */
static void spread(struct weft_g_update *u, const struct weft_g_owned *o,
                   struct weft_g_places places, spread_fn copy)
{
    for (int32_t i = 0; i < places.n;) {
        struct weft_range of = weft_g_places_of_rank(u->m->rt, places, i);
        int32_t owner = o->shard.place;
        int32_t from = weft_g_relay(u->m->rt, owner, places, of);
        if (from >= 0)
            copy(u, o, owner, from);
        else
            from = owner;
        for (; i < weft_range_end(of); i++)
            if (places.at[i] != from)
                copy(u, o, from, places.at[i]);
    }
}

static void list_replicas(struct weft_g_update *u,
                          const struct weft_g_bundle *b)
{
    int32_t stage = weft_g_sum_stage(u, b);
    for (int32_t d = u->m->home.plan.dp - 1; d >= 0; d--)
        u->replica[weft_g_layout_member(&u->m->home, d, stage, b->tp)
                       ->place] = d;
}

/* The accumulators of one of a place's replicas, whose own gradient was added
 * to the sum and is no longer needed. */
static const struct weft_params *accumulators(const struct weft_g_update *u,
                                              int32_t place)
{
    return &u->t->grads->set[u->replica[place]][0];
}

/* Copies the sum of a shard to its part of the whole gradient at a place. */
static void copy_sum(struct weft_g_update *u, const struct weft_g_owned *o,
                     int32_t from, int32_t to)
{
    const struct weft_g_shard *s = &o->shard;
    weft_g_copy_tiles(
        u,
        from == s->place ? o->node[0].tiles
                         : weft_g_shard_parts(u->m, s, accumulators(u, from)),
        weft_g_shard_parts(u->m, s, accumulators(u, to)));
}

/* Brings the sums of a bundle's shards to all its places. */
static void spread_sums(struct weft_g_update *u, int32_t i,
                        struct weft_g_places places)
{
    struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
    list_replicas(u, &b);
    for (int32_t k = u->first[i]; k < u->first[i + 1]; k++) {
        const struct weft_g_owned *o = &u->owned[k];
        if (u->first[i] + 1 < u->first[i + 1])
            copy_sum(u, o, o->shard.place, o->shard.place);
        spread(u, o, places, copy_sum);
    }
}

/* The whole gradient of a bundle at a place: where the only shard's sum lies
 * already, or in accumulators. */
static struct weft_layer_tiles whole_sum(struct weft_g_update *u, int32_t i,
                                         int32_t place)
{
    struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
    struct weft_g_owned *first = &u->owned[u->first[i]];
    return u->first[i] + 1 == u->first[i + 1] && first->shard.place == place
             ? first->node[0].tiles
             : weft_g_bundle_tiles(u->m, &b, accumulators(u, place));
}

static struct weft_chunks all_chunks(const struct weft_g_update *u, int32_t i)
{
    weft_assert(u->first[i] < u->first[i + 1]);
    struct weft_chunks all = u->owned[u->first[i]].shard.chunks;
    for (int32_t k = u->first[i] + 1; k < u->first[i + 1]; k++)
        for (int32_t t = 0; t < WEFT_GROUP_TILES; t++)
            all.of[t].n += u->owned[k].shard.chunks.of[t].n;
    return all;
}

/* Of whole published tiles what training changes: with adapters a part of them,
 * or nothing of a head's blocks, which are not cut. */
static struct weft_layer_tiles trained_part(const struct weft_g_model *m,
                                            struct weft_layer_tiles tiles)
{
    int32_t first = weft_g_frozen_parts(&m->shape);
    for (int32_t b = 0; b < WEFT_MAX_BLOCKS && first > 0; b++)
        if (tiles.block[b])
            tiles.block[b] = weft_tile_n_parts(tiles.block[b]) > first
                               ? weft_tile_part(tiles.block[b], first)
                               : NULL;
    if (tiles.norms && first > 0)
        tiles.norms = weft_tile_part(tiles.norms, first);
    return tiles;
}

/* AdamW on a bundle, which every place that has it does by itself. */
static void update_bundle(struct weft_g_update *u, int32_t i,
                          struct weft_tile *norm)
{
    const struct weft_g_model *m = u->m;
    struct weft_g_bundle b = weft_g_bundle_get(m, i);
    struct weft_chunks all = all_chunks(u, i);
    struct weft_g_places places = weft_g_bundle_places(m, &b);
    spread_sums(u, i, places);
    for (int32_t k = 0; k < places.n; k++) {
        int32_t place = places.at[k];
        struct weft_layer_tiles grad = whole_sum(u, i, place);
        struct weft_layer_tiles fwd = trained_part(
            m, weft_g_bundle_tiles(m, &b, &m->fwd[place]));
        adamw(u, i, &b, &all, place, &grad, norm, &fwd);
    }
}

/* ---- Published weights ------------------------------------------------- */

/* Places of all members of a bundle's stage. */
static struct weft_g_places all_places(const struct weft_g_update *u,
                                       const struct weft_g_bundle *b)
{
    return weft_g_layout_places(&u->m->home, weft_g_bundle_stage(u->m, b),
                                -1);
}

static void copy_blocks(struct weft_g_update *u, const struct weft_g_owned *o,
                        int32_t from, int32_t to)
{
    struct weft_layer_tiles blocks = weft_g_shard_published(u->m, &o->shard,
                                                            from);
    blocks.norms = NULL;
    weft_g_copy_tiles(u, blocks, weft_g_shard_published(u->m, &o->shard, to));
}

static void copy_norms(struct weft_g_update *u, const struct weft_g_owned *o,
                       int32_t from, int32_t to)
{
    struct weft_layer_tiles norms = {
        .norms = weft_g_shard_published(u->m, &o->shard, from).norms};
    weft_g_copy_tiles(u, norms, weft_g_shard_published(u->m, &o->shard, to));
}

/* Copies a shard's new weights to the other places that hold them; norms to
 * the places of all members. */
static void publish_shard(struct weft_g_update *u,
                          const struct weft_g_owned *o)
{
    spread(u, o, weft_g_bundle_places(u->m, &o->shard.bundle), copy_blocks);
    if (o->shard.chunks.of[WEFT_MAX_BLOCKS].n > 0)
        spread(u, o, all_places(u, &o->shard.bundle), copy_norms);
}

/* Copies norms from a place that updates them to the places that have no
 * optimizer state for them. */
static void publish_norms(struct weft_g_update *u,
                          const struct weft_g_bundle *b)
{
    const struct weft_g_model *m = u->m;
    struct weft_g_places places = all_places(u, b);
    const int32_t *at = places.at;
    struct weft_layer_tiles from = {.norms = NULL};
    for (int32_t i = 0; i < places.n && !from.norms; i++)
        if (weft_params_group(&m->opt[at[i]], b->group, b->layer).norms)
            from.norms =
                weft_params_group(&m->fwd[at[i]], b->group, b->layer).norms;
    for (int32_t i = 0; i < places.n && from.norms; i++)
        if (!weft_params_group(&m->opt[at[i]], b->group, b->layer).norms)
            weft_g_copy_tiles(
                u, trained_part(m, from),
                trained_part(m, weft_params_group(&m->fwd[at[i]], b->group,
                                                  b->layer)));
}

static struct weft_range blocks_of(const struct weft_g_update *u,
                                   const struct weft_g_bundle *b)
{
    return weft_plan_range(u->m->shape.n_blocks, u->m->home.plan.tp, b->tp);
}

static void transpose(struct weft_g_update *u, const struct weft_g_bundle *b)
{
    const struct weft_g_model *m = u->m;
    struct weft_g_places places = weft_g_bundle_places(m, b);
    if (b->group == WEFT_GROUP_EMBED || m->shape.lora_rank > 0
        || (b->group == WEFT_GROUP_HEAD && m->shape.scalar_head))
        return;
    for (int32_t i = 0; i < places.n; i++) {
        int32_t place = places.at[i];
        struct weft_where where = weft_g_update_at(
            u, b, weft_g_bundle_stage(m, b), place);
        weft_insert_transpose(u->seq, &where, &m->shape, blocks_of(u, b),
                              b->group, b->layer, &m->fwd[place],
                              &m->bwd[place]);
    }
}

/* Copies the head's blocks from their owners to the embedding tables of a
 * place. */
static void copy_head(struct weft_g_update *u, int32_t tp, int32_t place)
{
    const struct weft_g_model *m = u->m;
    for (int32_t i = u->first[tp]; i < u->first[tp + 1]; i++) {
        const struct weft_g_shard *s = &u->owned[i].shard;
        struct weft_g_shard head = *s;
        head.bundle.group = WEFT_GROUP_HEAD;
        struct weft_layer_tiles from = weft_g_shard_published(m, &head,
                                                              s->place);
        struct weft_layer_tiles to = weft_g_shard_published(m, s, place);
        for (int32_t b = 0; b < WEFT_MAX_BLOCKS; b++)
            if (from.block[b])
                weft_insert_copy(u->seq, &u->pass.where, from.block[b],
                                 to.block[b]);
    }
}

/* Makes the embedding tables of a tied model at all places that have them:
 * from the head at the same place, or from the head's owners. */
static void tie(struct weft_g_update *u, const struct weft_g_bundle *head)
{
    const struct weft_g_model *m = u->m;
    struct weft_g_bundle embed = weft_g_bundle_get(m, head->tp);
    struct weft_range range = blocks_of(u, head);
    struct weft_g_places places = weft_g_bundle_places(m, &embed);
    for (int32_t i = 0; i < places.n; i++) {
        int32_t place = places.at[i];
        const struct weft_params *fwd = &m->fwd[place];
        struct weft_where where = weft_g_update_at(u, &embed, 0, place);
        bool beside = fwd->head.block[range.first] != NULL;
        if (!beside)
            copy_head(u, head->tp, place);
        weft_insert_tied_table(u->seq, &where, &m->shape, range,
                               beside ? fwd->head.block : NULL, fwd->embed);
    }
}

void weft_g_update_weights(struct weft_g_update *u, int32_t i,
                           struct weft_tile *norm)
{
    int32_t zero = u->m->home.plan.zero;
    struct weft_g_bundle b = weft_g_bundle_get(u->m, i);
    if (u->first[i] == u->first[i + 1])
        return; /* no tiles: a scalar head is at tp member 0 alone */
    if (zero == 0) {
        update_bundle(u, i, norm);
        publish_norms(u, &b);
    }
    for (int32_t k = u->first[i]; k < u->first[i + 1] && zero > 0; k++) {
        update_shard(u, k, norm);
        if (zero < 3)
            publish_shard(u, &u->owned[k]);
    }
    if (zero >= 3)
        return;
    transpose(u, &b);
    if (u->m->shape.tied && b.group == WEFT_GROUP_HEAD)
        tie(u, &b);
}
