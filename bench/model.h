/* SPDX-License-Identifier: Apache-2.0 */
/* Models of random weights, for measurements. */
#ifndef WEFT_BENCH_MODEL_H
#define WEFT_BENCH_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "bench/check.h"
#include "graphs/calls/calls.h"
#include "lm/context.h"

static struct weft_context *context;
static struct weft_seq *seq;
static const struct weft_where anywhere = {
    .device = -1, .iteration = -1, .micro_batch = -1, .layer = -1};

static inline struct weft_shape shape_of(const char *size,
                                         enum weft_dtype dtype)
{
    bool big = strcmp(size, "110m") == 0;
    struct weft_shape s = {.hidden = big ? 768 : 128,
                           .n_layers = big ? 12 : 4,
                           .n_heads = big ? 12 : 4,
                           .n_kv_heads = big ? 12 : 4,
                           .head_dim = big ? 64 : 32,
                           .intermediate = big ? 2048 : 384,
                           .vocab = big ? 32000 : 512,
                           .max_positions = 2048,
                           .rms_eps = 1e-6f,
                           .rope_theta = 10000,
                           .tied = true,
                           .dtype = dtype};
    CHECK(weft_shape_partition(&s, 0, &err));
    return s;
}

/* Small weights in every tile: published once from one random vector. */
static inline void fill(const struct weft_g_model *m)
{
    const struct weft_shape *s = &m->shape;
    for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++)
        for (int32_t b = 0; b < s->n_blocks; b++) {
            struct weft_layout layout;
            bool vector = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
            if (vector && b > 0)
                continue;
            weft_layout_get(s, (enum weft_tile_kind) kind, b, &layout);
            float *flat = weft_alloc_aligned(layout.n_flat, 4);
            for (size_t i = 0; i < layout.n_flat; i++)
                flat[i] = vector
                            ? 1
                            : 0.04f
                                  * (weft_rng_uniform(
                                         1, WEFT_RNG_INIT, (uint32_t) kind,
                                         (uint32_t) b, (uint32_t) i)
                                     - 0.5f);
            bool per_layer = kind == WEFT_TILE_LAYER
                          || kind == WEFT_TILE_NORMS;
            for (int32_t l = 0; l < (per_layer ? s->n_layers : 1); l++) {
                enum weft_tile_kind k = (enum weft_tile_kind) kind;
                struct weft_tile *fwd = weft_g_params_tile(&m->fwd[0], k, l,
                                                           b);
                struct weft_tile *bwd = m->bwd ? weft_g_params_tile(
                                            &m->bwd[0], k, l, b)
                                               : NULL;
                void *f = weft_tile_acquire(fwd, WEFT_WRITE);
                void *t = bwd ? weft_tile_acquire(bwd, WEFT_WRITE) : NULL;
                weft_k_publish(&layout, s->dtype, flat, f, t);
                weft_tile_unacquire(fwd);
                if (bwd)
                    weft_tile_unacquire(bwd);
            }
            weft_free(flat);
        }
}

/* Opens a context of so many devices, and a model of random weights there. */
static inline void open_model(const char *size, const char *dtype,
                              int devices, bool trained,
                              struct weft_shape *shape,
                              struct weft_g_model *out)
{
    struct weft_g_layout home;
    struct weft_context_options options = {
        .rt = {.n_devices = devices, .nap = -1}};
    CHECK(weft_context_open_with(&options, &context, &err));
    seq = context->seq;
    *shape = shape_of(size,
                      strcmp(dtype, "bf16") == 0 ? WEFT_BF16 : WEFT_F32);
    CHECK(weft_g_layout_simple(context->rt, shape, devices, 1, &home, &err));
    CHECK(weft_g_model_init(context->rt, "bench", shape, trained, &home, out,
                            &err));
    weft_g_layout_release(&home);
    fill(out);
    printf("%s, %s, %d device%s, %s\n", size, dtype, devices,
           devices > 1 ? "s" : "", weft_k_isa_name(weft_k_isa()));
}

#endif
