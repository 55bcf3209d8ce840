/* SPDX-License-Identifier: Apache-2.0 */
#include "jobshop_fixture.h"
#include "exhaustive.h"

/* RLHFuse's own lower bounds of its Table 3, and the activations, as a share
 * of serial 1F1B's, within which its published schedules reach them, or
 * others do. */
static void test_bounds_table3(void)
{
    static const struct {
        int32_t pp0, pp1, gbs;
        double f0, f1, act0, act1, least, peak;
    } t[] = {{8, 4, 8, 5, 4, 1.95, 2, 225, 1},
             {8, 4, 16, 5, 4, 1.95, 2, 372, 1.01},
             {8, 4, 32, 5, 4, 1.95, 2, 708, 1.263},
             {8, 8, 8, 5, 2, 1.95, 1, 225, 1},
             {8, 8, 16, 5, 2, 1.95, 1, 366, 1.189},
             {8, 8, 32, 5, 2, 1.95, 1, 702, 1.13},
             {16, 8, 16, 2, 2, 1.64, 2, 186, 1},
             {16, 8, 32, 2, 2, 1.64, 2, 330, 1.139},
             {16, 8, 64, 2, 2, 1.64, 2, 618, 1.1},
             {16, 16, 16, 2, 1, 1.64, 1, 186, 1},
             {16, 16, 32, 2, 1, 1.64, 1, 318, 1.11},
             {16, 16, 64, 2, 1, 1.64, 1, 606, 1.1}};
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        struct weft_schedule_problem p = two_models(
            t[i].pp0, t[i].pp1, t[i].gbs, t[i].f0, t[i].f1, t[i].act0,
            t[i].act1);
        struct weft_schedule_bound b;
        struct weft_err err;
        double peak = (t[i].peak + 0.0005) * t[i].pp0 * t[i].act0;
        REQUIRE_OK(weft_schedule_bounds(&p, 0, &b, &err), err);
        CHECK(b.makespan == t[i].least);
        CHECK(b.peak_activation <= peak);
        p.capacity = peak;
        REQUIRE_OK(weft_schedule_bounds(&p, 1, &b, &err), err);
        CHECK(b.makespan == t[i].least);
        CHECK(b.peak_activation <= peak);
        free_problem(&p);
    }
}

/* As many micro-batches as stages: 1F1B's memory is least at its makespan;
 * with less capacity the makespan's bound rises. */
static void test_bounds_1f1b(void)
{
    struct weft_schedule_problem p = two_models(8, 8, 8, 5, 2, 1.95, 1);
    struct weft_schedule_bound b;
    struct weft_err err;
    REQUIRE_OK(weft_schedule_bounds(&p, 0, &b, &err), err);
    CHECK(b.makespan == 225);
    CHECK(b.peak_activation == 8 * 1.95);
    p.capacity = 7 * 1.95;
    REQUIRE_OK(weft_schedule_bounds(&p, 0, &b, &err), err);
    CHECK(b.makespan >= 2 * 8 * 15); /* the eighth after the first */
    free_problem(&p);
}

/* Below the least makespan; the higher effort sometimes nearer to it. */
static void test_bounds_exhaustive(void)
{
    struct draw d = {.rng = {.seed = 5}};
    int n_met[3] = {0};
    for (int n = 0; n < 300;) {
        struct weft_schedule_problem p = random_problem(&d, 2);
        p.mini_batches = draw_int(&d, 0, 4) ? 1 : 2;
        if (count_subtasks(&p) <= 14) {
            struct weft_schedule best;
            struct weft_err err;
            double last = 0;
            p.capacity = n % 2 ? 5 + draw_int(&d, 0, 3) : 0;
            REQUIRE_OK(schedule_exhaustive(&p, &best, &err), err);
            for (int effort = 0; effort < 3; effort++) {
                struct weft_schedule_bound b;
                REQUIRE_OK(weft_schedule_bounds(&p, effort, &b, &err), err);
                CHECK(b.makespan <= best.makespan);
                CHECK(b.makespan >= last);
                CHECK(b.makespan < best.makespan
                      || b.peak_activation <= best.peak_activation);
                n_met[effort] += b.makespan == best.makespan;
                last = b.makespan;
            }
            struct weft_schedule_bound beside;
            REQUIRE_OK(weft_schedule_bounds_tradeoff(&p, best.makespan,
                                                     best.peak_activation,
                                                     &beside, &err),
                       err);
            CHECK(beside.makespan <= best.makespan);
            CHECK(beside.peak_activation <= best.peak_activation);
            weft_schedule_release(&best);
            n++;
        }
        free_problem(&p);
    }
    CHECK(n_met[1] < n_met[2]);
}

/* Known to be least, but above the bound: proven now and then, and no bound
 * goes above it. */
static void test_bounds_prove(void)
{
    struct draw d = {.rng = {.seed = 6}};
    struct weft_schedule_options o = {.evaluations = 100000};
    int n_above = 0, n_proven = 0;
    for (int n = 0; n < 100; n++) {
        struct weft_schedule_problem p = random_problem(&d, 2);
        struct weft_schedule_result r = {0};
        struct weft_err err;
        if (count_subtasks(&p) <= 14) {
            REQUIRE_OK(schedule_exhaustive(&p, &r.schedule, &err), err);
            REQUIRE_OK(weft_schedule_bounds(&p, 1, &r.bound, &err), err);
            double makespan = r.schedule.makespan, first = r.bound.makespan;
            r.optimal = first == makespan;
            n_above += !r.optimal;
            REQUIRE_OK(weft_schedule_prove(&p, &o, &r, &err), err);
            CHECK(r.bound.makespan >= first && r.bound.makespan <= makespan);
            CHECK(r.optimal == (r.bound.makespan == makespan));
            n_proven += r.optimal && first < makespan;
            weft_schedule_release(&r.schedule);
        }
        free_problem(&p);
    }
    CHECK(n_proven > 0 && n_proven <= n_above);
}

WEFT_TESTS("schedule/bounds", {"test_bounds_table3", test_bounds_table3},
           {"test_bounds_1f1b", test_bounds_1f1b},
           {"test_bounds_exhaustive", test_bounds_exhaustive},
           {"test_bounds_prove", test_bounds_prove})
