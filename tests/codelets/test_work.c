/* SPDX-License-Identifier: Apache-2.0 */
/* Work of a layer's parts: passes over its rows, and operations of products
 * against those of matrices one by one. */
#include <math.h>

#include "codelets/gang.h"
#include "codelets/generation.h"
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

/* What each of three members that have 1, 2 and 1 of four blocks reads of the
 * others, in stages of two layers: roots of two sums of each, of which the
 * second member has two (blocks 1 and 2 are no half of the tree), tokens' rows
 * from whoever has them, and the first one all other columns of the logits. From
 * 160 rows on each adds a third of the rows, and copies the rest. A stage alone
 * has both ends, and the first one's tokens and log-probs for the others. */
enum { COLUMNS = 4 * 64 };

static void exchange_of(int32_t n_rows, bool shared)
{
    static const struct weft_range range[] = {{0, 1}, {1, 2}, {3, 1}};
    static const int32_t n_roots[] = {1, 2, 1};
    const struct weft_work_rows rows = {.n_rows = n_rows, .n_targets = 7};
    for (int32_t stage = 0; stage < 4; stage++) /* the last is alone */
        for (int32_t k = 0; k < 3; k++) {
            bool first = stage % 3 == 0, last = stage >= 2;
            struct weft_gang_ranges members = {
                3, {range[0], range[1], range[2]}, {0, 2, first, last}};
            struct weft_work work = {.received = 0};
            double want = 0, each = n_rows / 3.0;
            int32_t sums = 0;
            for (int32_t sum = 0; sum < 4; sum++) {
                for (int32_t i = 0; i < 3; i++)
                    want += i == k ? 0
                          : shared ? (n_roots[i] * each + each) * H
                                   : n_roots[i] * n_rows * H;
                sums += shared ? 2 : 1;
            }
            for (int32_t i = 0; i < 3; i++) {
                want += first && i != k ? each * H : 0;
                want += last && k == 0 && i != k
                          ? 7 * range[i].n * COLUMNS / 4
                          : 0;
            }
            want += stage == 3 && k > 0 ? 7 * 2 : 0;
            /* twice, with a step between that nobody has rows in */
            const struct weft_work_rows step[] = {rows, {0}, rows};
            weft_gen_exchange_work(&shape, &members, k, 3, step, &work);
            CHECK(fabs(work.received - 8 * want) < 1e-6 * want);
            CHECK_INT(work.n_received,
                      2 * (sums + first + last + (stage == 3)));
        }
}

static void test_exchange(void)
{
    struct weft_err err;
    open_shape();
    shape.intermediate = 4 * 64;
    shape.vocab = COLUMNS;
    REQUIRE_OK(weft_shape_partition(&shape, 4, &err), err);
    exchange_of(1, false);
    exchange_of(159, false);
    exchange_of(160, true);
    exchange_of(1000, true);
}

WEFT_TESTS("codelets/work", {"test_layer", test_layer},
           {"test_head", test_head}, {"test_steps", test_steps},
           {"test_exchange", test_exchange})
