/* SPDX-License-Identifier: Apache-2.0 */
/* What codelets compute at the places of GPUs has the bits of CPU places. */
#include "gpus_fixture.h"

#include <math.h>

#include "codelets/parts.h"
#include "kern/kern_cuda.h"

/* ---- Bodies -------------------------------------------------------------- */

enum { N_PROMPT = 5, N_TOTAL = 37 };

/* What is computed at one place: x of the embedding, its gradient, and a layer
 * after two steps. */
struct result {
    float *x;
    float *grad[WEFT_MAX_BLOCKS];
    float *opt[WEFT_GROUP_TILES];
};

static float *fetch(struct weft_tile *tile)
{
    size_t bytes = weft_tile_bytes(tile);
    float *copy = weft_alloc_aligned(bytes, 1);
    memcpy(copy, weft_tile_acquire(tile, WEFT_READ), bytes);
    weft_tile_unacquire(tile);
    weft_tile_release(tile);
    return copy;
}

static struct weft_tile *filled(int place, enum weft_mem_class c,
                                uint32_t stream, size_t bytes)
{
    float *x = numbers(stream, bytes / 4);
    struct weft_tile *tile = tile_at(place, c, bytes);
    put(tile, x);
    weft_free(x);
    return tile;
}

static struct weft_tile *rollout_at(int place, const struct weft_shape *s)
{
    size_t bytes = weft_rollout_bytes(N_TOTAL);
    struct weft_tile *tile = tile_at(place, WEFT_MEM_SAMPLES, bytes);
    struct weft_rollout *r = weft_tile_acquire(tile, WEFT_WRITE);
    memset(r, 0, bytes);
    *r = (struct weft_rollout){N_TOTAL, N_PROMPT, N_TOTAL, 1};
    for (int32_t i = 0; i < N_TOTAL; i++)
        weft_rollout_token(r)[i] = i * i % s->vocab;
    weft_tile_unacquire(tile);
    return tile;
}

static void embed_at(int place, const struct weft_shape *s,
                     struct result *out)
{
    struct weft_params p = {.embed = {NULL}}, grad = {.embed = {NULL}};
    struct weft_where where = at(place);
    struct weft_pack_sample sample = {.rollout = rollout_at(place, s),
                                      .n_prompt = N_PROMPT,
                                      .n_total = N_TOTAL,
                                      .weight = 1};
    struct weft_batch layout;
    size_t x_bytes = (size_t) (N_TOTAL * s->hidden) * sizeof(float);
    weft_batch_layout(N_TOTAL, 1, N_TOTAL - N_PROMPT, false, &layout);
    struct weft_tile *batch = temp_at(place, WEFT_MEM_SAMPLES, layout.bytes);
    struct weft_tile *x = temp_at(place, WEFT_MEM_ACTIVATIONS, x_bytes);
    struct weft_tile *dx = filled(place, WEFT_MEM_ACTIVATIONS, 3, x_bytes);
    for (int32_t b = 0; b < s->n_blocks; b++) {
        struct weft_layout embed;
        weft_layout_get(s, WEFT_TILE_EMBED, b, &embed);
        float *flat = fixture_flat(&embed, WEFT_TILE_EMBED, 0, b);
        void *table = weft_alloc_aligned(embed.fwd_bytes, 1);
        weft_convert(table, s->dtype, flat, WEFT_F32, embed.n_flat);
        p.embed[b] = tile_at(place, WEFT_MEM_WEIGHTS, embed.fwd_bytes);
        put(p.embed[b], table);
        grad.embed[b] = filled(place, WEFT_MEM_GRADIENTS, 20 + (uint32_t) b,
                               embed.n_flat * sizeof(float));
        weft_free(table);
        weft_free(flat);
    }
    weft_insert_pack(seq, &where, WEFT_TARGETS_RESPONSE, false, 1, &sample,
                     NULL, batch);
    weft_insert_embed(seq, &where, s, &p, batch, x);
    weft_insert_embed_backward_part(seq, &where, s, weft_all_blocks(s), batch,
                                    dx, &grad);
    must_wait();
    out->x = fetch(x);
    for (int32_t b = 0; b < s->n_blocks; b++) {
        out->grad[b] = fetch(grad.embed[b]);
        weft_tile_release(p.embed[b]);
    }
    weft_tile_release(batch);
    weft_tile_release(dx);
    weft_tile_release(sample.rollout);
}

static struct weft_tile **tile_of(struct weft_layer_tiles *tiles, int32_t i)
{
    return i == WEFT_MAX_BLOCKS ? &tiles->norms : &tiles->block[i];
}

