/* SPDX-License-Identifier: Apache-2.0 */
/* Searching for a given time, with searches whose results are written down
 * here: what is asked of each, when it ends, what is kept. */
#include "harness.h"

#include "schedule/schedule.h"

struct step {
    double makespan, peak, bound, seconds;
    int64_t evaluations;
    bool optimal, cut;
};

static const struct step *script;
static int n_calls;
static struct weft_schedule_options asked[8];

static int play(const struct weft_schedule_problem *problem,
                const struct weft_schedule_options *options,
                struct weft_schedule_result *out, struct weft_err *err)
{
    const struct step *s = &script[n_calls];
    (void) problem;
    asked[n_calls++] = *options;
    if (s->makespan == 0)
        return weft_err_set(err, WEFT_ENOMEM, "the script's end");
    if (s->makespan < 0)
        return weft_err_set(err, WEFT_ENOTFOUND, "nothing found");
    *out = (struct weft_schedule_result){
        .schedule = {.makespan = s->makespan, .peak_activation = s->peak},
        .bound = {.makespan = s->bound},
        .evaluations = s->evaluations,
        .seconds = s->seconds,
        .optimal = s->optimal,
        .cut = s->cut};
    return 0;
}

static struct weft_schedule_result run(const struct step *steps,
                                       double limit_s, int64_t evaluations)
{
    struct weft_schedule_problem problem = {0};
    struct weft_schedule_options o = {
        .seed = 5, .time_limit_s = limit_s, .evaluations = evaluations};
    struct weft_schedule_result r;
    struct weft_err err;
    script = steps;
    n_calls = 0;
    REQUIRE_OK(weft_schedule_search_until(&problem, &o, play, &r, &err), err);
    return r;
}

/* 10 s at 100 evaluations/s leave 50: 5000, but at most 8 times the last. The
 * third search proves what the second found. */
static void test_until_proven(void)
{
    static const struct step steps[] = {{377, 0, 370, 10, 500, false, false},
                                        {372, 2, 370, 20, 4000, false, false},
                                        {372, 3, 372, 5, 900, true, false},
                                        {0, 0, 0, 0, 0, false, false}};
    struct weft_schedule_result r = run(steps, 60, 0);
    CHECK_INT(n_calls, 3);
    CHECK(asked[0].evaluations == 0 && asked[0].time_limit_s == 60);
    CHECK(asked[1].evaluations > 2400 && asked[1].evaluations <= 2501);
    CHECK(asked[1].time_limit_s == 50 && asked[1].seed == 6);
    CHECK(asked[2].evaluations > 5900 && asked[2].evaluations <= 6001);
    CHECK(asked[2].time_limit_s == 30 && asked[2].seed == 7);
    CHECK(r.optimal && !r.cut);
    CHECK(r.schedule.makespan == 372 && r.schedule.peak_activation == 2);
    CHECK(r.bound.makespan == 372 && r.seconds == 35);
    CHECK_INT(r.evaluations, 5400);
}

/* The last one is worse; its better bound is kept. */
static void test_until_limit(void)
{
    static const struct step steps[] = {{10, 0, 7, 1, 100, false, false},
                                        {11, 0, 8, 8, 800, false, false},
                                        {10, 1, 7, 0.6, 60, false, false},
                                        {0, 0, 0, 0, 0, false, false}};
    struct weft_schedule_result r = run(steps, 10, 0);
    CHECK_INT(n_calls, 3);
    CHECK_INT(asked[1].evaluations, 801); /* 8 times, not 9 seconds' */
    CHECK(r.cut && !r.optimal && r.schedule.makespan == 10);
    CHECK(r.schedule.peak_activation == 0 && r.bound.makespan == 8);
}

/* A last search that is too short to find anything takes nothing away. */
static void test_until_nothing(void)
{
    static const struct step steps[] = {{10, 3, 7, 9, 100, false, false},
                                        {-1, 0, 0, 0, 0, false, false},
                                        {0, 0, 0, 0, 0, false, false}};
    struct weft_schedule_result r = run(steps, 10, 0);
    CHECK_INT(n_calls, 2);
    CHECK(r.schedule.makespan == 10 && r.schedule.peak_activation == 3);
    CHECK(r.cut && !r.optimal && r.bound.makespan == 7);
}

static void test_until_one_search(void)
{
    static const struct step stopped[] = {{9, 0, 0, 1, 9, false, true},
                                          {0, 0, 0, 0, 0, false, false}};
    static const struct step whole[] = {{9, 0, 0, 1, 9, false, false},
                                        {0, 0, 0, 0, 0, false, false}};
    CHECK(run(stopped, 10, 0).cut); /* Ctrl-C */
    CHECK_INT(n_calls, 1);
    CHECK(!run(whole, 10, 9).cut); /* as many as were asked for */
    CHECK_INT(n_calls, 1);
    CHECK(!run(whole, 0, 0).cut); /* no limit */
    CHECK_INT(n_calls, 1);
}

WEFT_TESTS("schedule/search_until", {"test_until_proven", test_until_proven},
           {"test_until_limit", test_until_limit},
           {"test_until_nothing", test_until_nothing},
           {"test_until_one_search", test_until_one_search})
