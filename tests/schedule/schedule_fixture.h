/* SPDX-License-Identifier: Apache-2.0 */
/* Problems to schedule, and the rules of schedule/schedule.h as double loops
 * over the subtasks, for schedules whatever made them. */
#ifndef WEFT_TESTS_SCHEDULE_SCHEDULE_FIXTURE_H
#define WEFT_TESTS_SCHEDULE_SCHEDULE_FIXTURE_H

#include "harness.h"

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "schedule/schedule.h"

static inline double *test_table(int32_t n, double value)
{
    double *table = weft_alloc((size_t) n, sizeof *table);
    REQUIRE(table != NULL);
    for (int32_t i = 0; i < n; i++)
        table[i] = value;
    return table;
}

/* A model of n_devices / stages pipelines whose stages are alike. */
static inline struct weft_schedule_model test_model(
    const char *name, int32_t n_devices, int32_t stages,
    int32_t micro_batches, double forward, double activation, bool up)
{
    int32_t n = stages * micro_batches;
    return (struct weft_schedule_model){
        .name = weft_strdup(name),
        .pipelines = n_devices / stages,
        .stages = stages,
        .chunks = 1,
        .micro_batches = micro_batches,
        .up = up,
        .forward = test_table(n, forward),
        .backward = test_table(n, 2 * forward),
        .activation = test_table(n, activation)};
}

/* Room for n models. */
static inline struct weft_schedule_problem test_problem(int32_t n_devices,
                                                        int32_t n_models)
{
    struct weft_schedule_problem p = {
        .n_devices = n_devices, .n_models = n_models, .mini_batches = 1};
    p.model = weft_alloc((size_t) n_models, sizeof *p.model);
    REQUIRE(p.model != NULL);
    return p;
}

/* A setting of RLHFuse's Table 3: a model of pp0 stages and pp0 / pp1
 * pipelines of another; gbs micro-batches of each model. */
static inline struct weft_schedule_problem test_rlhfuse(
    int32_t pp0, int32_t pp1, int32_t gbs, double f0, double f1,
    double memory0, double memory1)
{
    struct weft_schedule_problem p = test_problem(pp0, 2);
    p.model[0] = test_model("actor", pp0, pp0, gbs, f0, memory0, false);
    p.model[1] = test_model("critic", pp0, pp1, gbs / (pp0 / pp1), f1,
                            memory1, true);
    return p;
}

/* Tables of one of the problem's models become random in [low, high], whole
 * numbers. */
static inline void test_randomize(struct weft_schedule_problem *p, int32_t m,
                                  int64_t low, int64_t high, uint64_t seed)
{
    struct weft_schedule_model *model = &p->model[m];
    double *table[] = {model->forward, model->backward, model->weight,
                       model->activation};
    int32_t n = model->stages * model->micro_batches;
    for (int k = 0; k < 4; k++)
        for (int32_t i = 0; table[k] && i < n; i++) {
            seed = seed * UINT64_C(6364136223846793005)
                 + UINT64_C(1442695040888963407);
            table[k][i] = (double) low
                        + (double) ((seed >> 33)
                                    % (uint64_t) (high - low + 1));
        }
}

static inline void test_split_backward(struct weft_schedule_model *m)
{
    m->split_backward = true;
    m->weight = test_table(m->stages * m->micro_batches, 1);
}

/* ---- Rules ------------------------------------------------------------ */

static inline double test_duration(const struct weft_schedule_problem *p,
                                   const struct weft_subtask *t)
{
    const struct weft_schedule_model *m = &p->model[t->model];
    const double *table = t->pass == WEFT_PASS_FORWARD  ? m->forward
                        : t->pass == WEFT_PASS_BACKWARD ? m->backward
                                                        : m->weight;
    return table[t->micro_batch * m->stages + t->stage];
}

/* What `b` must wait for of `a`: from a's end on (latency apart). */
static inline bool test_waits(const struct weft_schedule_problem *p,
                              const struct weft_subtask *a,
                              const struct weft_subtask *b)
{
    const struct weft_schedule_model *m = &p->model[a->model];
    enum weft_pass last = m->split_backward ? WEFT_PASS_WEIGHT
                                            : WEFT_PASS_BACKWARD;
    if (a->model != b->model || a->mini_batch != b->mini_batch
        || a->pipeline != b->pipeline)
        return false;
    if (a->micro_batch != b->micro_batch)
        return a->stage == b->stage && a->pass == last && b->pass == last
            && a->micro_batch < b->micro_batch;
    if (a->pass == WEFT_PASS_FORWARD)
        return (b->pass == WEFT_PASS_FORWARD && a->stage < b->stage)
            || (b->pass != WEFT_PASS_FORWARD && a->stage == b->stage);
    return (a->pass == WEFT_PASS_BACKWARD && b->pass == WEFT_PASS_BACKWARD
            && a->stage > b->stage)
        || (a->pass == WEFT_PASS_BACKWARD && b->pass == WEFT_PASS_WEIGHT
            && a->stage == b->stage);
}

static inline double test_held(const struct weft_schedule_problem *p,
                               const struct weft_schedule *s, int32_t d,
                               int32_t at)
{
    double held = 0;
    for (int32_t i = 0; i <= at; i++) {
        const struct weft_subtask *t = &s->task[d][i];
        const struct weft_schedule_model *m = &p->model[t->model];
        double a = m->activation[t->micro_batch * m->stages + t->stage];
        if (t->pass == WEFT_PASS_FORWARD)
            held += a;
        else if ((t->pass == WEFT_PASS_WEIGHT) == m->split_backward)
            held -= a;
    }
    return held;
}

/* Every rule, for small schedules: quadratic. */
static inline void test_rules(const struct weft_schedule_problem *p,
                              const struct weft_schedule *s)
{
    int64_t want = 0, have = 0, bad = 0;
    double end = 0, peak = 0, eps = 1e-9 * (1 + s->makespan);
    for (int32_t m = 0; m < p->n_models; m++)
        want += (int64_t) p->mini_batches * p->model[m].pipelines
              * p->model[m].stages * p->model[m].micro_batches
              * (p->model[m].split_backward ? 3 : 2);
    REQUIRE(s->n_devices == p->n_devices);
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d]; i++, have++) {
            const struct weft_subtask *t = &s->task[d][i];
            const struct weft_schedule_model *m = &p->model[t->model];
            bad += weft_schedule_device(p, m, t->pipeline, t->stage) != d;
            bad += fabs(t->end - t->start - test_duration(p, t)) > eps;
            bad += i > 0 && t->start < s->task[d][i - 1].end - eps;
            bad += t->start < 0;
            end = fmax(end, t->end + m->sync + m->optimizer);
            peak = fmax(peak, test_held(p, s, d, i));
            for (int32_t e = 0; e < s->n_devices; e++)
                for (int32_t j = 0; j < s->n[e]; j++) {
                    const struct weft_subtask *o = &s->task[e][j];
                    const struct weft_schedule_model *n = &p->model[o->model];
                    double way = e == d || o->pass == WEFT_PASS_WEIGHT
                                   ? 0
                                   : p->latency;
                    if (test_waits(p, o, t))
                        bad += t->start < o->end + way - eps;
                    if (o->model == t->model && o->mini_batch < t->mini_batch)
                        bad += t->start
                             < o->end + n->sync + n->optimizer - eps;
                }
        }
    CHECK_INT(bad, 0);
    CHECK_INT(have, want);
    CHECK(fabs(end - s->makespan) <= eps);
    CHECK(fabs(peak - s->peak_activation) <= 1e-9 * (1 + peak));
}

#endif
