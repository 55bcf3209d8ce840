/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task graph of one's own: one decoder layer with random weights on two
 * micro-batches, as tasks on tiles. Nothing says that the second pack may run
 * beside the first layer: it follows from what the tasks read and write.
 *
 *     $ examples/03_layer_graph
 */
#include <string.h>

#include "base/rng.h"
#include "check.h"
#include "codelets/codelets.h"

enum { N_TOKENS = 5, HIDDEN = 64, N_BATCHES = 2 };

static struct weft_shape tiny_shape(void)
{
    struct weft_err err = {0};
    struct weft_shape shape = {.hidden = HIDDEN,
                               .n_layers = 1,
                               .n_heads = 4,
                               .n_kv_heads = 2,
                               .head_dim = 16,
                               .intermediate = 128,
                               .vocab = 256,
                               .max_positions = 64,
                               .rms_eps = 1e-6f,
                               .rope_theta = 10000,
                               .dtype = WEFT_F32};
    CHECK(weft_shape_partition(&shape, 2, &err)); /* T = 2 tensor blocks */
    return shape;
}

/* A tile of one kind, filled with small random weights, published. */
static struct weft_tile *make(struct weft_rt *rt,
                              const struct weft_shape *shape,
                              enum weft_tile_kind kind, int32_t block)
{
    struct weft_err err = {0};
    struct weft_tile_id id = {"example", "weights", 0, 0, block, 0};
    struct weft_layout layout;
    struct weft_tile *tile;
    weft_layout_get(shape, kind, block, &layout);
    CHECK(weft_tile_create(rt, &id, WEFT_MEM_WEIGHTS, layout.fwd_bytes, &tile,
                           &err));
    float *w = weft_tile_acquire(tile, WEFT_WRITE);
    for (size_t i = 0; i < layout.n_flat; i++) /* f32: flat order is it */
        w[i] = kind == WEFT_TILE_NORMS
                 ? 1
                 : (float) (0.05
                            * weft_rng_normal(
                                1, WEFT_RNG_INIT, (uint32_t) kind,
                                (uint32_t) block, (uint32_t) i));
    weft_tile_unacquire(tile);
    return tile;
}

static struct weft_tile *temp(struct weft_rt *rt, const char *kind,
                              size_t bytes)
{
    struct weft_err err = {0};
    struct weft_tile_id id = {"example", kind, 0, -1, -1, 0};
    struct weft_tile *tile;
    CHECK(
        weft_tile_create(rt, &id, WEFT_MEM_ACTIVATIONS, bytes, &tile, &err));
    return tile;
}

int main(void)
{
    struct weft_err err = {0};
    struct weft_context *context;
    struct weft_seq *seq;
    struct weft_shape shape = tiny_shape();
    struct weft_layer_tiles layer = {.norms = NULL};
    struct weft_params params = {.layer = &layer};
    struct weft_tile *text, *batch[N_BATCHES], *x[N_BATCHES];
    struct weft_where where = {
        .device = -1, .iteration = -1, .micro_batch = -1, .layer = 0};

    CHECK(weft_context_open(2, &context, &err));
    struct weft_rt *rt = weft_context_rt(context);
    CHECK(weft_seq_create(rt, &seq, &err));
    layer.norms = make(rt, &shape, WEFT_TILE_NORMS, 0);
    for (int32_t t = 0; t < shape.n_blocks; t++) {
        layer.block[t] = make(rt, &shape, WEFT_TILE_LAYER, t);
        params.embed[t] = make(rt, &shape, WEFT_TILE_EMBED, t);
    }
    text = temp(rt, "text", weft_rollout_bytes(N_TOKENS));
    struct weft_rollout *r = weft_tile_acquire(text, WEFT_WRITE);
    *r = (struct weft_rollout){N_TOKENS, 1, N_TOKENS, 1};
    memcpy(weft_rollout_token(r), (const int32_t[]){72, 101, 108, 108, 111},
           N_TOKENS * sizeof(int32_t));
    weft_tile_unacquire(text);

    for (int i = 0; i < N_BATCHES; i++) { /* submit; nothing waits here */
        struct weft_pack_sample sample = {
            .rollout = text, .n_prompt = 1, .n_total = N_TOKENS, .weight = 1};
        struct weft_batch size;
        weft_batch_layout(N_TOKENS, 1, N_TOKENS - 1, false, &size);
        batch[i] = temp(rt, "batch", size.bytes);
        x[i] = temp(rt, "activation", N_TOKENS * HIDDEN * sizeof(float));
        weft_insert_pack(seq, &where, WEFT_TARGETS_RESPONSE, false, 1,
                         &sample, NULL, batch[i]);
        weft_insert_embed(seq, &where, &shape, &params, batch[i], x[i]);
        weft_insert_layer_forward(seq, &where, &shape, &params, 0, batch[i],
                                  x[i], NULL, x[i], NULL);
    }
    CHECK(weft_seq_wait(seq, &err));

    const float *a = weft_tile_acquire(x[0], WEFT_READ);
    const float *b = weft_tile_acquire(x[1], WEFT_READ);
    int same = memcmp(a, b, N_TOKENS * HIDDEN * sizeof *a) == 0;
    printf("last row: %.6f %.6f %.6f ...\n",
           (double) a[(N_TOKENS - 1) * HIDDEN],
           (double) a[(N_TOKENS - 1) * HIDDEN + 1],
           (double) a[(N_TOKENS - 1) * HIDDEN + 2]);
    printf("both micro-batches: %s\n", same ? "the same bits" : "differ");
    weft_tile_unacquire(x[0]);
    weft_tile_unacquire(x[1]);
    for (int i = 0; i < N_BATCHES; i++) {
        weft_tile_release(batch[i]);
        weft_tile_release(x[i]);
    }
    weft_tile_release(text);
    weft_tile_release(layer.norms);
    for (int32_t t = 0; t < shape.n_blocks; t++) {
        weft_tile_release(layer.block[t]);
        weft_tile_release(params.embed[t]);
    }
    weft_seq_free(seq);
    weft_context_close(context);
    return same ? 0 : 1;
}
