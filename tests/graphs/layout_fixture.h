/* SPDX-License-Identifier: Apache-2.0 */
/* Models with every option, and layouts of them on eight devices. */
#ifndef WEFT_TESTS_LAYOUT_FIXTURE_H
#define WEFT_TESTS_LAYOUT_FIXTURE_H

#include "calls.h"
#include "codelets/task_fixture.h"

#include "base/hash.h"

enum { DEVICES = 8, N = 7, LAYERS = 4 };
static const int32_t lengths[N] = {5, 33, 9, 64, 70, 2, 21};

/* ---- Shapes and layouts ----------------------------------------------- */

struct sketch {
    const char *name;
    int32_t n_blocks, n_layers, n_heads, n_kv, intermediate, vocab;
    bool qkv_bias, o_bias, qk_norm, tied, scalar;
    enum weft_dtype dtype;
    enum weft_loss loss;
};

/* Blocks of MLP and vocabulary are uneven in all of them. KV heads: two
 * blocks to each; in the middle of a block; one for all; one for each. */
static const struct sketch sketches[] = {
    {"tied", 4, 4, 4, 2, 320, 270, true, false, false, true, false, WEFT_F32,
     WEFT_LOSS_POLICY},
    {"three kv heads", 4, 4, 12, 3, 296, 300, false, true, true, false, false,
     WEFT_BF16, WEFT_LOSS_SFT},
    {"one kv head", 8, 3, 8, 1, 576, 600, true, true, false, true, false,
     WEFT_BF16, WEFT_LOSS_POLICY},
    {"critic", 8, 3, 24, 3, 520, 600, true, false, true, false, true,
     WEFT_F32, WEFT_LOSS_VALUE},
    {"bf16 critic", 4, 4, 4, 4, 320, 270, false, true, true, false, true,
     WEFT_BF16, WEFT_LOSS_VALUE},
};

static inline struct weft_shape shape_of(const struct sketch *k)
{
    struct weft_err err;
    struct weft_shape s = {.hidden = 48,
                           .n_layers = k->n_layers,
                           .n_heads = k->n_heads,
                           .n_kv_heads = k->n_kv,
                           .head_dim = 16,
                           .intermediate = k->intermediate,
                           .vocab = k->vocab,
                           .max_positions = 512,
                           .rms_eps = 1e-5f,
                           .rope_theta = 10000,
                           .qkv_bias = k->qkv_bias,
                           .o_bias = k->o_bias,
                           .qk_norm = k->qk_norm,
                           .tied = k->tied,
                           .scalar_head = k->scalar,
                           .dtype = k->dtype};
    REQUIRE_OK(weft_shape_partition(&s, k->n_blocks, &err), err);
    return s;
}

/* dp, tp, pp on devices `first` and on. */
struct degrees {
    int32_t dp, tp, pp, first, zero, micro_batches;
    bool recompute;
};

static inline void layout_open(struct task_fixture *f,
                               const struct weft_shape *s,
                               const struct degrees *d,
                               struct weft_g_layout *out)
{
    struct weft_err err;
    int32_t n = d->dp * d->tp * d->pp;
    struct weft_g_job job = weft_g_job_of(f->rt);
    struct weft_plan plan = {.n_nodes = 1, .n_devices = DEVICES};
    plan.call[CALL_ACTOR_TRAIN] = (struct weft_call_plan){
        .mesh = {0, 1, d->first, n},
        .dp = d->dp,
        .tp = d->tp,
        .pp = d->pp,
        .zero = d->zero,
        .micro_batches = d->micro_batches,
        .recompute = d->recompute};
    REQUIRE_OK(
        weft_g_layout_init(&job, s, &plan, CALL_ACTOR_TRAIN, out, &err), err);
}

static const struct degrees one_device = {1, 1, 1, 0, 0, 0, false};

static inline bool fits(const struct degrees *d, const struct weft_shape *s)
{
    return d->pp <= s->n_layers && d->tp <= s->n_blocks;
}

