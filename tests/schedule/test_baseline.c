/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule_fixture.h"

static struct weft_err err;

static struct weft_schedule make(const struct weft_schedule_problem *p,
                                 enum weft_schedule_algorithm algorithm)
{
    struct weft_schedule s = {0};
    REQUIRE_OK(weft_schedule_baseline(p, algorithm, &s, &err), err);
    return s;
}

static double makespan(const struct weft_schedule_problem *p,
                       enum weft_schedule_algorithm algorithm)
{
    struct weft_schedule s = make(p, algorithm);
    double t = s.makespan;
    weft_schedule_release(&s);
    return t;
}

/* RLHFuse's Table 3 with the numbers of its code (exp2 ... exp9): serial time,
 * and relative to it 1F1B+ and greedy; greedy's memory. */
static const struct setting {
    int32_t pp0, pp1, gbs;
    double f0, f1, memory0, memory1;
    double serial, plus, greedy, greedy_memory;
} settings[] = {
    {8, 4, 8, 5, 4, 1.95, 2, 309, 1.096, 1.293, 1.513},
    {8, 4, 16, 5, 4, 1.95, 2, 477, 1.06, 1.122, 2.135},
    {8, 4, 32, 5, 4, 1.95, 2, 813, 1.034, 1.097, 2.75},
    {8, 8, 8, 5, 2, 1.95, 1, 315, 1.071, 1.4, 1.513},
    {8, 8, 16, 5, 2, 1.95, 1, 483, 1.045, 1.153, 2.003},
    {8, 8, 32, 5, 2, 1.95, 1, 819, 1.026, 1.085, 2.75},
    {16, 8, 16, 2, 2, 1.64, 2, 276, 1.045, 1.29, 1.61},
    {16, 8, 32, 2, 2, 1.64, 2, 420, 1.029, 1.148, 2.229},
    {16, 8, 64, 2, 2, 1.64, 2, 708, 1.017, 1.12, 2.875},
    {16, 16, 16, 2, 1, 1.64, 1, 279, 1.033, 1.274, 1.572},
    {16, 16, 32, 2, 1, 1.64, 1, 423, 1.022, 1.165, 2.0},
    {16, 16, 64, 2, 1, 1.64, 1, 711, 1.013, 1.092, 2.875},
};

static void test_schedule_baseline_rlhfuse(void)
{
    for (size_t i = 0; i < WEFT_COUNT(settings); i++) {
        const struct setting *k = &settings[i];
        struct weft_schedule_problem p = test_rlhfuse(
            k->pp0, k->pp1, k->gbs, k->f0, k->f1, k->memory0, k->memory1);
        struct weft_schedule serial = make(&p, WEFT_SCHEDULE_SERIAL);
        struct weft_schedule greedy = make(&p, WEFT_SCHEDULE_GREEDY);
        double plus = makespan(&p, WEFT_SCHEDULE_1F1B_PLUS);
        CHECK(serial.makespan == k->serial);
        CHECK(fabs(serial.peak_activation - k->pp0 * k->memory0) < 1e-9);
        CHECK(fabs(k->serial / plus - k->plus) <= 0.0005001);
        CHECK(fabs(k->serial / greedy.makespan - k->greedy) <= 0.0005001);
        CHECK(fabs(greedy.peak_activation / serial.peak_activation
                   - k->greedy_memory)
              <= 0.0005001);
        if (k->gbs <= 16) { /* the rules are quadratic */
            test_rules(&p, &serial);
            test_rules(&p, &greedy);
        }
        weft_schedule_release(&serial);
        weft_schedule_release(&greedy);
        weft_schedule_problem_release(&p);
    }
}

/* (M + N - 1) (f + b) per model, also where micro-batches are few. */
static void test_schedule_baseline_serial_form(void)
{
    for (int32_t n = 1; n <= 5; n++)
        for (int32_t m = 1; m <= 7; m++) {
            struct weft_schedule_problem p = test_problem(n, 1);
            p.model[0] = test_model("a", n, n, m, 3, 1, n % 2);
            p.model[0].sync = 4;
            p.mini_batches = 3;
            struct weft_schedule s = make(&p, WEFT_SCHEDULE_SERIAL);
            CHECK(s.makespan == 3 * ((m + n - 1) * 9 + 4));
            CHECK(s.peak_activation == (m < n ? m : n));
            test_rules(&p, &s);
            weft_schedule_release(&s);
            weft_schedule_problem_release(&p);
        }
}

/* With equal stages of v chunks the bubble is 1 / v of 1F1B's (Narayanan et
 * al. 2021); all rules hold where stages differ, too. */
