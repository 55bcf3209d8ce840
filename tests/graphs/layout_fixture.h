/* SPDX-License-Identifier: Apache-2.0 */
/* Models with every option, and layouts of them on eight devices. */
#ifndef WEFT_TESTS_LAYOUT_FIXTURE_H
#define WEFT_TESTS_LAYOUT_FIXTURE_H

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
    plan.call[WEFT_CALL_ACTOR_TRAIN] = (struct weft_call_plan){
        .mesh = {0, 1, d->first, n},
        .dp = d->dp,
        .tp = d->tp,
        .pp = d->pp,
        .zero = d->zero,
        .micro_batches = d->micro_batches,
        .recompute = d->recompute};
    REQUIRE_OK(
        weft_g_layout_init(&job, s, &plan, WEFT_CALL_ACTOR_TRAIN, out, &err),
        err);
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

#endif
