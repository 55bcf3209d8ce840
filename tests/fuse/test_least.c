/* SPDX-License-Identifier: Apache-2.0 */
/* What fused training takes at least: closed forms of chains and of full
 * devices, and never more than a schedule that is found. */
#include "harness.h"

#include <math.h>

#include "base/alloc.h"
#include "fuse/least.h"
#include "plan/deal.h"
#include "schedule/schedule.h"

static const struct weft_shape shape = {.n_layers = 8,
                                        .hidden = 64,
                                        .intermediate = 256,
                                        .n_heads = 4,
                                        .n_kv_heads = 4,
                                        .head_dim = 16,
                                        .vocab = 512};

static double rest; /* that a device does beside passes, in a step */

static double least(const struct weft_call_plan plan[2], const int32_t n[2],
                    const double busy[2], int32_t steps)
{
    struct weft_err err;
    double s = 0;
    struct weft_fuse_call call[2];
    for (int i = 0; i < 2; i++)
        call[i] = (struct weft_fuse_call){&shape, &plan[i], n[i],
                                          busy[i] + rest, busy[i]};
    REQUIRE_OK(weft_fuse_least(call, steps, &s, &err), err);
    return s;
}

/* One micro-batch passes all stages, forth and back, and what its devices do in
 * the mean is done that many times in turn; a model's steps follow one
 * another. */
static void test_chain(void)
{
    static const int32_t one[2] = {1, 1};
    for (int32_t pp = 2; pp <= 8; pp *= 2)
        for (int32_t steps = 1; steps <= 3; steps++) {
            struct weft_call_plan plan[2] = {{.dp = 1, .tp = 1, .pp = pp},
                                             {.dp = 1, .tp = 1, .pp = pp}};
            double s = least(plan, one, (const double[]){3, 0.001}, steps);
            CHECK(s >= 3 * pp * steps * (1 - 1e-9));
            CHECK(s <= 3.1 * pp * steps);
        }
}

/* Devices never do less than all their work: with one stage for each model they
 * do no more. */
static void test_work(void)
{
    static const int32_t n[2] = {4, 2};
    struct weft_call_plan plan[2] = {{.dp = 2, .tp = 1, .pp = 1},
                                     {.dp = 2, .tp = 1, .pp = 1}};
    CHECK(fabs(least(plan, n, (const double[]){3, 5}, 1) - 8) < 1e-9);
    CHECK(fabs(least(plan, n, (const double[]){3, 5}, 1000) - 8000) < 1e-6);
    rest = 0.5;
    CHECK(fabs(least(plan, n, (const double[]){3, 5}, 10) - 90) < 1e-9);
    rest = 0;
    plan[0].pp = plan[1].pp = 2;
    plan[0].dp = plan[1].dp = 1;
    CHECK(least(plan, n, (const double[]){3, 5}, 1000) >= 8000);
}

/* ---- Schedules ---------------------------------------------------------- */

static void add(struct weft_schedule_problem *p,
                const struct weft_call_plan *plan, int32_t tp, int32_t n,
                double busy)
{
    int32_t first[WEFT_MAX_STAGES + 1], merge = tp / plan->tp;
    int32_t stages = plan->pp / merge;
    size_t cells = (size_t) (n * stages);
    double all = 0;
    struct weft_schedule_model *m = &p->model[p->n_models++];
    *m = (struct weft_schedule_model){
        .name = weft_strdup(p->n_models == 1 ? "a" : "b"),
        .pipelines = plan->dp,
        .stages = stages,
        .chunks = 1,
        .micro_batches = n,
        .up = p->n_models == 2,
        .forward = weft_alloc(cells, sizeof(double)),
        .backward = weft_alloc(cells, sizeof(double)),
        .activation = weft_alloc(cells, sizeof(double))};
    weft_plan_stages(&shape, plan->pp, first);
    all = weft_plan_stage_share(&shape, shape.n_layers, true);
    for (int32_t i = 0; i < n; i++)
        for (int32_t s = 0; s < stages; s++) {
            int32_t layers = first[(s + 1) * merge] - first[s * merge];
            double part = weft_plan_stage_share(&shape, layers,
                                                s == stages - 1)
                        / all * busy * stages / n;
            int32_t back = plan->recompute ? 3 : 2;
            m->forward[i * stages + s] = part / (1 + back);
            m->backward[i * stages + s] = part * back / (1 + back);
            m->activation[i * stages + s] = 1;
        }
    p->n_devices = stages * plan->dp;
}

static void check_schedule(const struct weft_call_plan plan[2],
                           const int32_t n[2], const double busy[2],
                           int32_t steps)
{
    struct weft_err err;
    struct weft_schedule_result r;
    const struct weft_schedule_options o = {
        .seed = 1, .evaluations = 2000, .n_threads = 1, .restart_stride = 1};
    int32_t tp = plan[0].tp > plan[1].tp ? plan[0].tp : plan[1].tp;
    struct weft_schedule_problem p = {
        .mini_batches = steps, .model = weft_alloc(2, sizeof *p.model)};
    for (int i = 0; i < 2; i++)
        add(&p, &plan[i], tp, n[i], busy[i]);
    REQUIRE_OK(weft_schedule_search(&p, &o, &r, &err), err);
    double s = least(plan, n, busy, steps);
    CHECK(s <= r.schedule.makespan * (1 + 1e-9));
    CHECK(s >= 0.75 * r.schedule.makespan);
    weft_schedule_release(&r.schedule);
    weft_schedule_problem_release(&p);
}

static void test_schedules(void)
{
    static const struct weft_call_plan plan[][2] = {
        {{.dp = 1, .tp = 1, .pp = 4}, {.dp = 1, .tp = 1, .pp = 4}},
        {{.dp = 1, .tp = 1, .pp = 8}, {.dp = 2, .tp = 1, .pp = 4}},
        {{.dp = 1, .tp = 2, .pp = 4}, {.dp = 1, .tp = 1, .pp = 8}},
        {{.dp = 2, .tp = 1, .pp = 4, .recompute = true},
         {.dp = 2, .tp = 2, .pp = 2}}};
    for (size_t i = 0; i < WEFT_COUNT(plan); i++)
        for (int32_t n = 1; n <= 4; n++) {
            const int32_t of[2] = {n, 5 - n};
            CHECK(weft_fuse_fits(&plan[i][0], &plan[i][1]));
            check_schedule(plan[i], of, (const double[]){n, 2}, 1 + n % 2);
        }
}

static void test_fits(void)
{
    static const struct {
        int32_t tp, pp, other_tp, other_pp;
        bool fits;
    } row[] = {{1, 4, 1, 2, true},  {2, 2, 1, 4, true},  {1, 4, 2, 2, true},
               {4, 1, 1, 2, false}, {2, 2, 1, 1, false}, {4, 1, 1, 4, true}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const struct weft_call_plan a = {.tp = row[i].tp, .pp = row[i].pp};
        const struct weft_call_plan b = {.tp = row[i].other_tp,
                                         .pp = row[i].other_pp};
        CHECK(weft_fuse_fits(&a, &b) == row[i].fits);
    }
}

WEFT_TESTS("fuse/least", {"chain", test_chain}, {"work", test_work},
           {"schedules", test_schedules}, {"fits", test_fits})
