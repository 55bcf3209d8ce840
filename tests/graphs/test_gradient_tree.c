/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over gradient groups against the fixed binary tree, written out over
 * the gradients of the groups one by one, for every data parallel degree: also
 * where a replica's range of groups begins in the middle of a subtree. With
 * beta1 = 0 Adam's first moment is the gradient to the bit.
 */
#include "calls.h"
#include "train_step.h"
#include "codelets/task_fixture.h"

#include "graphs/calls/gather.h"
#include "plan/deal.h"

enum { N = 13, MAX_GROUPS = 16, ROOM = 1 << 18 };
static const int32_t lengths[N] = {5, 33, 9, 12, 7,  2, 21,
                                   3, 40, 8, 8,  17, 4};

static struct weft_shape shape_of(void)
{
    return fixture_shape(WEFT_F32, false, false);
}

/* The first moments of all tiles behind one another; returns how many. */
static size_t read_moments(const struct weft_g_model *m, float *out)
{
    size_t n = 0;
    for (int k = 0; k < WEFT_N_TILE_KINDS; k++)
        for (int32_t i = 0; i < m->shape.n_layers * WEFT_MAX_BLOCKS; i++) {
            enum weft_tile_kind kind = (enum weft_tile_kind) k;
            bool layers = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_LAYER;
            int32_t layer = i / WEFT_MAX_BLOCKS, block = i % WEFT_MAX_BLOCKS;
            bool norms = kind == WEFT_TILE_NORMS || kind == WEFT_TILE_FINAL;
            if ((layer > 0 && !layers) || (block > 0 && norms))
                continue;
            struct weft_tile *tile = weft_g_params_tile(&m->opt[0], kind,
                                                        layer, block);
            if (!tile)
                continue;
            size_t bytes = weft_tile_bytes(tile) / 2;
            REQUIRE(n + bytes / 4 <= ROOM);
            memcpy(out + n, weft_tile_acquire(tile, WEFT_READ), bytes);
            weft_tile_unacquire(tile);
            n += bytes / 4;
        }
    return n;
}

/* The gradient of samples index[0..n), in that order. */
static size_t gradient(int32_t n_groups, int32_t dp, int32_t zero, int32_t n,
                       const int32_t *index, float *out)
{
    struct task_fixture f;
    struct weft_err err;
    struct weft_g_grads grads;
    struct weft_g_gather *gather;
    struct weft_g_copies *copies;
    struct weft_g_order order;
    struct weft_pack_sample pack[N];
    struct weft_g_stats stats[N];
    struct weft_tile *norm;
    int32_t n_stats;
    struct weft_g_layout home;
    struct weft_shape shape = shape_of();
    fixture_open_rt(&f, dp, false);
    REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, dp, 1, &home, &err), err);
    home.plan.zero = zero;
    fixture_open_model(&f, &shape, true, &home);
    weft_g_layout_release(&home);
    REQUIRE_OK(weft_g_grads_init(&f.model, n_groups, &grads, &err), err);
    REQUIRE_OK(weft_g_gather_create(&f.model, &gather, &err), err);
    REQUIRE_OK(weft_g_copies_create(f.rt, &copies, &err), err);
    REQUIRE_OK(weft_g_order_init(f.rt, &order, &err), err);
    for (int32_t i = 0; i < n; i++)
        pack[i] = (struct weft_pack_sample){
            .rollout = fixture_text(&f, 1, lengths[index[i]],
                                    (uint32_t) index[i]),
            .n_prompt = 1,
            .n_total = lengths[index[i]],
            .weight = 0.1f};
    struct weft_g_train t = {
        .model = &f.model,
        .grads = &grads,
        .gather = gather,
        .copies = copies,
        .order = &order,
        .loss = {.loss = WEFT_LOSS_SFT, .inv_temperature = 1},
        .adamw = {.lr = 1e-3f, .beta2 = 0.5f, .eps = 1, .step = 1},
        .micro_batch_rows = 24,
        .call = CALL_ACTOR_TRAIN};
    REQUIRE_OK(train_step(f.seq, &t, n, pack, stats, &n_stats, &norm, &err),
               err);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    size_t n_numbers = read_moments(&f.model, out);
    for (int32_t k = 0; k < n_stats; k++) {
        weft_tile_release(stats[k].tile);
        weft_free(stats[k].sample);
    }
    weft_tile_release(norm);
    for (int32_t i = 0; i < n; i++)
        weft_tile_release(pack[i].rollout);
    weft_g_grads_release(&f.model, &grads);
    weft_g_gather_free(gather);
    weft_g_copies_free(copies);
    weft_g_order_release(&order);
    fixture_stop(&f);
    return n_numbers;
}

static float *leaf[MAX_GROUPS]; /* NULL: a group without samples */

/* The sum over groups lo .. lo + size - 1, in the leftmost's memory. */
static float *tree(int32_t lo, int32_t size, size_t n)
{
    if (size == 1)
        return leaf[lo];
    float *left = tree(lo, size / 2, n);
    float *right = tree(lo + size / 2, size / 2, n);
    if (!left || !right)
        return left ? left : right;
    for (size_t i = 0; i < n; i++)
        left[i] += right[i];
    return left;
}

static void check_tree(int32_t n_groups, int32_t n)
{
    static float found[ROOM];
    struct weft_err err;
    struct weft_shape shape = shape_of();
    int32_t all[N], group[N];
    double cost[N];
    size_t size = 0;
    for (int32_t i = 0; i < n; i++) {
        all[i] = i;
        cost[i] = weft_plan_sample_cost(&shape, lengths[i]);
    }
    REQUIRE_OK(weft_plan_deal(n, cost, n_groups, group, &err), err);
    for (int32_t g = 0; g < n_groups; g++) {
        int32_t index[N], count = 0;
        for (int32_t i = 0; i < n; i++)
            if (group[i] == g)
                index[count++] = i;
        leaf[g] = count ? weft_alloc(ROOM, sizeof *leaf[g]) : NULL;
        if (count)
            size = gradient(1, 1, 0, count, index, leaf[g]);
    }
    const float *expected = tree(0, n_groups, size);
    for (int32_t k = 2; k < 2 * n_groups + 2 && k < 18; k++) {
        int32_t dp = k / 2, zero = 2 * (k % 2), differ = 0;
        CHECK(gradient(n_groups, dp, zero, n, all, found) == size);
        for (size_t i = 0; i < size; i++)
            differ += found[i] != expected[i];
        if (differ)
            printf("\n    dp %d of G %d, zero %d: %d of %zu numbers differ\n",
                   dp, n_groups, zero, differ, size);
        CHECK_INT(differ, 0);
    }
    for (int32_t g = 0; g < n_groups; g++)
        weft_free(leaf[g]);
}

static void test_gradient_tree(void)
{
    check_tree(8, N);
}

/* Groups without samples add nothing, and the others keep their places. */
static void test_gradient_tree_few_samples(void)
{
    check_tree(8, 5);
    check_tree(16, N);
}

WEFT_TESTS("graphs/gradient_tree", {"test_gradient_tree", test_gradient_tree},
           {"test_gradient_tree_few_samples", test_gradient_tree_few_samples})
