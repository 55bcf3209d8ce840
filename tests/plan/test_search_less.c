/* SPDX-License-Identifier: Apache-2.0 */
/* What the search leaves out: choices that cannot be better than what is known,
 * mirror images of others, and options that no plan needs. Nothing that is best
 * is missed. */
#include "search_by_hand.h"

#include "base/alloc.h"

/* What is known of another problem ends the search sooner; the bound is that of
 * both, and no choice of either is below it. */
static void test_known(void)
{
    int32_t n_fused = 0, fewer = 0;
    for (uint32_t seed = 31; seed <= 42; seed++) {
        struct weft_search_how how = {.seed = 3, .branches = 1000000};
        struct weft_search_result alone, r;
        struct weft_search *s;
        struct weft_err err;
        make_random(seed);
        how.known = best_of_all();
        fuse();
        for (int32_t i = 0; i < p.call[3].n_options; i++)
            option[3][i].seconds *= seed % 2 ? 0.8 : 1.6;
        double fused = best_of_all();
        REQUIRE_OK(weft_search_create(&p, &s, &err), err);
        REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
        double best = fmin(fused, how.known);
        CHECK(fabs(r.bound - best) <= 1e-9 * best);
        CHECK(fused > how.known || fabs(r.value.period - fused) < 1e-9);
        n_fused += fused < how.known;
        how.known = 0;
        REQUIRE_OK(weft_search_run(s, &how, &alone, &err), err);
        CHECK(r.branches <= alone.branches);
        fewer += r.branches < alone.branches;
        weft_search_free(s);
    }
    CHECK(n_fused > 1 && n_fused < 11 && fewer > 0);
}

static double move_anywhere_s(void *ctx, int32_t role,
                              const struct weft_call_plan *from,
                              const struct weft_call_plan *to)
{
    (void) ctx;
    bool inside = from->mesh.n_nodes == 1 && to->mesh.n_nodes == 1
               && from->mesh.node == to->mesh.node;
    return 0.125 + 0.125 * role + 0.5 * !inside;
}

/* Two layouts of each call, wherever they can be; gangs: some are, on one
 * node, where a gang's first device is not as the others. */
static void make_everywhere(uint32_t seed, bool gangs)
{
    static const struct weft_mesh mesh[] = {
        {0, 2, 0, 4}, {0, 1, 0, 4}, {0, 1, 0, 2}, {0, 1, 0, 1}};
    const struct weft_mesh *from = mesh + gangs;
    make_random(seed);
    p.n_nodes = gangs ? 1 : 2;
    p.move = rnd(2) ? move_anywhere_s : NULL;
    for (int32_t c = 0; c < p.n_calls; c++) {
        int32_t first = (int32_t) rnd(3);
        p.call[c].n_options = 0;
        for (int32_t i = 0; i < 2; i++) {
            struct weft_mesh m = from[(first + i) % 3];
            double seconds = 3 + 0.125 * rnd(40), held = 5 + rnd(15);
            int32_t tp = gangs && rnd(2) ? 2 : 1;
            for (m.node = 0; m.node < p.n_nodes; m.node += m.n_nodes)
                for (m.device = 0; m.device < 4; m.device += m.n_devices) {
                    struct weft_option *o = &option[c][p.call[c].n_options];
                    add(c, m, seconds, held, 1, 2);
                    o->gang = tp > 1 && m.n_devices > 1;
                    o->plan.tp = tp;
                    if (!gangs)
                        continue;
                    o->micro_batches = 4;
                    for (int k = 0; k < 3; k++)
                        o->came[k] = 0.1 + 0.25 * k;
                }
        }
    }
}

/* Of plans that differ in which of alike devices calls have one is looked at,
 * and none is missed. In the last five problems the shortest plan has a call on
 * another device than the first of a gang, where its image is 0.1 to 5 %
 * longer. */
