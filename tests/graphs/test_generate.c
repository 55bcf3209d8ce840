/* SPDX-License-Identifier: Apache-2.0 */
/* What generation says of its tokens is what a forward pass says of them. */
#include "generate_fixture.h"

static void check_dtype(enum weft_dtype dtype)
{
    static struct text base[N], other[N];
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(dtype, false, true);
    static const struct cut first = {1, 9, 8, 100, 0, false, 0, false};
    static const struct cut to[] = {{1, 1, 16, 256, 0, false, 0, false},
                                    {1, 9, 1, 1, 4, false, 0, false},
                                    {1, 9, 8, 100, 0, true, 0, false},
                                    {1, 9, 5, 7, 5, true, 0, false},
                                    {2, 3, 3, 5, 7, true, 0, false},
                                    {2, 2, 100, 64, 0, false, 0, false},
                                    {2, 9, 1, 5, 0, false, 0.7, false},
                                    {2, 9, 3, 64, 0, true, 0.5, false},
                                    {2, 9, 1, 100, 9, true, 0.5, false},
                                    {2, 9, 1, 100, 8, false, 0.3, false}};
    int64_t n_moved[WEFT_COUNT(to)] = {0};
    struct weft_rollout_stats stats;
    int64_t n_preempted = 0, n_both = 0, n_cached[2] = {0};
    /* in turn, so that what moves is the same in every run */
    struct weft_rollout_order turns = {.follows = true};
    control.order = &turns;
    fixture_start(&f, 2, &shape, false);
    for (int t = 0; t < 2; t++) {
        const struct weft_k_sampling sampling = {t ? 0.7f : 0, 0, 1, 11};
        const struct weft_g_layout *home = &f.model.home;
        control.cached = t ? (struct weft_migrate_range){20, 256} : no_cache;
        generate(&f, home, &first, N, NEW, &sampling, base, NULL);
        check_scores(&f, home, N, base, sampling.temperature);
        for (size_t k = 0; k < WEFT_COUNT(to); k++) {
            generate(&f, home, &to[k], N, NEW, &sampling, other, &stats);
            check_same(N, other, base);
            CHECK_INT(stats.n_freed, to[k].remaining > 0);
            CHECK(to[k].sharing == (stats.n_shared > 0));
            n_preempted += stats.n_preempted;
            n_moved[k] += stats.n_moved;
            n_cached[t] += stats.n_cached;
            n_both += stats.n_moved > 0 && stats.n_preempted > 0;
        }
    }
    CHECK(n_preempted > 0);
    CHECK(n_both > 0);
    CHECK(n_cached[0] == 0 && n_cached[1] > 0);
    control.cached = no_cache;
    for (size_t k = 0; k < WEFT_COUNT(to); k++)
        CHECK((to[k].remaining > 0) == (n_moved[k] > 0));
    fixture_stop(&f);
}

/* The tail shrinks again and again. */
static void test_again(void)
{
    static struct text base[N], other[N];
    static const struct cut one = {1, 9, 8, 100, 0, false, 0, false};
    static const struct cut to[] = {{4, 9, 1, 100, 0, true, 0.95, true},
                                    {4, 9, 2, 5, 0, false, 0.8, true},
                                    {4, 9, 1, 64, 8, true, 0.8, true}};
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, true);
    struct weft_g_layout layout;
    struct weft_rollout_stats stats;
    struct weft_err err;
    struct weft_rollout_order turns = {.follows = true};
    control.order = &turns;
    control.n_moved_again = 0;
    int64_t n_cached = 0;
    fixture_start(&f, 4, &shape, false);
    REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, 4, 1, &layout, &err), err);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        const struct weft_k_sampling sampling = {0.7f, 0, 1, seed};
        generate(&f, &f.model.home, &one, N, NEW, &sampling, base, NULL);
        for (size_t i = 0; i < WEFT_COUNT(to); i++) {
            control.cached = no_cache;
            generate(&f, &layout, &to[i], N, NEW, &sampling, other, &stats);
            check_same(N, other, base);
            CHECK(stats.n_freed >= 2);
            int64_t n_read = stats.n_prefilled, n_moved = stats.n_moved;
            control.cached = all_caches;
            generate(&f, &layout, &to[i], N, NEW, &sampling, other, &stats);
            check_same(N, other, base);
            CHECK(stats.n_cached <= stats.n_moved);
            n_cached += stats.n_cached;
            /* what is in the cache is not read again */
            CHECK(n_moved == 0 || stats.n_cached == 0 || to[i].kv_blocks
                  || stats.n_prefilled < n_read);
        }
    }
    CHECK(control.n_moved_again >= 4);
    CHECK(n_cached >= 4);
    control.cached = no_cache;
    weft_g_layout_release(&layout);
    fixture_stop(&f);
}

