/* SPDX-License-Identifier: Apache-2.0 */
/* The search against every choice of small random problems, some of which are
 * played by a simulator of the test's own. */
#include "search_by_hand.h"

/* ---- Closed forms ------------------------------------------------------- */

static void test_all_on_all_devices(void)
{
    static const int32_t first[MOST] = {0};
    set_calls();
    for (int32_t c = 0; c < 5; c++)
        add(c, all, c + 1, 10, 5 * c, 7);
    struct weft_search_value v = value(first);
    CHECK(fabs(v.period - 15) < 1e-12);
    CHECK(fabs(v.bound - 15) < 1e-12);
    CHECK(fabs(v.bytes - (50 + 20)) < 1e-12);
}

/* The critic trains beside the next generation; scores beside values. */
static void test_apart(void)
{
    static const int32_t first[MOST] = {0};
    set_calls();
    add(0, left, 4, 1, 2, 3);
    add(1, left, 1, 10, 2, 3);
    add(2, right, 2, 1, 2, 3);
    add(3, left, 3, 40, 2, 3);
    add(4, right, 3.5, 30, 2, 3);
    struct weft_search_value v = value(first);
    CHECK(fabs(v.period - 9) < 1e-12); /* 4 + 2 + 3; the right one has 5.5 */
    CHECK(fabs(v.bound - 9) < 1e-12);
    CHECK(fabs(v.bytes - (51 + 2)) < 1e-12);
    p.move = move_s; /* no layout changes on its devices */
    CHECK(fabs(value(first).period - 9) < 1e-12);
    option[3][0].plan.zero = 3; /* which divides them all the same */
    double move = move_s(NULL, 0, &option[3][0].plan, &option[0][0].plan);
    v = value(first);
    CHECK(move > 0);
    CHECK(fabs(v.period - (9 + move)) < 1e-9);
    CHECK(fabs(v.bound - (9 + move)) < 1e-9);
    option[3][0].plan.zero = 0;
    p.call[0].n_options = 0;
    add(0, part, 4, 1, 2, 3);
    v = value(first); /* weights move to the right: 0.75 */
    CHECK(fabs(v.period - 9.75) < 1e-9);
    CHECK(fabs(v.bound - 9.75) < 1e-12);
    CHECK(fabs(v.bytes - (50 + 2)) < 1e-12);
}

/* All but the scores on the same devices. Of these the critic's training, 5 s
 * with half of them, has what the calls before leave: 0.3 of the policy's 4 s
 * and 1 / 6 of generation's 6 s. Of its 2.5 s of work 0.3 are left then, 0.6 s,
 * for which the values wait. */
static void test_bubbles(void)
{
    static const int32_t first[MOST] = {0};
    set_calls();
    add(0, left, 6, 1, 1, 1);
    add(1, right, 1, 1, 1, 1);
    add(2, left, 2, 1, 1, 1);
    add(3, left, 4, 1, 1, 1);
    add(4, left, 5, 1, 1, 1);
    option[0][0].share = 5.0 / 6;
    option[3][0].share = 0.7;
    option[4][0].share = 0.5;
    CHECK(fabs(value(first).period - (4 + 6 + 0.6 + 2)) < 1e-9);
}

/* The actor trains on all devices for 4 s, at which the right ones, of another
 * kind, are at work all the time and the left ones half of it. The critic trains
 * for 3 s. On the left, where generation and scores are, it then has 1 s to do,
 * between these; on the right all, meanwhile. The values wait for it. */
static void test_kinds(void)
{
    static const int32_t first[MOST] = {0};
    for (int on_right = 0; on_right < 2; on_right++) {
        set_calls();
        p.kind_ends[0] = 1;
        add(0, left, 1, 1, 1, 1);
        add(1, left, 1, 1, 1, 1);
        add(2, left, 2, 1, 1, 1);
        add(3, all, 4, 1, 1, 1);
        add(4, on_right ? right : left, 3, 1, 1, 1);
        option[3][0].share = 0.75;
        option[3][0].uneven[0] = -1.0f / 3;
        option[3][0].uneven[1] = 1.0f / 3;
        struct weft_search_value v = value(first);
        double want = on_right ? 4 + 3 + 2 : 4 + 1 + 1 + 1 + 2;
        double work = on_right ? 4 + 3 : 2 + 3 + 1 + 1 + 2;
        CHECK(fabs(v.period - want) < 1e-5);
        CHECK(v.bound >= work - 1e-5 && v.bound <= v.period);
    }
}

