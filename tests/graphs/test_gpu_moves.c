/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that move between CPU devices and GPUs arrive in the order of the
 * kind that they come to, at every place of it. */
#include "../codelets/gpus_fixture.h"

#include "graphs/calls/calls.h"

static struct weft_shape shape;

/* The random bytes that a tile of the model has. */
static char *bytes_of(enum weft_tile_kind kind, int32_t layer, int32_t block,
                      size_t bytes)
{
    uint32_t stream = (uint32_t) (kind * 64 + (layer + 1) * 8 + block);
    return (char *) numbers(stream, bytes / sizeof(float));
}

typedef void (*visit_fn)(struct weft_tile *tile, enum weft_tile_kind kind,
                         int32_t layer, int32_t block, bool on_gpu);

static bool home_on_gpus;

/* Visits the tiles of one place; returns how many there are. */
static int visit_place(const struct weft_params *p, bool on_gpu,
                       visit_fn visit)
{
    int n = 0;
    for (int k = 0; k < WEFT_N_TILE_KINDS; k++)
        for (int32_t l = 0; l < shape.n_layers; l++)
            for (int32_t b = 0; b < shape.n_blocks; b++) {
                enum weft_tile_kind kind = (enum weft_tile_kind) k;
                bool layers = kind == WEFT_TILE_LAYER
                           || kind == WEFT_TILE_NORMS;
                bool norms = kind == WEFT_TILE_NORMS
                          || kind == WEFT_TILE_FINAL;
                if ((l > 0 && !layers) || (b > 0 && norms))
                    continue;
                struct weft_tile *tile = weft_g_params_tile(p, kind, l, b);
                REQUIRE(tile != NULL);
                visit(tile, kind, l, b, on_gpu);
                n++;
            }
    return n;
}

static void fill(struct weft_tile *tile, enum weft_tile_kind kind,
                 int32_t layer, int32_t block, bool on_gpu)
{
    char *bytes = bytes_of(kind, layer, block, weft_tile_bytes(tile));
    (void) on_gpu;
    put(tile, bytes);
    weft_free(bytes);
}

static void check(struct weft_tile *tile, enum weft_tile_kind kind,
                  int32_t layer, int32_t block, bool on_gpu)
{
    size_t n = weft_tile_bytes(tile);
    char *bytes = bytes_of(kind, layer, block, n);
    char *other = weft_alloc_aligned(n, 1);
    struct weft_layout layout;
    weft_layout_get(&shape, kind, block, &layout);
    bool same = on_gpu == home_on_gpus;
    if (!same)
        weft_k_reorder(&layout, shape.dtype, on_gpu, bytes, other);
    /* gaps between parts are not written in order */
    const char *got = weft_tile_acquire(tile, WEFT_READ);
    for (int32_t i = 0; i < layout.n_parts; i++) {
        const struct weft_part *p = &layout.part[i];
        bool matrix = p->k > 0;
        size_t at = p->fwd_bytes,
               size = matrix ? weft_dtype_bytes(shape.dtype) : sizeof(float);
        CHECK(memcmp(got + at, (same ? bytes : other) + at, p->n_flat * size)
              == 0);
    }
    weft_tile_unacquire(tile);
    weft_free(bytes);
    weft_free(other);
}

/* From one device of a kind to two of the other. */
static void move(enum weft_dtype dtype, bool to_gpus)
{
    struct weft_err err;
    struct weft_g_model model;
    struct weft_g_view view;
    const struct weft_where where = {.device = -1, .layer = -1};
    start(0);
    int n_gpus = weft_rt_n_gpus(rt), n_to = to_gpus ? n_gpus : CPUS;
    shape = fixture_shape(dtype, false, false);
    home_on_gpus = !to_gpus;
    struct weft_g_layout home = layout_on(&shape, to_gpus ? n_gpus : 0, 1, 1,
                                          1);
    struct weft_g_layout to = layout_on(&shape, to_gpus ? 0 : n_gpus, n_to, 1,
                                        1);
    REQUIRE_OK(
        weft_g_model_init(rt, "actor", &shape, false, &home, &model, &err),
        err);
    CHECK_INT(model.home.on_gpus, home_on_gpus);
    visit_place(&model.fwd[to_gpus ? host_place() : 0], home_on_gpus, fill);
    REQUIRE_OK(weft_g_view_open(seq, &where, &model, &to, &view, &err), err);
    must_wait();
    for (int p = to_gpus ? 0 : host_place();
         p <= (to_gpus ? n_gpus - 1 : host_place()); p++)
        CHECK(visit_place(&view.fwd[p], to_gpus, check) > 0);
    weft_g_view_close(&view);
    weft_g_layout_release(&home);
    weft_g_layout_release(&to);
    weft_g_model_release(&model);
    stop();
}

static void moves(void)
{
    for (int dtype = WEFT_F32; dtype <= WEFT_BF16; dtype++) {
        move((enum weft_dtype) dtype, true);
        move((enum weft_dtype) dtype, false);
    }
}

static void test_moves(void)
{
    each_card_order(moves);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_moves", test_moves}};
    return gpus_main("graphs/gpu_moves", tests, WEFT_COUNT(tests));
}