/* Of three replicas the last has one sample left, of 71 tokens, when its first
 * 55 statuses have been read; then only the first one's are, until its samples
 * have ended. So a second migration is due when the last one's sample, which is
 * to move by the first, has not: it waits for it. */
static void test_again_waits(void)
{
    static struct text base[N], other[N];
    static const struct cut one = {1, 9, 8, 100, 0, false, 0, false};
    static const struct cut three = {3, 9, 1, 100, 0, true, 0.7, true};
    const struct weft_k_sampling sampling = {0.7f, 0, 1, 4};
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, true);
    struct weft_g_layout layout;
    struct weft_err err;
    struct weft_rollout_order order = {.follows = true};
    for (int i = 0; i < 4 * NEW; i++)
        REQUIRE_OK(weft_rollout_order_add(&order, i < 55 ? 2 : 0, &err), err);
    control.order = NULL;
    fixture_start(&f, 3, &shape, false);
    REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, 3, 1, &layout, &err), err);
    generate(&f, &f.model.home, &one, N, NEW, &sampling, base, NULL);
    control.order = &order;
    generate(&f, &layout, &three, N, NEW, &sampling, other, NULL);
    check_same(N, other, base);
    CHECK_INT(control.n_migrated, 2);
    weft_rollout_order_release(&order);
    weft_g_layout_release(&layout);
    fixture_stop(&f);
}

/* A replica whose samples had ended before it was freed has nothing that must
 * move, so the next migration waits for no status of it: the tail of four,
 * three and two samples shrinks three times, as there is a replica with none or
 * one. */
static void test_again_idle(void)
{
    static struct text base[N], other[N];
    static const struct cut one = {1, 9, 8, 100, 0, false, 0, false};
    static const struct cut four = {4, 9, 1, 100, 0, true, 0.45, true};
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, true);
    struct weft_g_layout layout;
    struct weft_err err;
    struct weft_rollout_order turns = {.follows = true};
    fixture_start(&f, 4, &shape, false);
    REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, 4, 1, &layout, &err), err);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        const struct weft_k_sampling sampling = {0.7f, 0, 1, seed};
        control.order = NULL;
        generate(&f, &f.model.home, &one, N, NEW, &sampling, base, NULL);
        control.order = &turns;
        generate(&f, &layout, &four, N, NEW, &sampling, other, NULL);
        check_same(N, other, base);
        CHECK_INT(control.n_migrated, 3);
    }
    weft_g_layout_release(&layout);
    fixture_stop(&f);
}

static void lay_out(const struct task_fixture *f, int32_t dp, int32_t tp,
                    int32_t pp, struct weft_g_layout *out)
{
    const struct weft_g_job job = weft_g_job_of(f->rt);
    struct weft_plan plan = {.n_nodes = 1, .n_devices = job.n_devices};
    struct weft_err err;
    plan.call[1] = (struct weft_call_plan){
        .mesh = {0, 1, 0, dp * tp * pp}, .dp = dp, .tp = tp, .pp = pp};
    REQUIRE_OK(weft_g_layout_init(&job, &f->model.shape, &plan, 1, out, &err),
               err);
}

/* Of n_moved texts those of a range of tokens move with their caches: each in one
 * of two ranges. */
static void check_ranges(struct task_fixture *f,
                         const struct weft_g_layout *layout,
                         const struct cut *cut,
                         const struct weft_k_sampling *sampling,
                         int64_t n_moved)
{
    static struct text text[N];
    int64_t n_below = 0, n_above = 0;
    for (int32_t last = 0; last <= 256; last += 16) {
        struct weft_rollout_stats below, above;
        control.cached = (struct weft_migrate_range){1, last};
        generate(f, layout, cut, N, NEW, sampling, text, &below);
        control.cached = (struct weft_migrate_range){last + 1, 257};
        generate(f, layout, cut, N, NEW, sampling, text, &above);
        CHECK_INT(below.n_cached + above.n_cached, n_moved);
        n_below += below.n_cached > 0 && above.n_cached > 0;
        n_above += below.n_cached == 0;
    }
    CHECK(n_below > 0 && n_above > 0);
    control.cached = all_caches;
}

/* Caches of replicas with several members move, also where these have places
 * of their own, and what is in them is not read again. */
