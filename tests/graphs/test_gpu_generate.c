/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that GPUs generate, in any layout, are those of one GPU, and their
 * log-probs are those of inference on the same GPUs, bit for bit. They are a
 * CPU device's where GPUs have its bits; elsewhere what a CPU device says of
 * them is near: log-probs to 1e-5 in f32, to 4e-2 in bf16. */
#define WEFT_TEST_CARDS 4
#include "../codelets/gpus_fixture.h"
#include "../cuda/cpu_bits.h"
#include "generate_fixture.h"
#include "kern/attention_cuda.h"
#include "kern/blaslt_cuda.h"

enum { TEXTS = 5, FEW = 6, MORE = 12 };

static struct task_fixture f;

static const struct cut whole = {1, 9, 8, 100, 0, false, 0, false},
                        steps = {2, 2, 3, 5, 0, true, 0, false},
                        shared = {1, 5, 3, 9, 4, true, 0, false};

static void on_gpus(int32_t dp, int32_t tp, int32_t pp, const struct cut *cut,
                    const struct weft_k_sampling *sampling,
                    const struct text *want)
{
    static struct text gpu[TEXTS];
    struct weft_g_layout layout = layout_on(&f.model.shape, 0, dp, tp, pp);
    struct weft_rollout_stats stats;
    generate(&f, &layout, cut, TEXTS, FEW, sampling, gpu, &stats);
    CHECK(cut != &shared || stats.n_shared > 0);
    check_scores(&f, &layout, TEXTS, gpu, sampling->temperature);
    check_same(TEXTS, gpu, want);
    weft_g_layout_release(&layout);
}

/* What every layout must have. stats_out: NULL is allowed. */
static void on_one_gpu(int32_t n_new, const struct weft_k_sampling *sampling,
                       struct text *out, struct weft_rollout_stats *stats_out)
{
    static struct text cpu[TEXTS];
    const struct weft_shape *s = &f.model.shape;
    struct weft_g_layout gpu = layout_on(s, 0, 1, 1, 1);
    generate(&f, &gpu, &whole, TEXTS, n_new, sampling, out, stats_out);
    weft_g_layout_release(&gpu);
    if (products_are_cpus()
        && !weft_attention_on_tensor_cores(s->dtype, s->head_dim)) {
        generate(&f, &f.model.home, &whole, TEXTS, n_new, sampling, cpu,
                 NULL);
        check_same(TEXTS, out, cpu);
    } else {
        check_near(&f, &f.model.home, TEXTS, out, sampling->temperature,
                   s->dtype == WEFT_F32 ? 1e-5f : 4e-2f);
    }
}

static void open_model(enum weft_dtype dtype, int32_t head_dim)
{
    static struct weft_shape shape;
    struct weft_g_layout home;
    start(0);
    shape = fixture_shape(dtype, false, true);
    shape.head_dim = head_dim;
    f = (struct task_fixture){.rt = rt, .seq = seq};
    home = layout_on(&shape, weft_rt_n_gpus(rt), 1, 1, 1);
    fixture_open_model(&f, &shape, false, &home);
    weft_g_layout_release(&home);
}

/* Chosen before, no product is chosen when texts are generated and inferred. */
static void choose_products(void)
{
    struct weft_err err;
    for (int i = 0; i < weft_rt_n_gpus(rt); i++) {
        struct weft_where where = at(i);
        for (int generates = 0; generates < 2; generates++)
            weft_insert_choose_products(seq, &where, &f.model.shape,
                                        generates, false);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
}

static const struct weft_k_sampling all = {0.7f, 0, 1, 11},
                                    some = {0.7f, 40, 0.9f, 11},
                                    best = {0, 0, 1, 11},
                                    early = {2, 0, 1, 5}; /* one ends early */

static void close_model(void)
{
    weft_g_model_release(&f.model);
    stop();
}

/* The cache of a sample that moves goes with it, from GPU to GPU: nothing is
 * read again. */
static void moves_of(int32_t tp, int32_t pp, const struct text *want,
                     int64_t n_prefilled)
{
    static const struct cut cut = {2, 24, 1, 64, 0, false, 0.8, false};
    static struct text gpu[TEXTS];
    struct weft_g_layout layout = layout_on(&f.model.shape, 0, 2, tp, pp);
    struct weft_rollout_order turns = {.follows = true};
    struct weft_rollout_stats stats;
    control.order = &turns;
    control.cached = all_caches;
    generate(&f, &layout, &cut, TEXTS, MORE, &early, gpu, &stats);
    check_same(TEXTS, gpu, want);
    CHECK(stats.n_moved > 0);
    CHECK_INT(stats.n_cached, stats.n_moved);
    CHECK_INT(stats.n_prefilled, n_prefilled);
    control.cached = no_cache;
    control.order = NULL;
    weft_g_layout_release(&layout);
}

static void moves(void)
{
    static struct text want[TEXTS];
    struct weft_rollout_stats stats;
    open_model(WEFT_F32, 16);
    on_one_gpu(MORE, &early, want, &stats);
    if (weft_rt_n_gpus(rt) >= 2)
        moves_of(1, 1, want, stats.n_prefilled);
    if (weft_rt_n_gpus(rt) >= 4) {
        moves_of(2, 1, want, stats.n_prefilled);
        moves_of(1, 2, want, stats.n_prefilled);
    }
    close_model();
}

static void test_moves(void)
{
    each_card_order(moves);
}

static void layouts_of(enum weft_dtype dtype, int32_t head_dim)
{
    static struct text want[TEXTS];
    open_model(dtype, head_dim);
    choose_products();
    int n_kinds = weft_blaslt_n_kinds();
    CHECK(n_kinds > 0);
    on_one_gpu(FEW, &all, want, NULL);
    on_gpus(1, 1, 1, &shared, &all, want);
    if (weft_rt_n_gpus(rt) > 1) {
        on_gpus(2, 1, 1, &steps, &all, want);
        on_gpus(1, 2, 1, &shared, &all, want);
        on_gpus(1, 1, 2, &steps, &all, want);
    }
    CHECK_INT(weft_blaslt_n_kinds(), n_kinds);
    close_model();
}

static void test_layouts(void)
{
    layouts_of(WEFT_F32, 16);
    layouts_of(WEFT_BF16, 12); /* attention on ordinary cores */
    layouts_of(WEFT_BF16, 16);
}

static void samplings(void)
{
    static struct text want[TEXTS];
    open_model(WEFT_F32, 16);
    on_one_gpu(FEW, &some, want, NULL);
    on_gpus(1, 1, 1, &steps, &some, want);
    on_one_gpu(FEW, &best, want, NULL);
    on_gpus(1, 1, 1, &steps, &best, want);
    close_model();
}

static void test_samplings(void)
{
    each_card_order(samplings);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_layouts", test_layouts},
                                      {"test_samplings", test_samplings},
                                      {"test_moves", test_moves}};
    return gpus_main("graphs/gpu_generate", tests, WEFT_COUNT(tests));
}
