/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ZeRO deals out, for published shapes and degrees up to 64, without a
 * device: pieces cover every tile once; the largest share is at most the mean
 * and a chunk, and within 5 %; there are hardly more pieces than tiles and
 * replicas; memory falls as 1/dp, and from level to level.
 */
#include <math.h>

#include "calls.h"
#include "graphs/calls/update_inside.h"

#include "graphs/calls/gather.h"
#include "tests/harness.h"

static const struct weft_shape shapes[] = {
    {.hidden = 896,
     .n_layers = 24,
     .n_heads = 14,
     .n_kv_heads = 2,
     .head_dim = 64,
     .intermediate = 4864,
     .vocab = 151936,
     .qkv_bias = true,
     .tied = true,
     .dtype = WEFT_BF16}, /* Qwen2.5-0.5B */
    {.hidden = 4096,
     .n_layers = 32,
     .n_heads = 32,
     .n_kv_heads = 32,
     .head_dim = 128,
     .intermediate = 11008,
     .vocab = 32000,
     .dtype = WEFT_BF16}, /* LLaMA 7B */
    {.hidden = 2048,
     .n_layers = 16,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 64,
     .intermediate = 8192,
     .vocab = 128256,
     .tied = true,
     .scalar_head = true,
     .dtype = WEFT_F32}, /* a critic of Llama 3.2 1B */
    {.hidden = 768,
     .n_layers = 12,
     .n_heads = 12,
     .n_kv_heads = 12,
     .head_dim = 64,
     .intermediate = 2048,
     .vocab = 32000,
     .qk_norm = true,
     .o_bias = true,
     .dtype = WEFT_F32}};

static const int32_t degrees[][3] = {
    {1, 1, 1},  {2, 1, 1},  {3, 1, 1},  {4, 1, 4}, {7, 2, 1},  {16, 1, 1},
    {16, 2, 1}, {12, 1, 3}, {32, 1, 1}, {8, 2, 4}, {64, 1, 1}, {31, 1, 2}};

enum { MOST_PLACES = 64 * 8 };

static void layout_open(const struct weft_shape *s, const int32_t d[3],
                        int32_t zero, bool place_per_device,
                        struct weft_g_layout *out)
{
    struct weft_err err;
    int32_t n = d[0] * d[1] * d[2];
    struct weft_g_job job = {1, n, place_per_device, 0, false};
    struct weft_plan plan = {.n_nodes = 1, .n_devices = n};
    plan.call[CALL_ACTOR_TRAIN] = (struct weft_call_plan){
        .mesh = {0, 1, 0, n},
        .dp = d[0],
        .tp = d[1],
        .pp = d[2],
        .zero = zero};
    REQUIRE(n <= MOST_PLACES);
    REQUIRE_OK(
        weft_g_layout_init(&job, s, &plan, CALL_ACTOR_TRAIN, out, &err), err);
}

static struct weft_shape shape_of(size_t i)
{
    struct weft_err err;
    struct weft_shape s = shapes[i];
    if (s.scalar_head)
        s.tied = false;
    REQUIRE_OK(weft_shape_partition(&s, 0, &err), err);
    return s;
}

typedef void (*layout_fn)(const struct weft_shape *shape,
                          struct weft_g_layout *home);

static void everywhere(layout_fn check)
{
    for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
        for (size_t d = 0; d < WEFT_COUNT(degrees); d++) {
            struct weft_shape s = shape_of(i);
            struct weft_g_layout home;
            if (degrees[d][1] > s.n_blocks || degrees[d][2] > s.n_layers)
                continue;
            layout_open(&s, degrees[d], 1, true, &home);
            check(&s, &home);
            weft_g_layout_release(&home);
        }
}

/* ---- Pieces ------------------------------------------------------------ */

/* Of a row's elements what each replica has, and its tiles. */
struct share {
    double elements[64];
    int32_t n_tiles[64];
    double chunk; /* the largest */
    int32_t tiles;
};

static int32_t replica_of(const struct weft_g_layout *home, int32_t stage,
                          int32_t tp, int32_t place)
{
    for (int32_t i = 0; i < home->plan.dp; i++)
        if (weft_g_layout_member(home, i, stage, tp)->place == place)
            return i;
    return -1;
}

static void add_tile(const struct weft_shape *s,
                     const struct weft_g_layout *home, int32_t stage,
                     int32_t tp, enum weft_tile_kind kind, int32_t layer,
                     int32_t block, struct share *share)
{
    struct weft_g_piece piece[WEFT_G_MAX_DP];
    struct weft_layout l;
    int32_t n = weft_g_pieces(s, home, WEFT_G_TRAINED, kind, layer, block,
                              piece),
            at = 0;
    weft_layout_get(s, kind, block, &l);
    for (int32_t i = 0; i < n; i++) {
        int32_t d = replica_of(home, stage, tp, piece[i].place);
        REQUIRE(d >= 0);
        CHECK_INT(piece[i].chunks.first, at);
        CHECK(piece[i].chunks.n > 0);
        at += piece[i].chunks.n;
        share->elements[d] += (double) (weft_layout_chunk(&l, at)
                                        - weft_layout_chunk(
                                            &l, piece[i].chunks.first));
        share->n_tiles[d]++;
    }
    CHECK_INT(at, weft_layout_n_chunks(&l));
    for (int32_t i = 0; i < at; i++) {
        double size = (double) (weft_layout_chunk(&l, i + 1)
                                - weft_layout_chunk(&l, i));
        share->chunk = size > share->chunk ? size : share->chunk;
    }
    share->tiles++;
}