static void check_caches(enum weft_dtype dtype, bool apart)
{
    static struct text base[N], other[N];
    static const int32_t to[][3] = {{2, 2, 1}, {2, 1, 2}, {2, 2, 2}};
    static const struct cut one = {1, 9, 8, 100, 0, false, 0, false};
    /* so many slots that all caches may be on their way at one time */
    static const struct cut moves = {4, 24, 1, 64, 0, false, 0.7, false};
    static const struct cut few = {4, 9, 1, 9, 8, true, 0.9, false};
    const struct weft_k_sampling sampling = {0.7f, 0, 1, 11};
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(dtype, false, true);
    struct weft_g_layout home, layout;
    struct weft_rollout_stats unmoved, moved;
    struct weft_err err;
    struct weft_rollout_order turns = {.follows = true};
    control.order = &turns;
    control.cached = all_caches;
    fixture_open_rt(&f, 8, apart);
    REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, 1, 1, &home, &err), err);
    fixture_open_model(&f, &shape, false, &home);
    weft_g_layout_release(&home);
    generate(&f, &f.model.home, &one, N, NEW, &sampling, base, &unmoved);
    for (size_t i = 0; i < WEFT_COUNT(to); i++) {
        lay_out(&f, to[i][0], to[i][1], to[i][2], &layout);
        generate(&f, &layout, &moves, N, NEW, &sampling, other, &moved);
        check_same(N, other, base);
        CHECK(moved.n_moved > 0);
        CHECK_INT(moved.n_cached, moved.n_moved);
        CHECK_INT(moved.n_prefilled, unmoved.n_prefilled);
        if (i == 0 && !apart)
            check_ranges(&f, &layout, &moves, &sampling, moved.n_moved);
        generate(&f, &layout, &few, N, NEW, &sampling, other, &moved);
        check_same(N, other, base);
        weft_g_layout_release(&layout);
    }
    control.cached = no_cache;
    fixture_stop(&f);
}

static void test_caches(void)
{
    check_caches(WEFT_F32, false);
    check_caches(WEFT_F32, true);
    check_caches(WEFT_BF16, true);
}

/* Gangs of devices, of which there are more than cores. */
static void check_gangs(enum weft_dtype dtype)
{
    static struct text base[N], other[N];
    static const int32_t to[][2] = {{1, 2}, {1, 3}, {1, 4}, {2, 2}};
    static const struct cut one = {1, 9, 8, 100, 0, false, 0, false};
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(dtype, false, true);
    const struct weft_k_sampling sampling = {0.7f, 0, 1, 11};
    struct weft_g_layout layout;
    struct weft_rollout_stats stats;
    struct weft_err err;
    int64_t n_preempted = 0;
    control.order = NULL;
    fixture_start(&f, 4, &shape, false);
    generate(&f, &f.model.home, &one, N, NEW, &sampling, base, NULL);
    for (size_t i = 0; i < WEFT_COUNT(to); i++) {
        const struct cut cut = {to[i][0], 3, 5, 7, 5, true, 0, false};
        REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, to[i][0], to[i][1],
                                        &layout, &err),
                   err);
        CHECK(layout.is_gang);
        generate(&f, &layout, &cut, N, NEW, &sampling, other, &stats);
        check_same(N, other, base);
        CHECK(stats.n_shared > 0);
        n_preempted += stats.n_preempted;
        check_scores(&f, &layout, N, base, sampling.temperature);
        weft_g_layout_release(&layout);
    }
    CHECK(n_preempted > 0);
    fixture_stop(&f);
}

/* Inference by other gangs of the same devices, as samples end. */
static struct {
    struct task_fixture *f;
    const struct weft_g_layout *layout[2];
    struct weft_g_view view[2];
    struct weft_g_copies *copies;
    struct weft_tile *out[2][N];
} crossing;

static int infer_twice(void *ctx, int32_t index, struct weft_sample *sample,
                       struct weft_err *err)
{
    (void) ctx;
    (void) err;
    for (int k = 0; k < 2; k++) {
        struct weft_g_infer_sample s = {
            .rollout = sample->rollout,
            .n_prompt = sample->n_prompt,
            .n_total = sample->n_total,
            .out = crossing.out[k][index] = fixture_tile(
                crossing.f, NEW * sizeof(float))};
        weft_g_infer(crossing.f->seq, &anywhere, &crossing.view[k], 0,
                     WEFT_INFER_LOGPROB, 1 / 0.7f, 1, &s, crossing.copies,
                     NULL);
    }
    return 0;
}

