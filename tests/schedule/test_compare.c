/* SPDX-License-Identifier: Apache-2.0 */
/* Plans beside what was measured; problems and orders to files and back. */
#include "schedule_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "schedule/file.h"
#include "schedule/tasks.h"

static char dir[256];

static char *path_of(const char *name, char path[300])
{
    snprintf(path, 300, "%s/%s", dir, name);
    return path;
}

static struct weft_schedule serial(const struct weft_schedule_problem *p)
{
    struct weft_schedule s;
    struct weft_err err;
    REQUIRE_OK(weft_schedule_baseline(p, WEFT_SCHEDULE_SERIAL, &s, &err),
               err);
    return s;
}

/* Two stages, two micro-batches, one model with forward 1, backward 2:
 *
 *     0  F0 F1 -- B0 B0 B1 B1 ...      by hand: 1F1B ends at 9, and each
 *     1  -- F0 B0 B0 F1 B1 B1          device works for 6 of it
 */
static void test_compare_numbers(void)
{
    struct weft_schedule_problem p = test_problem(2, 1);
    struct weft_schedule_comparison c;
    struct weft_err err;
    p.model[0] = test_model("actor", 2, 2, 2, 1, 3, false);
    struct weft_schedule plan = serial(&p), ran;
    REQUIRE_OK(weft_schedule_copy(&plan, &ran, &err), err);
    REQUIRE_OK(weft_schedule_compare(&p, &plan, &ran, &c, &err), err);
    CHECK(c.makespan == 9 && c.planned_makespan == 9);
    CHECK(fabs(c.bubble - (1 - 12.0 / 18)) < 1e-12);
    CHECK(c.bubble == c.planned_bubble);
    CHECK(c.peak == 6 && c.planned_peak == 6); /* both on stage 0 */
    CHECK(c.start_error == 0 && c.most_start_error == 0 && c.in_order);

    /* all of it 0.5 later, the last one 2 later still; and one not run */
    for (int32_t d = 0; d < 2; d++)
        for (int32_t i = 0; i < 4; i++) {
            double late = 0.5 + (d == 0 && i == 3 ? 2 : 0);
            ran.task[d][i].start += late;
            ran.task[d][i].end += late;
        }
    ran.task[1][3].start = ran.task[1][3].end = NAN;
    ran.makespan = 11.5;
    REQUIRE_OK(weft_schedule_compare(&p, &plan, &ran, &c, &err), err);
    CHECK(fabs(c.start_error - (6 * 0.5 + 2.5) / 7) < 1e-12);
    CHECK(c.most_start_error == 2.5);
    CHECK(fabs(c.bubble - (1 - 10 / 23.0)) < 1e-12);
    CHECK(c.in_order);

    /* the first two of device 0 the other way round */
    double start = ran.task[0][0].start;
    ran.task[0][0].start = ran.task[0][1].start;
    ran.task[0][1].start = start;
    ran.task[0][0].end += 1;
    REQUIRE_OK(weft_schedule_compare(&p, &plan, &ran, &c, &err), err);
    CHECK(!c.in_order);
    weft_schedule_release(&plan);
    weft_schedule_release(&ran);
    weft_schedule_problem_release(&p);
}

/* What is given back at the moment when something is taken makes room. */
static void test_compare_peak(void)
{
    struct weft_schedule_problem p = test_problem(1, 1);
    struct weft_schedule_comparison c;
    struct weft_err err;
    p.model[0] = test_model("actor", 1, 1, 3, 1, 2, false);
    struct weft_schedule plan = serial(&p), ran;
    REQUIRE_OK(weft_schedule_copy(&plan, &ran, &err), err);
    ran.task[0][2].start -= 0.25; /* a forward before the backward's end */
    REQUIRE_OK(weft_schedule_compare(&p, &plan, &ran, &c, &err), err);
    CHECK(c.planned_peak == 2);
    CHECK(c.peak == 4);
    weft_schedule_release(&plan);
    weft_schedule_release(&ran);
    weft_schedule_problem_release(&p);
}