/* Scores by a gang of all four devices, 2 s in 8 micro-batches; values by a
 * pipeline of two stages, 3 s. In turn, each of the pipeline's micro-batches
 * passes both stages before the gang's next one; where two come between, they
 * take as long as three stages. */
static void test_gang_and_pipeline(void)
{
    static const struct {
        int32_t tp, micro_batches;
        double end;
    } want[] = {{4, 8, 2 + 2 * 3},
                {4, 4, 2 + 2 * 3}, /* each behind another of the gang */
                {4, 16, 2 + 3 + 3 * 0.5}, /* by two */
                {2, 8, 2 + 3},            /* each of its groups has a stage */
                {4, 0, 2 + 3}};
    static const int32_t first[MOST] = {0};
    for (size_t i = 0; i < WEFT_COUNT(want); i++) {
        set_calls();
        add(0, left, 4, 1, 1, 1);
        add(1, left, 2, 1, 1, 1);
        add(2, left, 3, 1, 1, 1);
        add(3, left, 5, 1, 1, 1);
        add(4, right, 0.5, 1, 1, 1);
        struct weft_option *gang = option[1], *stages = option[2];
        gang->gang = true;
        gang->micro_batches = 8;
        gang->plan.tp = want[i].tp;
        gang->plan.dp = 4 / want[i].tp;
        stages->micro_batches = want[i].micro_batches;
        stages->plan.pp = stages->plan.dp = 2;
        double period = 4 + want[i].end + 5;
        CHECK(fabs(value(first).period - period) < 1e-9);
        CHECK(value(first).bound < 4 + 2 + 3 + 5 + 1e-9);
        gang->gang = false;
        CHECK(fabs(value(first).period - (4 + 2 + 3 + 5)) < 1e-9);
    }
}

/* Any of four devices infers scores, 2 s of all; one of them values, which come
 * first there: the other three have time for all scores meanwhile. */
static void test_any_device(void)
{
    static const int32_t first[MOST] = {0};
    set_calls();
    add(0, left, 4, 1, 1, 1);
    add(1, left, 2, 1, 1, 1);
    add(2, (struct weft_mesh){0, 1, 1, 1}, 3, 1, 1, 1);
    add(3, left, 5, 1, 1, 1);
    add(4, right, 0.5, 1, 1, 1);
    option[1][0].any_device = true;
    CHECK(fabs(value(first).period - (4 + 3 + 5)) < 1e-9);
    option[2][0].seconds = 1; /* then they share what is left */
    CHECK(fabs(value(first).period - (4 + (4 * 2 + 1) / 4.0 + 5)) < 1e-9);
}

/* Makes a call's option a gang of two devices. */
static void make_gang(int32_t call)
{
    option[call][0].gang = true;
    option[call][0].plan.tp = 2;
    option[call][0].plan.dp = 1;
}

/* A gang of two scores, 2 s, while one of them generates, 6 s, and the other one
 * can infer values, 4 s, as samples come. The gang does not begin before its
 * first device has time for it, and its other one waits only then. */
static void test_first_of_gang(void)
{
    static const struct weft_mesh both = {0, 1, 0, 2};
    static const int32_t first[MOST] = {0};
    for (int32_t k = 0; k < 2; k++) {
        set_calls();
        add(0, (struct weft_mesh){0, 1, k, 1}, 6, 1, 1, 1);
        add(1, both, 2, 1, 1, 1);
        add(2, (struct weft_mesh){0, 1, 1 - k, 1}, 4, 1, 1, 1);
        add(3, both, 5, 1, 1, 1);
        add(4, right, 0.5, 1, 1, 1);
        memset(option[0][0].came, 0, sizeof option[0][0].came);
        make_gang(1);
        double end = k == 0 ? 6 + 2 : 6 + 2 + 4;
        CHECK(fabs(value(first).period - (end + 5)) < 1e-9);
    }
}

/* A gang of two generates for 4 s. Between two of its micro-batches its second
 * device takes a task of the values, 3 s, for which the gang waits, and so do
 * the scores, 3 s on its first device. */
