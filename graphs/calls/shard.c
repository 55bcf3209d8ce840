/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/shard.h"

#include "graphs/calls/tiles.h"

/* Number of a row's elements in a kind's blocks first .. end - 1. */
static size_t elements_of(const struct weft_g_layout *home,
                          enum weft_g_row row, enum weft_tile_kind kind,
                          int32_t first, int32_t end)
{
    const size_t *before = home->before[row][kind];
    return before[end] - before[first];
}

int32_t weft_g_member_of(const struct weft_shape *s,
                         const struct weft_g_layout *home, int32_t block)
{
    int32_t k = 0;
    while (block
           >= weft_range_end(weft_plan_range(s->n_blocks, home->plan.tp, k)))
        k++;
    return k;
}

/* How many layers those from `first` to before `end` stand for. */
static size_t n_layers(const struct weft_g_layout *home, int32_t first,
                       int32_t end)
{
    size_t n = 0;
    for (int32_t l = first; l < end; l++)
        n += home->times ? (size_t) home->times[l] : 1;
    return n;
}

/* A tile's first element and its row's length, in the row's elements; how many
 * tiles it stands for. */
struct position {
    int32_t stage, tp;
    size_t begin, total, times;
};

static struct position position_of(const struct weft_shape *s,
                                   const struct weft_g_layout *home,
                                   enum weft_g_row row,
                                   enum weft_tile_kind kind, int32_t layer,
                                   int32_t block)
{
    bool is_norms = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
    bool is_head = kind == WEFT_TILE_HEAD || kind == WEFT_TILE_FINAL;
    int32_t last = home->plan.pp - 1;
    struct position p = {
        .stage = kind == WEFT_TILE_EMBED ? 0
               : is_head                 ? last
                         : weft_g_layout_stage_of(home, layer),
        .tp = is_norms ? 0 : weft_g_member_of(s, home, block),
        .times = 1};
    struct weft_range range = weft_plan_range(s->n_blocks, home->plan.tp,
                                              p.tp);
    int32_t end = weft_range_end(range);
    int32_t first_layer = home->first_layer[p.stage];
    bool norms = p.tp == 0;
    size_t embed = 0, one = 0, head = 0;
    if (p.stage == 0 && !s->tied)
        embed = elements_of(home, row, WEFT_TILE_EMBED, range.first, end);
    one = elements_of(home, row, WEFT_TILE_LAYER, range.first, end)
        + (norms ? elements_of(home, row, WEFT_TILE_NORMS, 0, 1) : 0);
    if (p.stage == last)
        head = elements_of(home, row, WEFT_TILE_HEAD, range.first, end)
             + (norms ? elements_of(home, row, WEFT_TILE_FINAL, 0, 1) : 0);
    bool is_embed = kind == WEFT_TILE_EMBED;
    if (home->plan.zero >= 3 || (s->tied && is_head)) {
        p.total = is_head ? head : is_embed ? embed : one;
    } else {
        size_t layers = one
                      * n_layers(home, first_layer,
                                 home->first_layer[p.stage + 1]);
        p.total = embed + layers + (s->tied ? 0 : head);
        p.begin = is_embed ? 0
                : is_head  ? embed + layers
                           : embed + one * n_layers(home, first_layer, layer);
        if (!is_head && !is_embed)
            p.times = n_layers(home, layer, layer + 1);
    }
    p.begin += p.times
             * (is_norms ? elements_of(
                    home, row, is_head ? WEFT_TILE_HEAD : WEFT_TILE_LAYER,
                    range.first, end)
                         : elements_of(home, row, kind, range.first, block));
    return p;
}

int32_t weft_g_pieces(const struct weft_shape *s,
                      const struct weft_g_layout *home, enum weft_g_row row,
                      enum weft_tile_kind kind, int32_t layer, int32_t block,
                      struct weft_g_piece *out)
{
    struct weft_layout l;
    int32_t n = 0;
    if (s->tied && kind == WEFT_TILE_EMBED)
        kind = WEFT_TILE_HEAD;
    struct position p = position_of(s, home, row, kind, layer, block);
    struct weft_g_places places = weft_g_layout_places(home, p.stage, p.tp);
    int32_t n_places = places.n;
    weft_layout_get(s, kind, block, &l);
    bool trained = row == WEFT_G_TRAINED;
    int32_t at = trained ? l.first_trained : 0;
    int32_t end = trained ? weft_layout_n_chunks(&l) : l.first_trained;
    size_t begin = weft_layout_chunk(&l, at);
    /* the first place whose range can contain the tile's beginning */
    int32_t j = p.total > 0
                  ? (int32_t) (p.begin * (size_t) n_places / p.total)
                  : n_places;
    for (; j < n_places && at < end; j++) {
        size_t target = p.total * (size_t) (j + 1) / (size_t) n_places;
        int32_t next = target <= p.begin
                         ? at
                         : weft_layout_chunk_near(
                             &l, begin + (target - p.begin) / p.times);
        next = weft_min32(next, end);
        if (next > at)
            out[n++] = (struct weft_g_piece){places.at[j], {at, next - at}};
        at = next;
    }
    return n;
}