static void test_schedule_baseline_interleaved(void)
{
    for (int32_t v = 2; v <= 3; v++) {
        struct weft_schedule_problem p = test_problem(4, 1);
        p.model[0] = test_model("a", 4 * v, 4 * v, 8, 1, 1, v == 3);
        p.model[0].chunks = v;
        struct weft_schedule s = make(&p, WEFT_SCHEDULE_INTERLEAVED);
        CHECK(s.makespan == 8 * v * 3 + 3 * 3);
        CHECK(makespan(&p, WEFT_SCHEDULE_SERIAL) == (8 + 3) * 3 * v);
        test_rules(&p, &s);
        weft_schedule_release(&s);
        test_randomize(&p, 0, 1, 9, 5);
        p.latency = 1.5;
        s = make(&p, WEFT_SCHEDULE_INTERLEAVED);
        test_rules(&p, &s);
        weft_schedule_release(&s);
        p.model[0].micro_batches = 7;
        CHECK_FAILS(
            weft_schedule_baseline(&p, WEFT_SCHEDULE_INTERLEAVED, &s, &err),
            WEFT_EUNSUPPORTED, err, "groups of 4");
        weft_schedule_problem_release(&p);
    }
}

/* Forward as long as backward, N / 2 micro-batches down and up: 3N - 2 slots
 * (Li and Hoefler 2021, Figure 2). */
static void test_schedule_baseline_chimera(void)
{
    for (int32_t n = 2; n <= 8; n += 2)
        for (int32_t units = 1; units <= 2; units++) {
            struct weft_schedule_problem p = test_problem(n, 2);
            p.model[0] = test_model("a", n, n, n / 2 * units, 1, 1, false);
            p.model[1] = test_model("b", n, n, n / 2 * units, 1, 1, true);
            for (int k = 0; k < 2; k++)
                for (int32_t i = 0; i < n * n / 2 * units; i++)
                    p.model[k].backward[i] = 1;
            struct weft_schedule s = make(&p, WEFT_SCHEDULE_CHIMERA);
            if (units == 1)
                CHECK(s.makespan == 3 * n - 2);
            test_rules(&p, &s);
            weft_schedule_release(&s);
            p.model[1].up = false;
            CHECK_FAILS(
                weft_schedule_baseline(&p, WEFT_SCHEDULE_CHIMERA, &s, &err),
                WEFT_EUNSUPPORTED, err, "opposite directions");
            weft_schedule_problem_release(&p);
        }
}

/* Odd shapes: all rules, every baseline that takes them. */
static void test_schedule_baseline_rules(void)
{
    struct weft_schedule_problem p = test_problem(6, 3);
    p.model[0] = test_model("a", 6, 6, 4, 1, 1, false);
    p.model[1] = test_model("b", 6, 3, 5, 1, 1, true);
    p.model[2] = test_model("c", 6, 2, 3, 1, 1, false);
    for (int32_t m = 0; m < 3; m++) {
        if (m < 2)
            test_split_backward(&p.model[m]);
        test_randomize(&p, m, m == 2 ? 0 : 1, 9, (uint64_t) m);
        p.model[m].sync = m;
        p.model[m].optimizer = 2;
    }
    p.latency = 0.25;
    p.mini_batches = 2;
    const enum weft_schedule_algorithm all[] = {WEFT_SCHEDULE_SERIAL,
                                                WEFT_SCHEDULE_GREEDY};
    for (size_t i = 0; i < WEFT_COUNT(all); i++) {
        struct weft_schedule s = make(&p, all[i]);
        test_rules(&p, &s);
        weft_schedule_release(&s);
    }
    struct weft_schedule s;
    CHECK_FAILS(weft_schedule_baseline(&p, WEFT_SCHEDULE_1F1B_PLUS, &s, &err),
                WEFT_EUNSUPPORTED, err, "b has 3 devices per pipeline");
    CHECK_FAILS(
        weft_schedule_baseline(&p, WEFT_SCHEDULE_INTERLEAVED, &s, &err),
        WEFT_EUNSUPPORTED, err, "'chunks' above 1");
    CHECK_FAILS(weft_schedule_baseline(&p, WEFT_SCHEDULE_SEARCH, &s, &err),
                WEFT_EUNSUPPORTED, err, "'search' is no baseline");
    weft_schedule_problem_release(&p);
}

WEFT_TESTS("schedule/baseline",
           {"test_schedule_baseline_rlhfuse", test_schedule_baseline_rlhfuse},
           {"test_schedule_baseline_serial_form",
            test_schedule_baseline_serial_form},
           {"test_schedule_baseline_interleaved",
            test_schedule_baseline_interleaved},
           {"test_schedule_baseline_chimera", test_schedule_baseline_chimera},
           {"test_schedule_baseline_rules", test_schedule_baseline_rules})
