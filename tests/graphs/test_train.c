/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "train_step.h"
#include "codelets/task_fixture.h"

#include "base/hash.h"
#include "graphs/calls/gather.h"

enum { N = 7 };
static const int32_t lengths[N] = {5, 33, 9, 64, 70, 2, 21};

/* A device that joins leaves as soon as two equal neighbours are done holds
 * this many sets at once: counted by playing it. */
static int32_t played(int32_t n_groups, int32_t dp, int32_t d)
{
    int32_t size[64], lo[64], n = 0, most = 0;
    for (int32_t g = 0; g < n_groups; g++) {
        if (g * dp / n_groups != d)
            continue;
        lo[n] = g;
        size[n++] = 1;
        most = n > most ? n : most;
        while (n > 1 && size[n - 1] == size[n - 2]
               && lo[n - 2] % (2 * size[n - 1]) == 0) {
            size[n - 2] *= 2;
            n--;
        }
    }
    return most;
}

static void test_grads_needed(void)
{
    for (int32_t n_groups = 1; n_groups <= 64; n_groups *= 2)
        for (int32_t dp = 1; dp <= n_groups; dp++)
            for (int32_t d = 0; d < dp; d++)
                CHECK_INT(
                    weft_g_grads_needed(weft_plan_range(n_groups, dp, d)),
                    played(n_groups, dp, d));
    CHECK_INT(weft_g_grads_needed((struct weft_range){0, 4}), 3);
    CHECK_INT(weft_g_grads_needed((struct weft_range){2, 1}), 1);
}

/* Two optimizer steps; returns a hash of all weights, and the first norm. */
static struct weft_hash train(int devices, int32_t n_groups, int32_t dp,
                              int32_t rows, bool recompute, int32_t n,
                              enum weft_dtype dtype, bool tied,
                              double *norm_out)
{
    struct task_fixture f;
    struct weft_err err;
    struct weft_g_grads grads;
    struct weft_pack_sample pack[N];
    struct weft_shape shape = fixture_shape(dtype, false, tied);
    struct weft_hash hash[2 * WEFT_MAX_BLOCKS];
    struct weft_g_gather *gather;
    struct weft_g_copies *copies;
    struct weft_g_order order;
    fixture_start_dp(&f, devices, dp, &shape, true);
    f.model.home.plan.recompute = recompute;
    REQUIRE_OK(weft_g_grads_init(&f.model, n_groups, &grads, &err), err);
    REQUIRE_OK(weft_g_gather_create(&f.model, &gather, &err), err);
    REQUIRE_OK(weft_g_copies_create(f.rt, &copies, &err), err);
    REQUIRE_OK(weft_g_order_init(f.rt, &order, &err), err);
    for (int i = 0; i < n; i++)
        pack[i] = (struct weft_pack_sample){
            .rollout = fixture_text(&f, 1, lengths[i], (uint32_t) i),
            .n_prompt = 1,
            .n_total = lengths[i],
            .weight = 0.01f};
    for (int step = 0; step < 2; step++) {
        struct weft_g_stats stats[N];
        struct weft_tile *norm;
        int32_t n_stats;
        struct weft_g_train t = {
            .model = &f.model,
            .grads = &grads,
            .gather = gather,
            .copies = copies,
            .order = &order,
            .loss = {.loss = WEFT_LOSS_SFT, .inv_temperature = 1},
            .adamw = {1e-2f, 0.9f, 0.999f, 1e-8f, 0.1f, step + 1},
            .grad_clip = 1,
            .micro_batch_rows = rows,
            .call = CALL_ACTOR_TRAIN};
        REQUIRE_OK(
            train_step(f.seq, &t, n, pack, stats, &n_stats, &norm, &err),
            err);
        REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
        weft_g_order_reset(&order);
        weft_g_copies_drop(copies);
        int32_t seen = 0;
        for (int32_t k = 0; k < n_stats; k++) {
            seen += stats[k].n;
            weft_tile_release(stats[k].tile);
            weft_free(stats[k].sample);
        }
        CHECK_INT(seen, n);
        const struct weft_grad_norm *g = weft_tile_acquire(norm, WEFT_READ);
        if (step == 0)
            *norm_out = g->norm;
        weft_tile_unacquire(norm);
        weft_tile_release(norm);
    }
    for (int32_t b = 0; b < shape.n_blocks; b++) {
        struct weft_tile *tile[2] = {f.model.fwd[0].layer[0].block[b],
                                     f.model.fwd[0].embed[b]};
        for (int k = 0; k < 2; k++) {
            const void *p = weft_tile_acquire(tile[k], WEFT_READ);
            hash[2 * b + k] = weft_hash128(p, weft_tile_bytes(tile[k]));
            weft_tile_unacquire(tile[k]);
        }
    }
    for (int i = 0; i < n; i++)
        weft_tile_release(pack[i].rollout);
    weft_g_grads_release(&f.model, &grads);
    weft_g_gather_free(gather);
    weft_g_copies_free(copies);
    weft_g_order_release(&order);
    fixture_stop(&f);
    return weft_hash128(hash, 2 * (size_t) shape.n_blocks * sizeof *hash);
}

/* Data parallelism, micro-batches and recompute change nothing. */
static void test_train_placements(void)
{
    static const struct {
        int devices, dp, rows;
        bool recompute;
    } to[] = {{1, 1, 1, false},  {1, 1, 80, true}, {2, 2, 64, false},
              {3, 3, 64, false}, {4, 4, 64, true}, {4, 2, 200, false},
              {2, 1, 64, false}};
    for (int d = 0; d < 2; d++)
        for (int tied = 0; tied < 2; tied++) {
            enum weft_dtype dtype = d ? WEFT_BF16 : WEFT_F32;
            double norm, first;
            struct weft_hash expected = train(1, 4, 1, 1000, false, N, dtype,
                                              tied, &first);
            CHECK(first > 0.01);
            for (size_t i = 0; i < WEFT_COUNT(to); i++) {
                struct weft_hash found = train(to[i].devices, 4, to[i].dp,
                                               to[i].rows, to[i].recompute, N,
                                               dtype, tied, &norm);
                CHECK(weft_hash_equal(expected, found));
                CHECK(norm == first);
            }
        }
}

/* Fewer samples than gradient groups: empty leaves add nothing. */
static void test_train_few_samples(void)
{
    double norm, first;
    struct weft_hash expected = train(1, 8, 1, 1000, false, 3, WEFT_F32, true,
                                      &first);
    struct weft_hash found = train(4, 8, 4, 10, false, 3, WEFT_F32, true,
                                   &norm);
    CHECK(weft_hash_equal(expected, found));
    (void) train(2, 2, 2, 10, false, 1, WEFT_F32, true, &norm);
    CHECK(norm > 0);
}

WEFT_TESTS("graphs/train", {"test_grads_needed", test_grads_needed},
           {"test_train_placements", test_train_placements},
           {"test_train_few_samples", test_train_few_samples})