static void cross_begin(struct task_fixture *f,
                        const struct weft_g_layout *one,
                        const struct weft_g_layout *other)
{
    struct weft_err err;
    crossing.f = f;
    crossing.layout[0] = one;
    crossing.layout[1] = other;
    for (int k = 0; k < 2; k++)
        REQUIRE_OK(weft_g_view_open(f->seq, &anywhere, &f->model,
                                    crossing.layout[k], &crossing.view[k],
                                    &err),
                   err);
    REQUIRE_OK(weft_g_copies_create(f->rt, &crossing.copies, &err), err);
    control.on_finished = infer_twice;
}

static void cross_end(const struct text *text)
{
    control.on_finished = NULL;
    weft_g_copies_free(crossing.copies);
    for (int k = 0; k < 2; k++) {
        weft_g_view_close(&crossing.view[k]);
        for (int i = 0; i < N; i++) {
            const struct text *t = &text[i];
            CHECK(memcmp(weft_tile_acquire(crossing.out[k][i], WEFT_READ),
                         t->logp + t->n_prompt,
                         (size_t) (t->n_total - t->n_prompt) * 4)
                  == 0);
            weft_tile_unacquire(crossing.out[k][i]);
            weft_tile_release(crossing.out[k][i]);
        }
    }
}

/* Stages of gangs: steps of as many instances as there are stages pass the same
 * devices, of which there are more than cores. Beside them other gangs of these
 * devices infer, one over both stages, and one whose stages have the devices
 * the other way round. */
static void check_stages(enum weft_dtype dtype)
{
    static struct text base[N], other[N];
    static const int32_t to[][3] = {
        {1, 1, 2}, {1, 2, 2}, {1, 3, 2}, {1, 4, 2}, {2, 2, 2}};
    static const struct cut one = {1, 9, 8, 100, 0, false, 0, false};
    const struct weft_k_sampling sampling = {0.7f, 0, 1, 11};
    struct weft_shape shape = fixture_shape(dtype, false, true);
    struct weft_g_layout home, layout, across, turned;
    struct weft_rollout_stats stats;
    struct task_fixture f;
    struct weft_err err;
    int64_t n_preempted = 0;
    control.order = NULL;
    fixture_open_rt(&f, 8, false);
    REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, 1, 1, &home, &err), err);
    fixture_open_model(&f, &shape, false, &home);
    generate(&f, &f.model.home, &one, N, NEW, &sampling, base, NULL);
    REQUIRE_OK(weft_g_layout_simple(f.rt, &shape, 1, 4, &across, &err), err);
    lay_out(&f, 1, 2, 2, &turned);
    for (int k = 0; k < 4; k++)
        turned.member[k].device = 3 - turned.member[k].device;
    for (size_t i = 0; i < WEFT_COUNT(to); i++) {
        const struct cut cut = {
            to[i][0] * to[i][2], 3, 5, 7, 5, true, 0, false};
        lay_out(&f, to[i][0], to[i][1], to[i][2], &layout);
        CHECK(layout.is_gang);
        cross_begin(&f, &across, &turned);
        generate(&f, &layout, &cut, N, NEW, &sampling, other, &stats);
        check_same(N, other, base);
        cross_end(base);
        CHECK(stats.n_shared > 0);
        n_preempted += stats.n_preempted;
        check_scores(&f, &layout, N, base, sampling.temperature);
        weft_g_layout_release(&layout);
    }
    CHECK(n_preempted > 0);
    weft_g_layout_release(&across);
    weft_g_layout_release(&turned);
    weft_g_layout_release(&home);
    fixture_stop(&f);
}

static void test_stages(void)
{
    check_stages(WEFT_F32);
    check_stages(WEFT_BF16);
}

static void test_gangs_f32(void)
{
    check_gangs(WEFT_F32);
}

static void test_gangs_bf16(void)
{
    check_gangs(WEFT_BF16);
}

static void test_generate_f32(void)
{
    check_dtype(WEFT_F32);
}

static void test_generate_bf16(void)
{
    check_dtype(WEFT_BF16);
}

WEFT_TESTS("graphs/generate", {"test_generate_f32", test_generate_f32},
           {"test_generate_bf16", test_generate_bf16},
           {"test_again", test_again}, {"test_again_waits", test_again_waits},
           {"test_again_idle", test_again_idle}, {"test_caches", test_caches},
           {"test_gangs_f32", test_gangs_f32},
           {"test_gangs_bf16", test_gangs_bf16}, {"test_stages", test_stages})