static void test_gaps_of_gang(void)
{
    static const struct {
        struct weft_mesh mesh; /* of the values, in stages */
        int32_t micro_batches;
        double task_s, end;
    } want[] = {{{0, 1, 1, 1}, 6, 0.5, 4 + 3 + 3},
                /* 1 s is left beside the scores */
                {{0, 1, 1, 1}, 4, 0.5, 4 + 2 + 3},
                {{0, 1, 1, 1}, 4, 0, 4 + 3},
                /* one after the other */
                {{0, 1, 0, 1}, 4, 0.5, 4 + 3 + 3},
                {{0, 1, 0, 2}, 4, 0.5, 4 + 3 + 3}};
    static const int32_t first[MOST] = {0};
    static const struct weft_mesh both = {0, 1, 0, 2};
    for (size_t i = 0; i < WEFT_COUNT(want); i++) {
        set_calls();
        add(0, both, 4, 1, 1, 1);
        add(1, (struct weft_mesh){0, 1, 0, 1}, 3, 1, 1, 1);
        add(2, want[i].mesh, 3, 1, 1, 1);
        add(3, both, 5, 1, 1, 1);
        add(4, right, 0.5, 1, 1, 1);
        memset(option[0][0].came, 0, sizeof option[0][0].came);
        make_gang(0);
        option[0][0].micro_batches = want[i].micro_batches;
        option[2][0].long_task_s = want[i].task_s;
        option[2][0].plan.pp = want[i].mesh.n_devices;
        option[2][0].plan.dp = 1;
        struct weft_search_value v = value(first);
        CHECK(fabs(v.period - (want[i].end + 5)) < 1e-9);
        CHECK(v.bound <= v.period + 1e-9);
    }
}

/* Values are inferred as samples come, on other devices. */
static void test_streams(void)
{
    static const struct {
        double came[WEFT_SEARCH_PARTS], seconds, end;
    } want[] = {{{0, 0.25, 0.5, 0.75}, 2, 8},   /* with the last samples */
                {{0, 0.25, 0.5, 0.75}, 16, 16}, /* from the first ones on */
                {{0.5, 0.625, 0.75, 0.875}, 16, 20}, /* from the middle on */
                {{0.5, 0.5, 0.5, 1}, 4, 8 + 1}, /* one more quarter in time */
                {{1, 1, 1, 1}, 4, 12}};
    static const int32_t first[MOST] = {0};
    for (size_t i = 0; i < WEFT_COUNT(want); i++) {
        set_calls();
        add(0, left, 8, 1, 1, 1);
        add(1, left, 0.001, 1, 1, 1);
        add(2, right, want[i].seconds, 1, 1, 1);
        add(3, left, 3, 1, 1, 1);
        add(4, right, 0.5, 1, 1, 1);
        memcpy(option[0][0].came, want[i].came, sizeof want[i].came);
        struct weft_search_value v = value(first);
        double error = v.period - (want[i].end + 3);
        CHECK(error > -1e-9 && error < 0.0011);
        CHECK(v.bound <= v.period + 1e-9);
        CHECK(i == 3 || v.bound > v.period - 0.0011);
    }
}

/* ---- Random problems ---------------------------------------------------- */

/* Also in another order no choice undercuts its bound. */
static void check_period(const int32_t *choice,
                         const struct weft_search_value *v)
{
    int own[MOST], other[MOST];
    for (int32_t c = 0; c < p.n_calls; c++) {
        own[c] = p.call[c].priority;
        other[c] = (int) rnd(5);
    }
    double dt = v->period / 4000;
    double period = fmax(simulate(choice, own, 5, 2, dt), v->bound);
    CHECK(fabs(v->period - period) < 0.01 * v->period);
    period = simulate(choice, other, LONG, LONG / 2, 8 * dt);
    CHECK(period >= v->bound * (1 - 4.0 / LONG));
}

static int n_raised; /* bounds of searches that were cut early, by these */