/* Random tables come back to the bit. */
static void test_problem_file(void)
{
    for (int k = 0; k < 4; k++) {
        struct weft_schedule_problem p = test_problem(4, 2), q;
        struct weft_err err;
        char path[300];
        p.model[0] = test_model("actor", 4, 4, 3, 1, 1, false);
        p.model[1] = test_model("a \"critic\"", 4, 2, 2, 1, 1, true);
        test_randomize(&p, 0, 1, 1000, (uint64_t) k);
        test_randomize(&p, 1, 1, 1000, (uint64_t) k + 9);
        for (int32_t i = 0; i < 12; i++)
            p.model[0].forward[i] /= 7;
        p.latency = k * 0.1;
        p.capacity = k < 2 ? 0 : 1e6 / 3;
        p.mini_batches = 1 + k % 2;
        p.model[1].sync = 0.3;
        p.model[1].optimizer = k;
        REQUIRE_OK(
            weft_schedule_problem_write(&p, path_of("p.json", path), &err),
            err);
        REQUIRE_OK(weft_schedule_problem_read(path, &q, &err), err);
        CHECK(q.n_devices == 4 && q.n_models == 2);
        CHECK(q.latency == p.latency && q.capacity == p.capacity);
        CHECK_INT(q.mini_batches, p.mini_batches);
        for (int m = 0; m < 2; m++) {
            const struct weft_schedule_model *a = &p.model[m];
            const struct weft_schedule_model *b = &q.model[m];
            size_t bytes = (size_t) (a->stages * a->micro_batches)
                         * sizeof(double);
            CHECK(strcmp(a->name, b->name) == 0 && a->up == b->up);
            CHECK_INT(a->pipelines, b->pipelines);
            CHECK_INT(a->stages, b->stages);
            CHECK_INT(a->micro_batches, b->micro_batches);
            CHECK(memcmp(a->forward, b->forward, bytes) == 0);
            CHECK(memcmp(a->backward, b->backward, bytes) == 0);
            CHECK(memcmp(a->activation, b->activation, bytes) == 0);
            CHECK(a->sync == b->sync && a->optimizer == b->optimizer);
        }
        weft_schedule_problem_release(&p);
        weft_schedule_problem_release(&q);
    }
}

/* An order read for a problem that knows neither times nor numbers of
 * micro-batches is the written one. */
static void test_order_file(void)
{
    struct weft_schedule_problem p = test_rlhfuse(8, 4, 8, 5, 4, 1, 1);
    struct weft_schedule_problem bare = test_problem(8, 2);
    struct weft_schedule_report report = {.lower_bound = NAN,
                                          .serial_1f1b = NAN,
                                          .greedy = NAN,
                                          .seconds = NAN,
                                          .serial_peak_activation = NAN};
    struct weft_schedule s, order;
    struct weft_err err;
    char path[300];
    REQUIRE_OK(weft_schedule_baseline(&p, WEFT_SCHEDULE_GREEDY, &s, &err),
               err);
    REQUIRE_OK(
        weft_schedule_write(&p, &s, &report, path_of("s.json", path), &err),
        err);
    bare.model[0] = test_model("actor", 8, 8, 0, 1, 1, false);
    bare.model[1] = test_model("critic", 8, 4, 0, 1, 1, true);
    REQUIRE_OK(weft_schedule_read_order(&bare, path, &order, &err), err);
    CHECK_INT(bare.model[0].micro_batches, 8);
    CHECK_INT(bare.model[1].micro_batches, 4);
    REQUIRE_OK(weft_schedule_time(&p, &order, &err), err);
    CHECK(order.makespan == s.makespan);
    for (int32_t d = 0; d < 8; d++) {
        CHECK_INT(order.n[d], s.n[d]);
        for (int32_t i = 0; i < s.n[d]; i++)
            CHECK(
                memcmp(&order.task[d][i], &s.task[d][i], sizeof s.task[d][i])
                == 0);
    }
    weft_schedule_release(&order);

    /* fewer micro-batches than the file's */
    bare.model[0].micro_batches = 7;
    CHECK(weft_schedule_read_order(&bare, path, &order, &err) != 0);
    CHECK(strstr(err.text, "micro_batch") != NULL);
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
    weft_schedule_problem_release(&bare);
}

static void test_make(void)
{
    snprintf(dir, sizeof dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
}

static void test_remove(void)
{
    char path[300];
    unlink(path_of("p.json", path));
    unlink(path_of("s.json", path));
    CHECK(rmdir(dir) == 0);
}

WEFT_TESTS("schedule/compare", {"make", test_make},
           {"test_compare_numbers", test_compare_numbers},
           {"test_compare_peak", test_compare_peak},
           {"test_problem_file", test_problem_file},
           {"test_order_file", test_order_file}, {"remove", test_remove})
