/* SPDX-License-Identifier: Apache-2.0 */
/* A runtime, and a small model with random weights as tiles. */
#ifndef WEFT_TESTS_TASK_FIXTURE_H
#define WEFT_TESTS_TASK_FIXTURE_H

#include "harness.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "graphs/calls/calls.h"
#include "kern/parts.h"
#include "sched/sched.h"

struct task_fixture {
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_g_model model;
};

static inline struct weft_shape fixture_shape(enum weft_dtype dtype,
                                              bool scalar, bool tied)
{
    struct weft_err err;
    struct weft_shape s = {.hidden = 48,
                           .n_layers = 2,
                           .n_heads = 4,
                           .n_kv_heads = 2,
                           .head_dim = 16,
                           .intermediate = 256,
                           .vocab = 270,
                           .max_positions = 512,
                           .rms_eps = 1e-5f,
                           .rope_theta = 10000,
                           .qkv_bias = true,
                           .scalar_head = scalar,
                           .tied = tied && !scalar,
                           .dtype = dtype};
    REQUIRE_OK(weft_shape_partition(&s, 4, &err), err);
    return s;
}

/* Flat values of a tile: uniform in +-0.2, 1 around norms; padding zero. */
static inline float *fixture_flat(const struct weft_layout *layout,
                                  enum weft_tile_kind kind, int32_t layer,
                                  int32_t block)
{
    bool norms = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
    float *flat = weft_alloc_aligned(layout->n_flat + 16, 4);
    for (int32_t p = 0; p < layout->n_parts; p++) {
        const struct weft_part *part = &layout->part[p];
        for (size_t i = 0; i < part->n_flat; i++) {
            size_t row = part->k == 0 || part->id == WEFT_PART_EMBED
                           ? 0
                           : i / ((size_t) part->k * WEFT_PANEL) * WEFT_PANEL
                                 + i % WEFT_PANEL;
            float u = weft_rng_uniform(
                9, WEFT_RNG_INIT, (uint32_t) ((int) kind * 64 + layer),
                (uint32_t) (block * 16 + p), (uint32_t) i);
            if (row < (size_t) part->n)
                flat[part->offset + i] = (norms ? 1 : 0) + 0.4f * (u - 0.5f);
        }
    }
    return flat;
}

/* Flat values into what a place has of the tile; moments are zero. */
static inline void fixture_put(const struct weft_g_model *m, int32_t place,
                               enum weft_tile_kind kind, int32_t layer,
                               int32_t block,
                               const struct weft_layout *layout,
                               const float *flat)
{
    struct weft_tile *fwd = weft_g_params_tile(&m->fwd[place], kind, layer,
                                               block);
    struct weft_tile *bwd = NULL, *opt = NULL;
    if (m->trained) {
        bwd = weft_g_params_tile(&m->bwd[place], kind, layer, block);
        opt = weft_g_params_tile(&m->opt[place], kind, layer, block);
    }
    if (fwd) {
        struct weft_range has = weft_g_chunks_at(m, false, place, kind, layer,
                                                 block);
        void *to = weft_tile_acquire(fwd, WEFT_WRITE);
        weft_k_publish_chunks(layout, m->shape.dtype, has,
                              flat + weft_layout_chunk(layout, has.first),
                              to);
        if (bwd) {
            weft_k_publish(layout, m->shape.dtype, flat, to,
                           weft_tile_acquire(bwd, WEFT_WRITE));
            weft_tile_unacquire(bwd);
        }
        weft_tile_unacquire(fwd);
    }
    if (opt) {
        struct weft_range has = weft_g_chunks_at(m, true, place, kind, layer,
                                                 block);
        size_t begin = weft_layout_chunk(layout, has.first);
        size_t end = weft_layout_chunk(layout, weft_range_end(has));
        float *o = weft_tile_acquire(opt, WEFT_WRITE);
        memset(o, 0, weft_tile_bytes(opt));
        if (weft_master_apart(&m->shape, kind))
            memcpy(o, flat + begin, (end - begin) * 4);
        weft_tile_unacquire(opt);
    }
}

/* A tied embedding's table has the head's rows. */
static inline void fixture_tie(const struct weft_shape *s, int32_t block,
                               float *table)
{
    struct weft_layout head;
    weft_layout_get(s, WEFT_TILE_HEAD, block, &head);
    float *flat = fixture_flat(&head, WEFT_TILE_HEAD, 0, block);
    for (int32_t n = 0; n < s->block[block].n_vocab; n++)
        for (int32_t k = 0; k < s->hidden; k++)
            table[n * s->hidden + k] =
                flat[weft_flat_index(&head.part[0], n, k)];
    weft_free(flat);
}

