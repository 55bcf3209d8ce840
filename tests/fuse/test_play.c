/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime keeps a schedule's order on devices that sleep. */
#include "harness.h"

#include "base/alloc.h"
#include "fuse/play.h"

static double *constant(int32_t n, double value)
{
    double *x = weft_alloc((size_t) n, sizeof *x);
    for (int32_t i = 0; i < n; i++)
        x[i] = value;
    return x;
}

static struct weft_schedule_model model_of(const char *name,
                                           int32_t pipelines, int32_t stages,
                                           int32_t micro_batches,
                                           double forward, bool up)
{
    int32_t n = stages * micro_batches;
    return (struct weft_schedule_model){.name = weft_strdup(name),
                                        .pipelines = pipelines,
                                        .stages = stages,
                                        .chunks = 1,
                                        .micro_batches = micro_batches,
                                        .up = up,
                                        .forward = constant(n, forward),
                                        .backward = constant(n, 2 * forward),
                                        .activation = constant(n, 1)};
}

static const struct weft_subtask *find(const struct weft_schedule *s,
                                       const struct weft_subtask *like)
{
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *k = &s->task[d][i];
            if (k->model == like->model && k->pipeline == like->pipeline
                && k->micro_batch == like->micro_batch
                && k->stage == like->stage && k->pass == like->pass)
                return k;
        }
    return NULL;
}

/* Measured times: a device does one thing at a time, in its order, and
 * nothing before what it waits for. */
static void check_played(const struct weft_schedule_problem *problem,
                         const struct weft_schedule *s)
{
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *k = &s->task[d][i], *before;
            struct weft_subtask like = *k;
            bool forward = k->pass == WEFT_PASS_FORWARD;
            int32_t last = problem->model[k->model].stages - 1;
            CHECK(k->end > k->start && k->start >= 0);
            CHECK(k->end <= s->makespan);
            if (i > 0)
                CHECK(k->start >= k[-1].end);
            if (forward && k->stage == 0)
                continue;
            like.stage += forward ? -1 : k->stage == last ? 0 : 1;
            like.pass = forward || k->stage == last ? WEFT_PASS_FORWARD
                                                    : WEFT_PASS_BACKWARD;
            before = find(s, &like);
            REQUIRE(before != NULL);
            CHECK(k->start >= before->end);
        }
}

static void test_play_schedule(void)
{
    struct weft_err err;
    struct weft_schedule schedule;
    struct weft_schedule_problem problem = {
        .n_devices = 6, .n_models = 2, .mini_batches = 1};
    problem.model = weft_alloc(2, sizeof *problem.model);
    problem.model[0] = model_of("actor", 1, 6, 4, 2, false);
    problem.model[1] = model_of("critic", 2, 3, 4, 1, true);
    REQUIRE_OK(weft_schedule_baseline(&problem, WEFT_SCHEDULE_GREEDY,
                                      &schedule, &err),
               err);
    double planned = schedule.makespan;
    REQUIRE_OK(weft_play_schedule(&problem, &schedule, 1e-3, &err), err);
    check_played(&problem, &schedule);
    CHECK(schedule.makespan >= planned * 0.999); /* sleeps end not early */
    weft_schedule_release(&schedule);
    weft_schedule_problem_release(&problem);
}

WEFT_TESTS("run/play", {"test_play_schedule", test_play_schedule})