void weft_g_pieces_cut(const struct weft_shape *s, enum weft_tile_kind kind,
                       int32_t block, bool published, int32_t n,
                       const struct weft_g_piece *piece, size_t *out)
{
    struct weft_layout l;
    weft_layout_get(s, kind, block, &l);
    size_t begin = weft_layout_chunk(&l, l.first_trained);
    for (int32_t i = 1; i < n; i++)
        out[i - 1] = published ? weft_layout_chunk_byte(&l, s->dtype,
                                                        piece[i].chunks.first)
                               : (weft_layout_chunk(&l, piece[i].chunks.first)
                                  - begin)
                                     * sizeof(float);
}

int32_t weft_g_frozen_parts(const struct weft_shape *s)
{
    return s->lora_rank > 0;
}

int32_t weft_g_published_cut(const struct weft_shape *s,
                             const struct weft_g_layout *home,
                             enum weft_tile_kind kind, int32_t layer,
                             int32_t block, size_t *out)
{
    struct weft_g_piece piece[WEFT_G_MAX_DP];
    bool vocabulary = kind == WEFT_TILE_EMBED || kind == WEFT_TILE_HEAD;
    struct weft_layout l;
    weft_layout_get(s, kind, block, &l);
    if (s->lora_rank > 0 && weft_layout_n_trained(&l) == 0)
        return 1;
    if (s->lora_rank > 0)
        *out++ = weft_layout_chunk_byte(&l, s->dtype, l.first_trained);
    if (s->lora_rank > 0 && home->plan.zero == 0)
        return 2;
    /* without ZeRO only a tied head is copied, to the first stage */
    if (home->plan.zero == 0 && !(s->tied && vocabulary && home->plan.pp > 1))
        return 1;
    int32_t n = weft_g_pieces(s, home, WEFT_G_TRAINED, kind, layer, block,
                              piece);
    weft_g_pieces_cut(s, kind, block, true, n, piece, out);
    return n + weft_g_frozen_parts(s);
}

void weft_g_owned_pieces_get(const struct weft_g_model *m,
                             enum weft_tile_kind kind, int32_t layer,
                             int32_t block, struct weft_g_owned_pieces *out)
{
    const struct weft_params *of[WEFT_G_N_ROWS] = {
        [WEFT_G_TRAINED] = m->fwd, [WEFT_G_FROZEN] = m->frozen};
    if (m->shape.tied && kind == WEFT_TILE_EMBED)
        kind = WEFT_TILE_HEAD;
    out->n = 0;
    for (int row = WEFT_G_N_ROWS - 1; row >= 0; row--) {
        int32_t first = out->n;
        if (of[row])
            out->n += weft_g_pieces(&m->shape, &m->home,
                                    (enum weft_g_row) row, kind, layer, block,
                                    out->piece + first);
        for (int32_t i = first; i < out->n; i++)
            out->tile[i] = weft_g_params_tile(&of[row][out->piece[i].place],
                                              kind, layer, block);
        if (row == WEFT_G_FROZEN)
            out->n_frozen = out->n;
    }
    weft_g_pieces_cut(&m->shape, kind, block, true, out->n, out->piece,
                      out->at);
}

struct weft_range weft_g_chunks_at(const struct weft_g_model *m, bool state,
                                   int32_t place, enum weft_tile_kind kind,
                                   int32_t layer, int32_t block)
{
    struct weft_g_piece piece[WEFT_G_MAX_DP];
    struct weft_layout l;
    if (m->home.plan.zero < (state ? 1 : 3)) {
        weft_layout_get(&m->shape, kind, block, &l);
        return state ? weft_layout_trained(&l)
                     : (struct weft_range){0, weft_layout_n_chunks(&l)};
    }
    int32_t n = weft_g_pieces(&m->shape, &m->home, WEFT_G_TRAINED, kind,
                              layer, block, piece);
    for (int32_t i = 0; i < n; i++)
        if (piece[i].place == place)
            return piece[i].chunks;
    return (struct weft_range){0, 0};
}