static void check_problem(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    struct weft_search_how how = {
        .seed = 3, .evaluations = 2000, .restarts = 2, .branches = 1000000};
    int32_t choice[MOST] = {0};
    double best = INFINITY;
    int32_t n = 0;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        CHECK(fabs(v.bytes - bytes_of(choice)) < 1e-9);
        CHECK(v.period >= v.bound);
        if (n++ % 50 == 0)
            check_period(choice, &v);
        if (v.bytes > p.device_bytes)
            continue;
        best = fmin(best, v.period);
    } while (next_choice(choice));
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.fits == (best < INFINITY));
    if (r.fits) {
        CHECK(fabs(r.value.period - best) <= 1e-9 * best);
        CHECK(fabs(r.bound - best) <= 1e-9 * best);
        /* cut early, it is still a bound, and no worse than without */
        double without = 0;
        for (how.branches = 0; how.branches < 400; how.branches += 13) {
            REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
            CHECK(r.bound <= best * (1 + 1e-9) && r.bound > 0);
            without = how.branches == 0 ? r.bound : without;
            CHECK(r.bound >= without);
            n_raised += r.bound > without * (1 + 1e-9)
                     && r.bound < best * (1 - 1e-3);
        }
    }
    weft_search_free(s);
}

static void test_random(void)
{
    uint32_t last = weft_test_long() ? 12 : 4;
    for (uint32_t seed = 1; seed <= last; seed++) {
        make_random(seed);
        p.device_bytes = 60 + 10 * (double) (seed % 6);
        check_problem();
    }
    CHECK(n_raised > (int) last / 3);
}

static void test_random_kinds(void)
{
    for (uint32_t seed = 21; seed <= 24; seed++) {
        make_random(seed);
        make_kinds();
        p.device_bytes = 60 + 10 * (double) (seed % 6);
        check_problem();
    }
}

/* Two generations with one model's weights, and one training; no value, no
 * generation: whatever calls an algorithm has. */
static void test_algorithms(void)
{
    uint32_t last = weft_test_long() ? 52 : 44;
    for (size_t g = 1; g < WEFT_COUNT(graphs); g++)
        for (uint32_t seed = 41; seed <= last; seed++) {
            make_random_of(&graphs[g], seed);
            p.device_bytes = 40 + 10 * (double) (seed % 6);
            check_problem();
        }
}

/* The trained role's frozen weights are the frozen role's, too, or its own
 * alone, and with ZeRO 3 they come for each call. */
static void test_trunk(void)
{
    uint32_t first = weft_test_long() ? 61 : 66;
    for (size_t g = 0; g < WEFT_COUNT(graphs); g++)
        for (uint32_t seed = first; seed <= 68; seed++) {
            make_random_of(&graphs[g], seed);
            p.device_bytes = 40 + 10 * (double) (seed % 6);
            for (int32_t c = 0; c < p.n_calls; c++)
                p.call[c].trunk = p.call[c].role < (seed > 66 ? 1 : 2);
            if (seed > 66)
                cut_weights();
            check_problem();
        }
}

/* Without a trunk, too. */
static void test_cut(void)
{
    for (uint32_t seed = 81; seed <= 84; seed++) {
        make_random(seed);
        p.device_bytes = 40 + 10 * (double) (seed % 6);
        cut_weights();
        check_problem();
    }
}

static void test_fused(void)
{
    for (uint32_t seed = 21; seed <= 28; seed++) {
        make_random(seed);
        fuse();
        p.device_bytes = 60 + 10 * (double) (seed % 6);
        check_problem();
    }
}

/* Both roles' weights move, each from its own layout: 1 / tp of them is in
 * move_s(). */
static void test_fused_moves(void)
{
    static const int32_t first[MOST] = {0};
    for (int32_t i = 0; i < 4; i++) {
        set_calls();
        for (int32_t c = 0; c < 4; c++)
            add(c, all, c + 1, 10, 5, 7);
        fuse();
        for (int32_t c = 0; c < 3; c++)
            option[c][0].plan.tp = 1;
        option[3][0].plan.tp = 1 + (i & 1);
        option[3][0].with.tp = 1 + (i >> 1);
        p.move = move_s;
        struct weft_search_value v = value(first);
        /* generation waits for the policy's; the critic's move is hidden
         * behind generation and the scores */
        CHECK(fabs(v.period - (10 + (i & 1 ? 0.25 : 0))) < 1e-9);
        CHECK(fabs(v.bytes - (40 + 5 + (i ? 7 : 0))) < 1e-9);
    }
}

/* The best plan scores and values on a half each; from what is on all devices
 * neither call fits there alone. Plans that exceed memory by a fifth are four
 * times as fast, and five options in six of three calls lead there. */