/* Two steps of a layer's optimizer; the second norm closes its gate. */
static void adamw_at(int place, const struct weft_shape *s,
                     struct result *out)
{
    struct weft_k_adamw o = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1};
    struct weft_layer_tiles grad = {.norms = NULL}, opt = grad, fwd = grad;
    struct weft_chunks chunks = {{{0, 0}}};
    struct weft_where where = at(place);
    struct weft_grad_norm value = {3, 0.25f, 0};
    struct weft_tile *norm = tile_at(place, WEFT_MEM_SAMPLES, sizeof value);
    for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
        struct weft_layout layout;
        bool norms = i == WEFT_MAX_BLOCKS;
        enum weft_tile_kind kind = norms ? WEFT_TILE_NORMS : WEFT_TILE_LAYER;
        if (!norms && i >= s->n_blocks)
            continue;
        weft_layout_get(s, kind, norms ? 0 : i, &layout);
        chunks.of[i] = (struct weft_range){0, weft_layout_n_chunks(&layout)};
        size_t bytes = weft_opt_bytes(s, kind, layout.n_flat);
        float *state = numbers(60 + (uint32_t) i, bytes / 4);
        for (size_t k = 0; k < bytes / 4; k++)
            state[k] = fabsf(state[k]); /* second moments are positive */
        *tile_of(&opt, i) = tile_at(place, WEFT_MEM_OPTIMIZER, bytes);
        put(*tile_of(&opt, i), state);
        weft_free(state);
        *tile_of(&grad, i) = filled(place, WEFT_MEM_GRADIENTS,
                                    40 + (uint32_t) i,
                                    layout.n_flat * sizeof(float));
        *tile_of(&fwd, i) = filled(place, WEFT_MEM_WEIGHTS, 80 + (uint32_t) i,
                                   layout.fwd_bytes);
    }
    put(norm, &value);
    weft_insert_adamw(seq, &where, s, &o, WEFT_GROUP_LAYER, &chunks, &grad,
                      norm, &opt, &fwd);
    must_wait();
    value.skip = 1;
    put(norm, &value);
    weft_insert_adamw(seq, &where, s, &o, WEFT_GROUP_LAYER, &chunks, &grad,
                      norm, &opt, &fwd);
    must_wait();
    for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
        if (!*tile_of(&opt, i))
            continue;
        out->opt[i] = fetch(*tile_of(&opt, i));
        weft_tile_release(*tile_of(&grad, i));
        weft_tile_release(*tile_of(&fwd, i));
    }
    weft_tile_release(norm);
}

static void compare(const struct weft_shape *s, int place)
{
    struct result cpu = {NULL}, gpu = {NULL};
    embed_at(host_place(), s, &cpu);
    embed_at(place, s, &gpu);
    adamw_at(host_place(), s, &cpu);
    adamw_at(place, s, &gpu);
    CHECK(memcmp(cpu.x, gpu.x, (size_t) (N_TOTAL * s->hidden) * 4) == 0);
    for (int32_t b = 0; b < s->n_blocks; b++) {
        struct weft_layout embed;
        weft_layout_get(s, WEFT_TILE_EMBED, b, &embed);
        CHECK(memcmp(cpu.grad[b], gpu.grad[b], embed.n_flat * 4) == 0);
        weft_free(cpu.grad[b]);
        weft_free(gpu.grad[b]);
    }
    for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
        struct weft_layout layout;
        bool norms = i == WEFT_MAX_BLOCKS;
        enum weft_tile_kind kind = norms ? WEFT_TILE_NORMS : WEFT_TILE_LAYER;
        if (!cpu.opt[i])
            continue;
        weft_layout_get(s, kind, norms ? 0 : i, &layout);
        CHECK(memcmp(cpu.opt[i], gpu.opt[i],
                     weft_opt_bytes(s, kind, layout.n_flat))
              == 0);
        weft_free(cpu.opt[i]);
        weft_free(gpu.opt[i]);
    }
    weft_free(cpu.x);
    weft_free(gpu.x);
}

static void bodies(void)
{
    start(0);
    for (int dtype = 0; dtype < 2; dtype++) {
        struct weft_shape s = fixture_shape(dtype ? WEFT_BF16 : WEFT_F32,
                                            false, false);
        for (int place = 0; place < host_place(); place++)
            compare(&s, place);
    }
    stop();
}

static void test_bodies(void)
{
    if (weft_k_isa() == WEFT_ISA_C) {
        weft_test_skip("this CPU has no fused multiply-adds");
        return;
    }
    each_card_order(bodies);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_bodies", test_bodies}};
    return gpus_main("codelets/gpu_bodies", tests, WEFT_COUNT(tests));
}
