/* SPDX-License-Identifier: Apache-2.0 */
/* Work of a layer's parts: passes over its rows, and operations of products
 * against those of matrices one by one. */
#include "codelets/parts.h"
#include "codelets/work.h"
#include "harness.h"

enum {
    H = 16,
    FF = 40,
    HEADS = 4,
    KV_HEADS = 2,
    D = 4,
    LAYERS = 3,
    VOCAB = 64
};
enum { ROWS = 5, KEYS = 15 };

static struct weft_shape shape;

static void open_shape(void)
{
    struct weft_err err;
    shape = (struct weft_shape){.hidden = H,
                                .n_layers = LAYERS,
                                .n_heads = HEADS,
                                .n_kv_heads = KV_HEADS,
                                .head_dim = D,
                                .intermediate = FF,
                                .vocab = VOCAB,
                                .dtype = WEFT_BF16};
    REQUIRE_OK(weft_shape_partition(&shape, 1, &err), err);
}

static struct weft_work layer(int parts)
{
    const struct weft_work_rows rows = {.n_rows = ROWS, .n_keys = KEYS};
    return weft_work_layer(&shape, (struct weft_range){0, shape.n_blocks},
                           parts, &rows);
}

/* A product of (ROWS, n) by (n, m). */
static double product(double n, double m)
{
    return 2 * ROWS * n * m;
}

static void test_layer(void)
{
    const int backward = WEFT_WORK_MLP_BACKWARD | WEFT_WORK_HEADS_BACKWARD
                       | WEFT_WORK_QKV_BACKWARD;
    const int again = WEFT_WORK_ATTENTION | WEFT_WORK_MLP_INPUT;
    open_shape();
    struct weft_work forward = layer(WEFT_WORK_ATTENTION | WEFT_WORK_MLP);
    double flop = product(H, HEADS * D) + 2 * product(H, KV_HEADS * D)
                + product(HEADS * D, H) + 3 * product(H, FF)
                + 2 * (2.0 * KEYS * HEADS * D); /* scores, values */
    CHECK(forward.flop == flop);
    CHECK_INT(forward.n_passes, 1);
    /* of a layer in two parts the first has it */
    CHECK_INT(layer(WEFT_WORK_ATTENTION).n_passes, 1);
    CHECK_INT(layer(WEFT_WORK_MLP).n_passes, 0);
    CHECK_INT(layer(backward).n_passes, 2);
    CHECK_INT(layer(backward | again).n_passes, 3);
    CHECK_INT(layer(backward | again).n_layers, 1);
}

/* A loss has three products with the head's matrix, and one more for rows whose
 * logits have no room in 64 MiB. */
static void test_head(void)
{
    enum { COLUMNS = 1 << 20, KEPT = 16 };
    const struct weft_work_rows rows = {.n_rows = 30, .n_targets = 20};
    open_shape();
    shape.vocab = COLUMNS;
    struct weft_err err;
    REQUIRE_OK(weft_shape_partition(&shape, 1, &err), err);
    struct weft_range all = weft_all_blocks(&shape);
    double one = 2.0 * H * COLUMNS;
    CHECK(weft_work_head_backward(&shape, all, 3, false, &rows).flop
          == 4 * 20 * one);
    CHECK(weft_work_head_backward(&shape, all, 3, true, &rows).flop
          == (3 * 20 + 20 - KEPT) * one);
    CHECK_INT(weft_part_logits_bytes(&shape, all, 20), 64 << 20);
    CHECK_INT(weft_part_logits_bytes(&shape, all, 3), 3 * 4 * COLUMNS);
}

static void test_steps(void)
{
    const struct weft_work_rows step[] = {{4, 4, 8, 4}, {2, 2, 6, 4}};
    open_shape();
    struct weft_work work = weft_work_steps(
        &shape, (struct weft_range){0, shape.n_blocks}, LAYERS, true, 2,
        step);
    CHECK_INT(work.n_steps, 2);
    CHECK_INT(work.n_rows, 6);
    CHECK_INT(work.n_layers, LAYERS);
    CHECK_INT(work.n_passes, LAYERS);
}

WEFT_TESTS("codelets/work", {"test_layer", test_layer},
           {"test_head", test_head}, {"test_steps", test_steps})