/* ---- Shards of bundles -------------------------------------------------- */

/* Finds tile number `index` of a bundle. False: there is none. */
static bool has_tile(const struct weft_shape *s,
                     const struct weft_g_layout *home,
                     const struct weft_g_bundle *b, int32_t index,
                     enum weft_tile_kind *kind_out)
{
    static const enum weft_tile_kind kind[] = {
        [WEFT_GROUP_LAYER] = WEFT_TILE_LAYER,
        [WEFT_GROUP_EMBED] = WEFT_TILE_EMBED,
        [WEFT_GROUP_HEAD] = WEFT_TILE_HEAD};
    struct weft_range range = weft_plan_range(s->n_blocks, home->plan.tp,
                                              b->tp);
    *kind_out = kind[b->group];
    if (index < WEFT_MAX_BLOCKS)
        return index >= range.first && index < weft_range_end(range)
            && !(s->scalar_head && b->group == WEFT_GROUP_HEAD);
    *kind_out = b->group == WEFT_GROUP_LAYER ? WEFT_TILE_NORMS
                                             : WEFT_TILE_FINAL;
    return b->tp == 0 && b->group != WEFT_GROUP_EMBED;
}

int32_t weft_g_shards(const struct weft_g_model *m, enum weft_g_row row,
                      const struct weft_g_bundle *b, struct weft_g_shard *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < WEFT_GROUP_TILES; i++) {
        struct weft_g_piece piece[WEFT_G_MAX_DP];
        enum weft_tile_kind kind;
        if (!has_tile(&m->shape, &m->home, b, i, &kind))
            continue;
        int32_t n_pieces = weft_g_pieces(&m->shape, &m->home, row, kind,
                                         b->layer,
                                         i < WEFT_MAX_BLOCKS ? i : 0, piece);
        for (int32_t k = 0; k < n_pieces; k++) {
            /* owners are in order: either the last shard's or the next */
            if (n == 0 || out[n - 1].place != piece[k].place)
                out[n++] = (struct weft_g_shard){.bundle = *b,
                                                 .place = piece[k].place};
            out[n - 1].chunks.of[i] = piece[k].chunks;
            out[n - 1].part[i] = k;
        }
    }
    return n;
}

/* first: of the tiles' parts that are owned; -1: the tiles are not cut. */
static struct weft_layer_tiles shard_tiles(const struct weft_g_model *m,
                                           const struct weft_g_shard *shard,
                                           const struct weft_params *params,
                                           int32_t first)
{
    struct weft_layer_tiles tiles = weft_g_bundle_tiles(m, &shard->bundle,
                                                        params);
    for (int32_t i = 0; i < WEFT_GROUP_TILES; i++) {
        struct weft_tile **tile = i < WEFT_MAX_BLOCKS ? &tiles.block[i]
                                                      : &tiles.norms;
        if (shard->chunks.of[i].n == 0)
            *tile = NULL;
        else if (*tile && first >= 0)
            *tile = weft_tile_part(*tile, first + shard->part[i]);
    }
    return tiles;
}

struct weft_layer_tiles weft_g_shard_parts(const struct weft_g_model *m,
                                           const struct weft_g_shard *shard,
                                           const struct weft_params *params)
{
    return shard_tiles(m, shard, params, 0);
}

struct weft_layer_tiles weft_g_shard_published(
    const struct weft_g_model *m, const struct weft_g_shard *shard,
    int32_t place)
{
    return shard_tiles(m, shard, &m->fwd[place],
                       weft_g_frozen_parts(&m->shape));
}

struct weft_layer_tiles weft_g_shard_tiles(const struct weft_g_model *m,
                                           const struct weft_g_shard *shard,
                                           const struct weft_params *params)
{
    return shard_tiles(m, shard, params, -1);
}

/* ---- Relays -------------------------------------------------------------- */

struct weft_range weft_g_places_of_rank(const struct weft_rt *rt,
                                        struct weft_g_places places,
                                        int32_t first)
{
    int32_t rank = weft_rt_place_rank(rt, places.at[first]), n = 1;
    while (first + n < places.n
           && weft_rt_place_rank(rt, places.at[first + n]) == rank)
        n++;
    return (struct weft_range){first, n};
}

int32_t weft_g_relay(const struct weft_rt *rt, int32_t owner,
                     struct weft_g_places places, struct weft_range of)
{
    bool own = weft_rt_place_rank(rt, places.at[of.first])
            == weft_rt_place_rank(rt, owner);
    return own || of.n == 1 ? -1 : places.at[of.first + owner % of.n];
}