static void test_mirrors(void)
{
    int64_t n_all = 0, n_once = 0;
    static const uint32_t by_gang[] = {196, 494, 1405, 1693, 2580};
    for (uint32_t i = 1; i <= 25 + WEFT_COUNT(by_gang); i++) {
        bool gangs = i > 25;
        uint32_t seed = gangs ? by_gang[i - 26] : i;
        struct weft_search_how how = {
            .seed = 1, .evaluations = 1, .branches = 10000000};
        struct weft_search_result r[2];
        make_everywhere(seed, gangs);
        p.one_by_one = seed % 2;
        p.device_bytes = 30 + 5 * (double) (seed % 5);
        double best = best_of_all();
        for (int32_t once = 0; once < 2; once++) {
            struct weft_search *s;
            struct weft_err err;
            p.alike = once;
            REQUIRE_OK(weft_search_create(&p, &s, &err), err);
            REQUIRE_OK(weft_search_run(s, &how, &r[once], &err), err);
            weft_search_free(s);
            CHECK(r[once].fits == (best < INFINITY));
            if (r[once].fits) {
                CHECK(fabs(r[once].value.period - best) <= 1e-9 * best);
                CHECK(fabs(r[once].bound - best) <= 1e-9 * best);
            }
        }
        n_all += r[0].branches;
        n_once += r[1].branches;
    }
    CHECK((double) n_once < 0.7 * (double) n_all);
}

/* No choice with an option undercuts its least, nor a search what was left out
 * before it. */
static void test_least(void)
{
    for (uint32_t seed = 1; seed <= 8; seed++) {
        struct weft_search *s;
        struct weft_err err;
        struct weft_search_result r;
        const struct weft_search_how how = {
            .seed = 1, .evaluations = 100, .branches = 1000000};
        int32_t choice[MOST] = {0};
        double least[MOST][OPTIONS], most = 0;
        make_random(seed);
        p.device_bytes = 1e9;
        REQUIRE_OK(weft_search_create(&p, &s, &err), err);
        for (int32_t c = 0; c < p.n_calls; c++)
            for (int32_t i = 0; i < p.call[c].n_options; i++)
                least[c][i] = weft_search_least(s, c, &option[c][i]);
        do {
            double period = weft_search_value(s, choice).period;
            for (int32_t c = 0; c < p.n_calls; c++) {
                CHECK(least[c][choice[c]] <= period * (1 + 1e-9));
                most = fmax(most, least[c][choice[c]] / period);
            }
        } while (next_choice(choice));
        CHECK(most > 0.5);
        p.left_out_s = 0.75 * best_of_all();
        REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
        CHECK(fabs(r.bound - p.left_out_s) <= 1e-12);
        weft_search_free(s);
    }
}

/* Options on few meshes, with other degrees, of which some are no use. */
static void make_similar(uint32_t seed)
{
    static const struct weft_mesh mesh[] = {
        {0, 2, 0, 4}, {0, 1, 0, 4}, {1, 1, 0, 4}};
    make_random(seed);
    p.move = move_s;
    for (int32_t c = 0; c < p.n_calls; c++) {
        int32_t first = (int32_t) rnd(2);
        p.call[c].n_options = 0;
        for (int32_t i = 0; i < 4; i++) {
            add(c, mesh[first + i / 2], 3 + 0.125 * rnd(5), 4 + 2.0 * rnd(2),
                1 + rnd(3), 2);
            option[c][i].plan.tp = 1 << rnd(2);
        }
    }
}

/* What is left out is never missed: no bound is lower with it, and periods but
 * for an anomaly. Of some problems two roles share frozen weights, or training
 * cuts weights. In the last one weights take longer to a faster option, whose
 * devices are not those that others wait for. */
