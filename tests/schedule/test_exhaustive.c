/* SPDX-License-Identifier: Apache-2.0 */
#include "exhaustive.h"
#include "schedule_fixture.h"

static struct weft_err err;

static struct weft_schedule best(const struct weft_schedule_problem *p)
{
    struct weft_schedule s = {0};
    REQUIRE_OK(schedule_exhaustive(p, &s, &err), err);
    test_rules(p, &s);
    return s;
}

/* 1F1B is best for one model: (M + N - 1) (f + b), and holds least. */
static void test_schedule_exhaustive_one_model(void)
{
    for (int32_t n = 1; n <= 3; n++)
        for (int32_t m = 1; m <= 3; m++) {
            struct weft_schedule_problem p = test_problem(n, 1);
            p.model[0] = test_model("a", n, n, m, 1, 1, false);
            struct weft_schedule s = best(&p);
            CHECK(s.makespan == (m + n - 1) * 3);
            CHECK(s.peak_activation == (m < n ? m : n));
            weft_schedule_release(&s);
            weft_schedule_problem_release(&p);
        }
}

/* Permutations of one device's subtasks, all of them: the oracle. */
struct oracle {
    const struct weft_schedule_problem *p;
    struct weft_schedule *s;
    double makespan, peak;
};

/* Whether entry i waits for a later one: no order of the others helps. */
static bool comes_too_soon(const struct weft_subtask *t, int32_t i, int32_t n)
{
    bool found = false;
    for (int32_t k = i + 1; k < n; k++)
        found = found
             || (t[k].model == t[i].model && t[k].pass < t[i].pass
                 && t[k].mini_batch == t[i].mini_batch
                 && t[k].pipeline == t[i].pipeline
                 && t[k].micro_batch == t[i].micro_batch);
    return found;
}

static void permute(struct oracle *o, int32_t d, int32_t from)
{
    while (d < o->s->n_devices && from == o->s->n[d]) {
        d++;
        from = 0;
    }
    if (d == o->s->n_devices) {
        if (weft_schedule_time(o->p, o->s, NULL) != 0)
            return;
        double t = o->s->makespan, peak = o->s->peak_activation;
        bool fits = o->p->capacity <= 0 || peak <= o->p->capacity;
        if (fits
            && (t < o->makespan || (t == o->makespan && peak < o->peak))) {
            o->makespan = t;
            o->peak = peak;
        }
        return;
    }
    struct weft_subtask *t = o->s->task[d];
    for (int32_t i = from; i < o->s->n[d]; i++) {
        struct weft_subtask moved = t[i];
        memmove(t + from + 1, t + from,
                (size_t) (i - from) * sizeof *t); /* keeps their order */
        t[from] = moved;
        if (!comes_too_soon(t, from, o->s->n[d]))
            permute(o, d, from + 1);
        memmove(t + from, t + from + 1, (size_t) (i - from) * sizeof *t);
        t[i] = moved;
    }
}

static void compare(const struct weft_schedule_problem *p)
{
    struct weft_schedule s = best(p), any;
    struct oracle o = {p, &any, INFINITY, INFINITY};
    REQUIRE_OK(weft_schedule_baseline(p, WEFT_SCHEDULE_GREEDY, &any, &err),
               err);
    CHECK(s.makespan <= any.makespan || p->capacity > 0);
    permute(&o, 0, 0);
    CHECK(s.makespan == o.makespan);
    CHECK(s.peak_activation == o.peak);
    weft_schedule_release(&any);
    weft_schedule_release(&s);
}

/* Two models on two devices, times and activations at random. */
static void test_schedule_exhaustive_permutations(void)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct weft_schedule_problem p = test_problem(2, 2);
        p.model[0] = test_model("a", 2, 2, 1 + (int32_t) (seed % 2), 1, 1,
                                false);
        p.model[1] = test_model("b", 2, seed % 3 ? 2 : 1, 1, 1, 1, true);
        test_randomize(&p, 0, seed == 5 ? 0 : 1, 4, seed);
        test_randomize(&p, 1, 1, 4, seed + 100);
        p.model[0].optimizer = (double) (seed % 4);
        p.latency = 0.5 * (double) (seed % 2);
        compare(&p);
        p.capacity = 5;
        if (weft_schedule_problem_check(&p, &err) == 0)
            compare(&p);
        weft_schedule_problem_release(&p);
    }
}

/* Split backward passes and two mini-batches. */
static void test_schedule_exhaustive_split(void)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct weft_schedule_problem p = test_problem(2, 1);
        p.model[0] = test_model("a", 2, 2, 2, 1, 1, false);
        if (seed < 2) {
            test_split_backward(&p.model[0]);
        } else {
            p.mini_batches = 2;
            p.model[0].micro_batches = 1;
            p.model[0].sync = 1;
        }
        test_randomize(&p, 0, 1, 4, seed);
        compare(&p);
        weft_schedule_problem_release(&p);
    }
}

static void test_schedule_exhaustive_refused(void)
{
    struct weft_schedule_problem p = test_rlhfuse(8, 4, 8, 1, 1, 1, 1);
    struct weft_schedule s;
    CHECK_FAILS(schedule_exhaustive(&p, &s, &err), WEFT_EUNSUPPORTED, err,
                "192 subtasks");
    weft_schedule_problem_release(&p);
    p = test_problem(1, 1);
    p.model[0] = test_model("a", 1, 1, 1, 1, 2, false);
    p.capacity = 1; /* which the check of a problem refuses, too */
    CHECK_FAILS(schedule_exhaustive(&p, &s, &err), WEFT_ENOTFOUND, err,
                "at most 1");
    weft_schedule_problem_release(&p);
}

WEFT_TESTS("schedule/exhaustive",
           {"test_schedule_exhaustive_one_model",
            test_schedule_exhaustive_one_model},
           {"test_schedule_exhaustive_permutations",
            test_schedule_exhaustive_permutations},
           {"test_schedule_exhaustive_split", test_schedule_exhaustive_split},
           {"test_schedule_exhaustive_refused",
            test_schedule_exhaustive_refused})