static void make_trap(void)
{
    static const double slow[] = {50, 0, 0, 85, 85};
    static const double held[] = {8, 0, 0, 33, 31};
    set_calls();
    p.device_bytes = 80;
    p.together[p.n_together++] = 2 | 4;
    for (int32_t c = 0; c < p.n_calls; c++) {
        for (int32_t i = 0; i < OPTIONS && c != 1 && c != 2; i++)
            add(c, all, i ? 10 + i : slow[c], i ? held[c] + 6 : held[c], 2,
                0);
        for (int32_t i = 0; i < 2 && (c == 1 || c == 2); i++) {
            add(c, all, 4 + i, 1, 2 + c, 0);
            add(c, all, 20 + 10 * c + i, 2, 0.1, 0);
            add(c, c == 1 ? left : right, 8 + i, 1, c == 1 ? 5.5 : 4, 0);
        }
    }
}

static void test_annealing(void)
{
    struct weft_search *s;
    struct weft_err err;
    make_trap();
    double best = best_of_all();
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const struct weft_search_how how = {.seed = seed,
                                            .evaluations = 4000};
        struct weft_search_result r;
        REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
        CHECK(r.fits && fabs(r.value.period - best) <= 1e-9 * best);
    }
    weft_search_free(s);
}

/* Finalists are different choices that fit, the best first. */
static void test_finalists(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    struct weft_search_how how = {.seed = 7, .evaluations = 4000};
    make_random(4);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.fits && r.n_finalists > 3);
    CHECK(memcmp(r.choice, r.finalist[0].choice, 5 * sizeof r.choice[0])
          == 0);
    for (int32_t i = 0; i < r.n_finalists; i++) {
        const struct weft_search_finalist *f = &r.finalist[i];
        struct weft_search_value v = weft_search_value(s, f->choice);
        CHECK(fabs(f->value.period - v.period) <= 1e-12 * v.period);
        CHECK(f->value.bytes <= 100);
        CHECK(i == 0 || f->value.period >= f[-1].value.period);
    }
    weft_search_free(s);
}

static bool at_once(void *ctx)
{
    (void) ctx;
    return true;
}

static void test_stopped(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    struct weft_search_how how = {
        .evaluations = 1 << 20, .branches = 1 << 20, .stop = at_once};
    make_random(4);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.stopped && r.value.period < INFINITY && r.bound > 0);
    CHECK(r.evaluations < 1 << 12);
    weft_search_free(s);
}

static void test_same_seed_same_result(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result a, b;
    struct weft_search_how how = {.seed = 7, .evaluations = 900};
    make_random(11);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &a, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &b, &err), err);
    CHECK(memcmp(a.choice, b.choice, sizeof a.choice) == 0);
    CHECK(a.evaluations == b.evaluations);
    weft_search_free(s);
}

static bool same_result(const struct weft_search_result *a,
                        const struct weft_search_result *b)
{
    bool same = memcmp(a->choice, b->choice, sizeof a->choice) == 0
             && a->value.period == b->value.period && a->bound == b->bound
             && a->any_order == b->any_order
             && a->evaluations == b->evaluations && a->branches == b->branches
             && a->n_finalists == b->n_finalists;
    for (int32_t i = 0; same && i < a->n_finalists; i++)
        same = memcmp(a->finalist[i].choice, b->finalist[i].choice,
                      (size_t) p.n_calls * sizeof a->choice[0])
            == 0;
    return same;
}

/* The same in any number of threads, also in more than there are restarts. */
static void test_threads(void)
{
    static const int32_t n_threads[] = {0, 1, 2, 3, 16};
    for (uint32_t seed = 1; seed <= 6; seed++) {
        struct weft_search *s;
        struct weft_err err;
        struct weft_search_result r[WEFT_COUNT(n_threads)];
        make_random(seed);
        p.device_bytes = 60 + 10 * (double) (seed % 6);
        REQUIRE_OK(weft_search_create(&p, &s, &err), err);
        for (size_t i = 0; i < WEFT_COUNT(n_threads); i++) {
            const struct weft_search_how how = {.seed = 7,
                                                .evaluations = 3000,
                                                .restarts = 7,
                                                .branches = 100,
                                                .n_threads = n_threads[i]};
            REQUIRE_OK(weft_search_run(s, &how, &r[i], &err), err);
            CHECK(same_result(&r[0], &r[i]));
        }
        CHECK(r[0].evaluations > 3000 / 8 - 7);
        weft_search_free(s);
    }
}