/* Fills the model at all its places. KV replicas agree. */
static inline void fixture_fill(const struct weft_g_model *m)
{
    const struct weft_shape *s = &m->shape;
    for (int k = 0; k < WEFT_N_TILE_KINDS; k++) {
        enum weft_tile_kind kind = (enum weft_tile_kind) k;
        bool norms = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
        bool layers = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_LAYER;
        for (int32_t l = 0; l < (layers ? s->n_layers : 1); l++) {
            float *flat[WEFT_MAX_BLOCKS] = {NULL};
            struct weft_layout layout[WEFT_MAX_BLOCKS];
            int32_t n = norms ? 1 : s->n_blocks;
            for (int32_t b = 0; b < n; b++) {
                weft_layout_get(s, kind, b, &layout[b]);
                flat[b] = fixture_flat(&layout[b], kind, l, b);
                if (kind == WEFT_TILE_EMBED && s->tied)
                    fixture_tie(s, b, flat[b]);
            }
            if (kind == WEFT_TILE_LAYER)
                weft_k_share_range(s, weft_all_blocks(s), flat);
            for (int32_t b = 0; b < n; b++) {
                for (int32_t p = 0; p < m->n_places; p++)
                    fixture_put(m, p, kind, l, b, &layout[b], flat[b]);
                weft_free(flat[b]);
            }
        }
    }
}

/* The runtime and a sequence alone; with a place per device or one place. */
static inline void fixture_open_rt(struct task_fixture *f, int n_devices,
                                   bool place_per_device)
{
    struct weft_err err;
    struct weft_rt_options options = {.n_devices = n_devices,
                                      .place_per_device = place_per_device,
                                      .policy = &weft_sched_lanes,
                                      .nap = -1,
                                      .check_modes = true,
                                      .profile = true};
    REQUIRE_OK(weft_k_init(NULL, &err), err);
    REQUIRE_OK(weft_rt_start(&options, &f->rt, &err), err);
    REQUIRE_OK(weft_seq_create(f->rt, &f->seq, &err), err);
}

/* The model with random weights at the places of `home`. */
static inline void fixture_open_model(struct task_fixture *f,
                                      const struct weft_shape *shape,
                                      bool trained,
                                      const struct weft_g_layout *home)
{
    struct weft_err err;
    REQUIRE_OK(weft_g_model_init(f->rt, "actor", shape, trained, home,
                                 &f->model, &err),
               err);
    fixture_fill(&f->model);
}

/* Data parallel on dp of the devices. */
static inline void fixture_start_dp(struct task_fixture *f, int n_devices,
                                    int dp, const struct weft_shape *shape,
                                    bool trained)
{
    struct weft_err err;
    struct weft_g_layout home;
    fixture_open_rt(f, n_devices, false);
    REQUIRE_OK(weft_g_layout_simple(f->rt, shape, dp, 1, &home, &err), err);
    fixture_open_model(f, shape, trained, &home);
    weft_g_layout_release(&home);
}

static inline void fixture_start(struct task_fixture *f, int n_devices,
                                 const struct weft_shape *shape, bool trained)
{
    fixture_start_dp(f, n_devices, n_devices, shape, trained);
}

static inline void fixture_stop(struct task_fixture *f)
{
    weft_seq_free(f->seq);
    weft_g_model_release(&f->model);
    weft_rt_stop(f->rt);
}

static inline struct weft_tile *fixture_tile_at(struct task_fixture *f,
                                                size_t bytes, int32_t place)
{
    struct weft_err err;
    struct weft_tile_id id = {"test", "tile", 0, -1, -1, place};
    struct weft_tile *tile = NULL;
    REQUIRE_OK(
        weft_tile_create(f->rt, &id, WEFT_MEM_SAMPLES, bytes, &tile, &err),
        err);
    return tile;
}

static inline struct weft_tile *fixture_tile(struct task_fixture *f,
                                             size_t bytes)
{
    return fixture_tile_at(f, bytes, 0);
}

/* A text of n tokens as a rollout tile. */
static inline struct weft_tile *fixture_text(struct task_fixture *f,
                                             int32_t n_prompt, int32_t n,
                                             uint32_t seed)
{
    struct weft_tile *tile = fixture_tile(f, weft_rollout_bytes(n));
    struct weft_rollout *r = weft_tile_acquire(tile, WEFT_WRITE);
    *r = (struct weft_rollout){n, n_prompt, n, 1};
    for (int32_t i = 0; i < n; i++) {
        float u = weft_rng_uniform(seed, WEFT_RNG_SAMPLE, (uint32_t) i, 0, 0);
        weft_rollout_token(r)[i] = (int32_t) (u * 270);
        weft_rollout_logp(r)[i] = i < n_prompt ? 0 : -5.3f - 0.6f * u;
    }
    weft_tile_unacquire(tile);
    return tile;
}

static const struct weft_where anywhere = {
    .device = -1, .iteration = -1, .micro_batch = -1, .layer = -1};

#endif