static void test_pruned(void)
{
    enum { N = 81, REACHED_LATER = 2325 };
    int32_t n_before = 0, n_after = 0;
    for (uint32_t i = 1; i <= N; i++) {
        struct weft_option *array[MOST];
        struct weft_err err;
        uint32_t seed = i < N ? i : REACHED_LATER;
        bool trunk = i > 40 && i < N;
        make_similar(seed);
        if (seed % 3 == 0)
            fuse();
        p.device_bytes = 16 + 2 * (double) (seed % 8);
        for (int32_t c = 0; c < p.n_calls && trunk; c++)
            p.call[c].trunk = p.call[c].role < (i > 60 ? 1 : 2);
        if ((i > 30 && i <= 40) || (i > 60 && i < N))
            cut_weights();
        double least_before, least_after;
        double before = least_of_all(&least_before);
        for (int32_t c = 0; c < p.n_calls; c++) {
            array[c] = option[c];
            n_before += p.call[c].n_options;
        }
        REQUIRE_OK(weft_search_prune(&p, array, &err), err);
        for (int32_t c = 0; c < p.n_calls; c++)
            n_after += p.call[c].n_options;
        double after = least_of_all(&least_after);
        CHECK(after <= before * (1 + 3e-4));
        CHECK(least_after <= least_before * (1 + 1e-12));
    }
    CHECK(n_after < 0.82 * n_before);
}

/* With the faster training, of other degrees, both other calls of the role have
 * a copy of its weights, at the same time: it makes the slower one needless
 * only where that holds as much more. */
static void test_copies(void)
{
    static const struct {
        double held;
        int32_t n;
    } row[] = {{14, 2}, {16.5, 2}, {17, 1}, {20, 1}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        struct weft_option *array[MOST];
        struct weft_err err;
        set_calls();
        p.call[1].role = 0;
        p.call[1].trained = true;
        p.n_together = 1;
        p.together[0] = 3;
        for (int32_t c = 0; c < 5; c++) {
            array[c] = option[c];
            add(c, c == 2 || c == 4 ? right : left, 2, 1, 1, 3 + c);
        }
        option[3][0].plan.tp = 2;
        option[3][0].held = 10;
        add(3, left, 3, row[i].held, 1, 6);
        p.device_bytes = 1 + 1 + row[i].held + 1 + 1;
        double before = best_of_all();
        CHECK(before < INFINITY);
        REQUIRE_OK(weft_search_prune(&p, array, &err), err);
        CHECK_INT(p.call[3].n_options, row[i].n);
        CHECK(best_of_all() <= before);
    }
}

/* A frozen role's slower option lies like the training whose frozen weights it
 * shares; there is no room for the faster one's own. */
static void test_shared(void)
{
    struct weft_option *array[MOST];
    struct weft_err err;
    set_graph(&graphs[2]);
    for (int32_t c = 0; c < 3; c++) {
        array[c] = option[c];
        p.call[c].trunk = 1;
        add(c, left, 3, 1, 1, 10);
    }
    add(1, left, 2, 1, 1, 10);
    option[1][1].plan.tp = 2;
    p.device_bytes = 3 + 1 + 9;
    double before = best_of_all();
    CHECK(before < INFINITY);
    REQUIRE_OK(weft_search_prune(&p, array, &err), err);
    CHECK_INT(p.call[1].n_options, 2);
    CHECK(best_of_all() <= before);
}

/* The faster training makes the slower one needless where its weights lie
 * alike, but not where there is no room for copies, which all calls have of
 * weights that are cut, or of a trunk's that stay for good where they lie
 * otherwise. */
static void check_cut(bool trunk)
{
    struct weft_option *array[MOST];
    struct weft_err err;
    set_graph(&graphs[2]);
    for (int32_t c = 0; c < 3; c++) {
        array[c] = option[c];
        p.call[c].trunk = trunk && p.call[c].role == 0;
        add(c, left, 3, 1, c == 1 ? 10 : 1, 10);
    }
    add(2, left, 2, 1, 1, 10);
    option[2][trunk ? 0 : 1].plan.zero = 3;
    option[0][0].plan.tp = trunk ? 2 : 1;
    p.device_bytes = 3 + (trunk ? 1 + 10 : 10);
    double before = best_of_all();
    CHECK(before < INFINITY);
    REQUIRE_OK(weft_search_prune(&p, array, &err), err);
    CHECK_INT(p.call[2].n_options, 2);
    CHECK(best_of_all() <= before);
}

static void test_cut(void)
{
    check_cut(false);
    check_cut(true);
}

WEFT_TESTS("plan/search_less", {"known", test_known}, {"pruned", test_pruned},
           {"copies", test_copies}, {"shared", test_shared},
           {"cut", test_cut}, {"mirrors", test_mirrors},
           {"least", test_least})