/* ---- Restarts elsewhere ------------------------------------------------- */

static int32_t
    n_ranks; /* that are played one after the other, the last first */
static int32_t failing; /* of them; -1: none does */
static int32_t n_played;

/* A rank has a problem of its own, does restarts that are its share, and none
 * else. */
static int play_rank(int32_t rank, const struct weft_search_problem *problem,
                     const struct weft_search_how *how,
                     const struct weft_search_result *best,
                     struct weft_search_result *own, struct weft_err *err)
{
    static struct weft_option there[MOST][OPTIONS];
    static struct weft_search_result mine[16];
    struct weft_search_problem q = *problem;
    struct weft_search *s;
    if (rank == failing)
        return weft_err_set(err, WEFT_ENOMEM, "rank %d has no memory", rank);
    memcpy(there, option, sizeof there);
    for (int32_t c = 0; c < q.n_calls; c++)
        q.call[c].option = there[c];
    REQUIRE(how->restarts <= (int32_t) WEFT_COUNT(mine));
    REQUIRE_OK(weft_search_create(&q, &s, err), *err);
    for (int32_t i = 0; i < how->restarts; i++)
        mine[i].n_finalists = -1;
    weft_search_restart(s, how, best, rank, n_ranks, mine);
    weft_search_free(s);
    for (int32_t i = 0; i < how->restarts; i++) {
        CHECK((mine[i].n_finalists < 0) == (i % n_ranks != rank));
        if (i % n_ranks == rank)
            own[i] = mine[i];
    }
    n_played++;
    return 0;
}

static int play_ranks(const struct weft_search *s,
                      const struct weft_search_how *how,
                      const struct weft_search_result *best,
                      struct weft_search_result *own, struct weft_err *err)
{
    int rc = 0;
    for (int32_t r = n_ranks - 1; r >= 0 && !rc; r--)
        rc = play_rank(r, weft_search_problem_of(s), how, best, own, err);
    return rc;
}

/* What one process finds, whether there are more ranks than restarts or fewer;
 * 0 restarts are 4. */
static void test_spread(void)
{
    static const int32_t ranks[] = {1, 2, 3, 5, 16}, restarts[] = {0, 1, 7};
    failing = -1;
    for (uint32_t seed = 1; seed <= 6; seed++) {
        struct weft_search *s;
        struct weft_err err;
        make_random(seed);
        p.device_bytes = 60 + 10 * (double) (seed % 6);
        p.move = seed % 2 ? move_s : NULL;
        REQUIRE_OK(weft_search_create(&p, &s, &err), err);
        for (size_t i = 0; i < WEFT_COUNT(restarts); i++) {
            struct weft_search_result alone, r;
            struct weft_search_how how = {.seed = seed,
                                          .evaluations = 3000,
                                          .restarts = restarts[i],
                                          .branches = 100,
                                          .n_threads = 2};
            REQUIRE_OK(weft_search_run(s, &how, &alone, &err), err);
            how.spread = play_ranks;
            for (size_t k = 0; k < WEFT_COUNT(ranks); k++) {
                n_ranks = ranks[k];
                n_played = 0;
                REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
                CHECK(same_result(&alone, &r));
                CHECK(n_played >= n_ranks && n_played % n_ranks == 0);
            }
        }
        weft_search_free(s);
    }
}

/* What a rank fails with is the search's error. */
static void test_spread_fails(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    const struct weft_search_how how = {.evaluations = 3000,
                                        .spread = play_ranks};
    make_random(4);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    n_ranks = 3;
    failing = 1;
    CHECK_FAILS(weft_search_run(s, &how, &r, &err), WEFT_ENOMEM, err,
                "rank 1 has no memory");
    weft_search_free(s);
}

/* ---- Methods ------------------------------------------------------------ */