static inline void say(const struct sketch *k, const struct degrees *d,
                       const char *what)
{
    printf("\n    %s: dp%dtp%dpp%d,zero=%d,micro_batches=%d%s from device "
           "%d: %s\n",
           k->name, d->dp, d->tp, d->pp, d->zero, d->micro_batches,
           d->recompute ? ",recompute" : "", d->first, what);
}

static inline struct weft_hash tile_hash(struct weft_tile *tile)
{
    const void *p = weft_tile_acquire(tile, WEFT_READ);
    struct weft_hash h = weft_hash128(p, weft_tile_bytes(tile));
    weft_tile_unacquire(tile);
    return h;
}

/* ---- What a model holds ----------------------------------------------- */

enum { USES = 3 }; /* published weights, transposes, optimizer state */
static const struct weft_hash no_tile;

/* What all places together hold of a tile for one use, in the order of its
 * vectors: flat values, or published bytes. */
struct whole {
    char *data;   /* (bytes) */
    bool *is_set; /* (bytes) */
    size_t bytes;
};

static inline void whole_add(struct whole *w, size_t at, const char *data,
                             size_t n)
{
    size_t other = 0;
    REQUIRE(at + n <= w->bytes);
    for (size_t i = 0; i < n; i++) {
        other += w->is_set[at + i] && w->data[at + i] != data[i];
        w->data[at + i] = data[i];
        w->is_set[at + i] = true;
    }
    CHECK_INT(other, 0);
}

/* A place's part of it: state is vectors of what it owns. */
static inline void whole_take(struct whole *w, const struct weft_g_model *m,
                              bool state, struct weft_tile *tile,
                              enum weft_tile_kind kind, int32_t layer,
                              int32_t block)
{
    struct weft_layout l;
    struct weft_range has = weft_g_chunks_at(m, state, weft_tile_place(tile),
                                             kind, layer, block);
    weft_layout_get(&m->shape, kind, block, &l);
    const char *data = weft_tile_acquire(tile, WEFT_READ);
    size_t begin = weft_layout_chunk(&l, has.first) * 4;
    size_t n = weft_layout_chunk(&l, weft_range_end(has)) * 4 - begin;
    if (!state)
        whole_add(w, weft_layout_chunk_byte(&l, m->shape.dtype, has.first),
                  data, weft_tile_bytes(tile));
    for (size_t at = 0; state && at < weft_tile_bytes(tile); at += n)
        whole_add(w, at / n * l.n_flat * 4 + begin, data + at, n);
    weft_tile_unacquire(tile);
}

/* Every copy of a tile is the same, and with what places own of it nothing is
 * missing; returns its hash, none: no_tile. */
static inline struct weft_hash copies_hash(const struct weft_g_model *m,
                                           int u, enum weft_tile_kind kind,
                                           int32_t layer, int32_t block)
{
    const struct weft_params *use[USES] = {m->fwd, m->bwd, m->opt};
    struct weft_layout l;
    struct weft_hash hash = no_tile;
    bool any = false;
    weft_layout_get(&m->shape, kind, block, &l);
    struct whole w = {
        .bytes = u == 0 ? weft_g_fwd_bytes(&m->shape, kind, block)
               : u == 1 ? l.bwd_bytes
                        : weft_opt_bytes(&m->shape, kind, l.n_flat)};
    w.data = weft_alloc(w.bytes, 1);
    w.is_set = weft_alloc(w.bytes, 1);
    for (int32_t p = 0; p < m->n_places; p++) {
        struct weft_tile *tile = weft_g_params_tile(&use[u][p], kind, layer,
                                                    block);
        if (tile)
            whole_take(&w, m, u == 2, tile, kind, layer, block);
        any = any || tile;
    }
    if (any)
        REQUIRE(memchr(w.is_set, false, w.bytes) == NULL);
    if (any)
        hash = weft_hash128(w.data, w.bytes);
    weft_free(w.data);
    weft_free(w.is_set);
    return hash;
}

#endif