static void check_row(const struct weft_shape *s,
                      const struct weft_g_layout *home, int32_t stage,
                      int32_t tp)
{
    struct share share = {.chunk = 0};
    struct weft_range range = weft_plan_range(s->n_blocks, home->plan.tp, tp);
    bool last = stage == home->plan.pp - 1;
    double mean = 0;
    for (int32_t b = range.first; b < weft_range_end(range); b++) {
        if (stage == 0 && !s->tied)
            add_tile(s, home, stage, tp, WEFT_TILE_EMBED, -1, b, &share);
        for (int32_t l = home->first_layer[stage];
             l < home->first_layer[stage + 1]; l++)
            add_tile(s, home, stage, tp, WEFT_TILE_LAYER, l, b, &share);
        if (last && !s->scalar_head)
            add_tile(s, home, stage, tp, WEFT_TILE_HEAD, -1, b, &share);
    }
    for (int32_t l = home->first_layer[stage];
         l < home->first_layer[stage + 1] && tp == 0; l++)
        add_tile(s, home, stage, tp, WEFT_TILE_NORMS, l, 0, &share);
    if (last && tp == 0)
        add_tile(s, home, stage, tp, WEFT_TILE_FINAL, -1, 0, &share);
    int32_t pieces = 0;
    for (int32_t i = 0; i < home->plan.dp; i++) {
        mean += share.elements[i] / home->plan.dp;
        pieces += share.n_tiles[i];
    }
    for (int32_t i = 0; i < home->plan.dp; i++) {
        CHECK(share.elements[i] <= mean + (s->tied ? 2 : 1) * share.chunk);
        CHECK(share.elements[i] <= 1.05 * mean);
    }
    CHECK(pieces < share.tiles + (s->tied ? 2 : 1) * home->plan.dp);
}

static void check_rows(const struct weft_shape *s, struct weft_g_layout *home)
{
    for (int32_t stage = 0; stage < home->plan.pp; stage++)
        for (int32_t tp = 0; tp < home->plan.tp; tp++)
            check_row(s, home, stage, tp);
}

static void test_pieces(void)
{
    everywhere(check_rows);
}

/* ---- Layers that stand for several ---------------------------------------- */

/* What each replica has of the tiles of all blocks, each as often as its layer
 * stands for one, is as much as any other has. */
static void test_stretched(void)
{
    static const int32_t times[] = {1, 10, 9, 10, 2};
    enum { LAYERS = WEFT_COUNT(times), DP = 8 };
    struct weft_shape s = shape_of(1);
    struct weft_g_layout home;
    double elements[DP] = {0}, all = 0;
    s.n_layers = LAYERS;
    layout_open(&s, (int32_t[3]){DP, 1, 1}, 1, true, &home);
    home.times = times;
    REQUIRE(s.n_blocks > 1);
    for (int32_t l = -1; l <= LAYERS; l++)
        for (int32_t b = 0; b < s.n_blocks; b++) {
            enum weft_tile_kind kind = l < 0       ? WEFT_TILE_EMBED
                                     : l == LAYERS ? WEFT_TILE_HEAD
                                                   : WEFT_TILE_LAYER;
            struct share share = {.chunk = 0};
            add_tile(&s, &home, 0, 0, kind, l == LAYERS ? -1 : l, b, &share);
            for (int32_t d = 0; d < DP; d++) {
                double n = share.elements[d]
                         * (l >= 0 && l < LAYERS ? times[l] : 1);
                elements[d] += n;
                all += n;
            }
        }
    for (int32_t d = 0; d < DP; d++)
        CHECK(fabs(elements[d] / all * DP - 1) < 0.02);
    weft_g_layout_release(&home);
}

/* ---- Devices of one place ----------------------------------------------- */

/* Devices that have a place in common update about as much as each other: at
 * most `most` times the mean. */
static void check_devices(struct weft_shape shape, int32_t dp, double most)
{
    struct weft_g_train train = {.chain = 0};
    struct weft_g_model m = {.shape = shape};
    struct weft_g_update u = {.t = &train, .m = &m};
    double elements[64] = {0}, all = 0;
    layout_open(&shape, (int32_t[3]){dp, 1, 1}, 0, false, &m.home);
    for (int32_t i = 0; i < weft_g_n_bundles(&m); i++) {
        static const enum weft_tile_kind kind[] = {
            [WEFT_GROUP_EMBED] = WEFT_TILE_EMBED,
            [WEFT_GROUP_LAYER] = WEFT_TILE_LAYER,
            [WEFT_GROUP_HEAD] = WEFT_TILE_HEAD};
        struct weft_g_bundle b = weft_g_bundle_get(&m, i);
        int32_t device = weft_g_update_at(&u, &b, 0, 0).device;
        REQUIRE(device >= 0 && device < dp);
        for (int32_t t = 0; t < shape.n_blocks
                            && !(shape.tied && b.group == WEFT_GROUP_EMBED);
             t++) {
            struct weft_layout l;
            weft_layout_get(&shape, kind[b.group], t, &l);
            elements[device] += (double) l.n_flat;
            all += (double) l.n_flat;
        }
    }
    for (int32_t i = 0; i < dp; i++)
        CHECK(elements[i] <= most * all / dp);
    weft_g_layout_release(&m.home);
}

static void test_devices(void)
{
    struct weft_shape s = shape_of(3); /* 110M */
    check_devices(s, 1, 1);
    check_devices(s, 2, 1.01);
    s.tied = true; /* the head is more than a fifth of all */
    check_devices(s, 2, 1.04);
    check_devices(s, 3, 1.2);
    check_devices(shape_of(1), 4, 1.1); /* 7B */
}

WEFT_TESTS("graphs/shards", {"test_pieces", test_pieces},
           {"test_stretched", test_stretched}, {"test_devices", test_devices})