/* What each method finds and proves, beside the best of all choices. */
static void check_methods(int *n_greedy, int *n_unproven)
{
    struct weft_search *s;
    struct weft_err err;
    double best = best_of_all();
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    for (int m = 0; m < WEFT_N_SEARCH_METHODS; m++) {
        const struct weft_search_how how = {
            .method = (enum weft_search_method) m,
            .seed = 3,
            .evaluations = 3000,
            .branches = 1000000};
        struct weft_search_result r;
        bool proves = m == WEFT_SEARCH_ALL || m == WEFT_SEARCH_BRANCHES
                   || m == WEFT_SEARCH_EXHAUSTIVE;
        REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
        CHECK(!r.fits || r.value.period >= best * (1 - 1e-9));
        CHECK(r.bound <= best * (1 + 1e-9) && r.any_order <= r.bound);
        CHECK((r.branches > 0)
              == (m == WEFT_SEARCH_ALL || m == WEFT_SEARCH_BRANCHES));
        if (proves && best < INFINITY) {
            CHECK(r.fits && r.value.period <= best * (1 + 1e-9));
            CHECK(r.bound >= best * (1 - 1e-9));
        }
        CHECK(m != WEFT_SEARCH_EXHAUSTIVE || r.fits == (best < INFINITY));
        *n_greedy += m == WEFT_SEARCH_GREEDY && r.fits
                  && r.value.period > best * (1 + 1e-9);
        *n_unproven += m == WEFT_SEARCH_ANNEAL && r.fits
                    && r.value.period <= best * (1 + 1e-9)
                    && r.bound < best * (1 - 1e-3);
    }
    weft_search_free(s);
}

static void test_methods(void)
{
    int n_greedy = 0, n_unproven = 0;
    for (uint32_t seed = 1; seed <= 16; seed++) {
        make_random(seed);
        p.device_bytes = 45 + 10 * (double) (seed % 6);
        check_methods(&n_greedy, &n_unproven);
    }
    CHECK(n_greedy > 0);   /* greedy is not the best each time ... */
    CHECK(n_unproven > 0); /* ... nor is what is found known to be it */
}

/* An exhaustive search has no more choices than it says. */
static void test_too_many(void)
{
    static struct weft_option many[1000];
    const struct weft_search_how how = {.method = WEFT_SEARCH_EXHAUSTIVE,
                                        .stop = at_once};
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    set_graph(&graphs[2]);
    for (int32_t c = 0; c < 3; c++)
        add(c, all, 1, 1, 1, 1);
    for (size_t i = 0; i < WEFT_COUNT(many); i++)
        many[i] = option[0][0];
    for (int32_t c = 0; c < 3; c++)
        p.call[c].option = many;
    p.call[0].n_options = p.call[1].n_options = 1000;
    p.call[2].n_options = 10; /* ten million */
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.stopped && r.bound > 0 && r.bound <= r.value.period);
    weft_search_free(s);
    p.call[2].n_options = 11;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    CHECK_FAILS(weft_search_run(s, &how, &r, &err), WEFT_EINVAL, err,
                "looks at 10000000 choices at most, and calls have 1.1e+07");
    weft_search_free(s);
}

static void test_refused(void)
{
    struct weft_search *s;
    struct weft_err err;
    set_calls();
    CHECK_FAILS(weft_search_create(&p, &s, &err), WEFT_EINVAL, err,
                "call 0 has no option");
    p.n_calls = 0;
    CHECK_FAILS(weft_search_create(&p, &s, &err), WEFT_EINVAL, err,
                "1 to 32 calls");
}

WEFT_TESTS("plan/search", {"all_on_all_devices", test_all_on_all_devices},
           {"apart", test_apart}, {"bubbles", test_bubbles},
           {"kinds", test_kinds},
           {"gang_and_pipeline", test_gang_and_pipeline},
           {"any_device", test_any_device},
           {"first_of_gang", test_first_of_gang},
           {"gaps_of_gang", test_gaps_of_gang}, {"streams", test_streams},
           {"random", test_random}, {"random_kinds", test_random_kinds},
           {"algorithms", test_algorithms}, {"trunk", test_trunk},
           {"cut", test_cut}, {"annealing", test_annealing},
           {"fused", test_fused}, {"fused_moves", test_fused_moves},
           {"same_seed_same_result", test_same_seed_same_result},
           {"finalists", test_finalists}, {"stopped", test_stopped},
           {"threads", test_threads}, {"spread", test_spread},
           {"spread_fails", test_spread_fails}, {"methods", test_methods},
           {"too_many", test_too_many}, {"refused", test_refused})
