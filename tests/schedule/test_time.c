/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule_fixture.h"

static struct weft_err err;

/* One device after another passes micro-batch 0 forward, then back. */
static void test_schedule_time_chain(void)
{
    struct weft_schedule_problem p = test_problem(4, 1);
    struct weft_schedule s;
    p.model[0] = test_model("a", 4, 4, 1, 1, 3, true);
    p.model[0].sync = 5;
    p.model[0].optimizer = 7;
    p.latency = 0.5;
    REQUIRE_OK(weft_schedule_baseline(&p, WEFT_SCHEDULE_SERIAL, &s, &err),
               err);
    REQUIRE_OK(weft_schedule_time(&p, &s, &err), err);
    CHECK(s.makespan == 4 * 3 + 6 * 0.5 + 12);
    CHECK(s.peak_activation == 3);
    CHECK(s.task[3][0].stage == 0 && s.task[3][0].start == 0);
    CHECK(s.task[0][0].start == 3 * 1.5);
    CHECK(s.task[3][1].end == 15);
    test_rules(&p, &s);
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
}

/* The next mini-batch of a model waits for its own step alone. */
static void test_schedule_time_mini_batches(void)
{
    struct weft_schedule_problem p = test_problem(1, 2);
    struct weft_schedule s;
    p.model[0] = test_model("a", 1, 1, 1, 1, 1, false);
    p.model[1] = test_model("b", 1, 1, 1, 1, 1, true);
    p.model[0].optimizer = 10;
    p.mini_batches = 2;
    REQUIRE_OK(weft_schedule_baseline(&p, WEFT_SCHEDULE_GREEDY, &s, &err),
               err);
    test_rules(&p, &s);
    /* a 0-3, its step 13; b 3-6, 6-9; a 13-16, step 26 */
    CHECK(s.makespan == 26);
    CHECK(s.task[0][7].end == 16);
    CHECK(s.task[0][5].end == 9);
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
}

static void swap(struct weft_subtask *a, struct weft_subtask *b)
{
    struct weft_subtask t = *a;
    *a = *b;
    *b = t;
}

static void test_schedule_time_wrong(void)
{
    struct weft_schedule_problem p = test_problem(2, 1);
    struct weft_schedule s;
    p.model[0] = test_model("a", 2, 2, 2, 1, 1, false);
    REQUIRE_OK(weft_schedule_baseline(&p, WEFT_SCHEDULE_SERIAL, &s, &err),
               err);
    /* device 1: F0 B0 F1 B1 */
    swap(&s.task[1][0], &s.task[1][1]);
    CHECK_FAILS(weft_schedule_time(&p, &s, &err), WEFT_EINVAL, err,
                "device 0: backward of micro-batch 0 of a on stage 0 waits "
                "for backward of micro-batch 0 of a on stage 1, which cannot "
                "come before it");
    swap(&s.task[1][0], &s.task[1][1]);
    swap(&s.task[0][2], &s.task[0][3]); /* gradients out of order */
    CHECK_FAILS(weft_schedule_time(&p, &s, &err), WEFT_EINVAL, err,
                "device 0: backward of micro-batch 1 of a on stage 0 waits "
                "for backward of micro-batch 0 of a on stage 0, which");
    swap(&s.task[0][2], &s.task[0][3]);
    swap(&s.task[0][0], &s.task[1][0]);
    CHECK_FAILS(weft_schedule_time(&p, &s, &err), WEFT_EINVAL, err,
                "device 0: forward of micro-batch 0 of a on stage 1 belongs "
                "to device 1");
    swap(&s.task[0][0], &s.task[1][0]);
    s.n[0]--;
    CHECK_FAILS(weft_schedule_time(&p, &s, &err), WEFT_EINVAL, err,
                "7 of 8 subtasks");
    s.n[0]++;
    s.task[0][1] = s.task[0][0];
    CHECK_FAILS(weft_schedule_time(&p, &s, &err), WEFT_EINVAL, err,
                "device 0: forward of micro-batch 0 of a on stage 0 is there "
                "twice");
    s.task[0][1].micro_batch = 2;
    CHECK_FAILS(weft_schedule_time(&p, &s, &err), WEFT_EINVAL, err,
                "entry 1 is no subtask");
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
}

WEFT_TESTS("schedule/time",
           {"test_schedule_time_chain", test_schedule_time_chain},
           {"test_schedule_time_mini_batches",
            test_schedule_time_mini_batches},
           {"test_schedule_time_wrong", test_schedule_time_wrong})
