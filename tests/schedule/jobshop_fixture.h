/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule problems for the tests of the search. */
#ifndef WEFT_TESTS_SCHEDULE_JOBSHOP_FIXTURE_H
#define WEFT_TESTS_SCHEDULE_JOBSHOP_FIXTURE_H

#include "harness.h"

#include "base/alloc.h"
#include "schedule/search/search.h"

/* Random numbers in [low, high], whole ones. */
struct draw {
    struct weft_jobshop_rng rng;
};

static inline int32_t draw_int(struct draw *d, int32_t low, int32_t high)
{
    return low + weft_jobshop_below(&d->rng, high - low + 1);
}

static inline double *times(const struct weft_schedule_model *m)
{
    size_t n = (size_t) m->micro_batches * (size_t) m->stages;
    double *x = weft_alloc(n, sizeof *x);
    REQUIRE(x != NULL);
    return x;
}

static inline double *all_equal(const struct weft_schedule_model *m, double t)
{
    double *x = times(m);
    for (int32_t i = 0; i < m->micro_batches * m->stages; i++)
        x[i] = t;
    return x;
}

static inline double *all_drawn(struct draw *d,
                                const struct weft_schedule_model *m,
                                bool equal)
{
    double *x = times(m);
    for (int32_t i = 0; i < m->micro_batches * m->stages; i++)
        x[i] = equal && i >= m->stages ? x[i - m->stages] : draw_int(d, 1, 5);
    return x;
}

static inline void free_problem(struct weft_schedule_problem *p)
{
    for (int32_t i = 0; i < p->n_models; i++) {
        weft_free(p->model[i].forward);
        weft_free(p->model[i].backward);
        weft_free(p->model[i].weight);
        weft_free(p->model[i].activation);
    }
    weft_free(p->model);
}

/* Model 0 down, model 1 up in pp0 / pp1 pipelines; backward = 2 forward. */
static inline struct weft_schedule_problem two_models(int32_t pp0,
                                                      int32_t pp1,
                                                      int32_t gbs, double f0,
                                                      double f1, double act0,
                                                      double act1)
{
    struct weft_schedule_problem p = {
        .n_devices = pp0, .n_models = 2, .mini_batches = 1};
    p.model = weft_alloc(2, sizeof *p.model);
    REQUIRE(p.model != NULL);
    for (int i = 0; i < 2; i++) {
        struct weft_schedule_model *m = &p.model[i];
        double f = i ? f1 : f0;
        m->stages = i ? pp1 : pp0;
        m->pipelines = pp0 / m->stages;
        m->micro_batches = gbs / m->pipelines;
        m->chunks = 1;
        m->up = i == 1;
        m->forward = all_equal(m, f);
        m->backward = all_equal(m, 2 * f);
        m->activation = all_equal(m, i ? act1 : act0);
    }
    return p;
}

/* One to three models on two or three devices, of all kinds; about
 * `n_micro` micro-batches of each pipeline. */
static inline struct weft_schedule_problem random_problem(struct draw *d,
                                                          int32_t n_micro)
{
    struct weft_schedule_problem p = {.n_devices = draw_int(d, 2, 3),
                                      .n_models = draw_int(d, 1, 3),
                                      .latency = draw_int(d, 0, 1),
                                      .mini_batches = 1};
    p.model = weft_alloc((size_t) p.n_models, sizeof *p.model);
    REQUIRE(p.model != NULL);
    for (int32_t i = 0; i < p.n_models; i++) {
        struct weft_schedule_model *m = &p.model[i];
        bool equal = draw_int(d, 0, 1);
        m->pipelines = draw_int(d, 0, 3) ? 1 : p.n_devices;
        m->stages = p.n_devices / m->pipelines;
        m->chunks = 1;
        m->micro_batches = draw_int(d, 1, n_micro);
        m->up = draw_int(d, 0, 1);
        m->split_backward = draw_int(d, 0, 3) == 0;
        m->forward = all_drawn(d, m, equal);
        m->backward = all_drawn(d, m, equal);
        m->weight = m->split_backward ? all_drawn(d, m, equal) : NULL;
        m->activation = all_drawn(d, m, equal);
        m->sync = draw_int(d, 0, 2);
        m->optimizer = draw_int(d, 0, 2);
    }
    return p;
}

static inline int32_t count_subtasks(const struct weft_schedule_problem *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_models; i++)
        n += p->model[i].pipelines * p->model[i].stages
           * p->model[i].micro_batches * (p->model[i].split_backward ? 3 : 2)
           * p->mini_batches;
    return n;
}

#endif
