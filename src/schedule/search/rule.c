/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of list scheduling, drawn at random and mutated. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "schedule/search/search.h"

enum { N_PASSES = 3 };

int weft_jobshop_rule_init(struct weft_jobshop_rule *rule,
                           const struct weft_schedule_problem *problem,
                           struct weft_err *err)
{
    size_t n = (size_t) problem->n_models;
    *rule = (struct weft_jobshop_rule){0};
    rule->term = weft_alloc(n, N_PASSES * WEFT_RULE_TERMS * sizeof(double));
    rule->limit = weft_alloc(n, 2 * sizeof(double));
    rule->rank = weft_alloc(n, sizeof(int32_t));
    if (rule->term && rule->limit && rule->rank)
        return 0;
    weft_jobshop_rule_release(rule);
    return weft_err_nomem(err, "a scheduling rule", n * 100);
}

void weft_jobshop_rule_release(struct weft_jobshop_rule *rule)
{
    weft_free(rule->term);
    weft_free(rule->limit);
    weft_free(rule->rank);
    *rule = (struct weft_jobshop_rule){0};
}

void weft_jobshop_rule_copy(struct weft_jobshop_rule *to,
                            const struct weft_jobshop_rule *from,
                            const struct weft_schedule_problem *problem)
{
    size_t n = (size_t) problem->n_models;
    to->reversed = from->reversed;
    to->wait = from->wait;
    memcpy(to->term, from->term,
           n * N_PASSES * WEFT_RULE_TERMS * sizeof(double));
    memcpy(to->limit, from->limit, n * 2 * sizeof(double));
    memcpy(to->rank, from->rank, n * sizeof(int32_t));
}

static double mean(const double *x, const struct weft_schedule_model *m)
{
    double sum = 0;
    int32_t n = m->micro_batches * m->stages;
    for (int32_t i = 0; i < n && x; i++)
        sum += x[i];
    return sum / n;
}

static void draw_limit(double limit[2], const struct weft_schedule_model *m,
                       struct weft_jobshop_rng *rng)
{
    limit[0] = (double) INT32_MAX;
    limit[1] = 0;
    switch (weft_jobshop_below(rng, 4)) {
    case 0: /* about as in 1F1B */
        limit[0] = m->stages - 2 + weft_jobshop_below(rng, 6);
        limit[1] = 1;
        break;
    case 1:
        limit[0] = 1 + weft_jobshop_below(rng, m->stages + 2);
        break;
    default:
        break;
    }
}

/* The passes of a model follow each other: each is due about one traversal of
 * the pipeline after the one before. */
static void draw_model(struct weft_jobshop_rule *rule,
                       const struct weft_schedule_model *m, int32_t index,
                       double makespan, struct weft_jobshop_rng *rng)
{
    int32_t n_passes = m->split_backward ? 3 : 2;
    double time[N_PASSES] = {mean(m->forward, m), mean(m->backward, m),
                             mean(m->weight, m)};
    double each = time[0] + time[1] + time[2];
    double at = weft_jobshop_uniform(rng, -0.3, 0.9) * makespan;
    double pace = weft_jobshop_below(rng, 2)
                    ? each * weft_jobshop_uniform(rng, 0, 2)
                    : makespan / m->micro_batches
                          * weft_jobshop_uniform(rng, 0, 1.2);
    for (int32_t k = 0; k < n_passes; k++) {
        int32_t pass = rule->reversed ? n_passes - 1 - k : k;
        double *term = rule->term
                     + (index * N_PASSES + pass) * WEFT_RULE_TERMS;
        double down = (pass == WEFT_PASS_FORWARD) != rule->reversed ? 1 : -1;
        term[0] = at;
        term[1] = pace * weft_jobshop_uniform(rng, 0.7, 1.3);
        term[2] = down * time[pass] * weft_jobshop_uniform(rng, -0.5, 2);
        at += m->stages * each * weft_jobshop_uniform(rng, 0, 1.2);
    }
    draw_limit(rule->limit + (size_t) index * 2, m, rng);
}

static void draw_rank(struct weft_jobshop_rule *rule, int32_t n,
                      struct weft_jobshop_rng *rng)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t j = weft_jobshop_below(rng, i + 1);
        rule->rank[i] = rule->rank[j];
        rule->rank[j] = i;
    }
}

static double draw_wait(struct weft_jobshop_rng *rng)
{
    return weft_jobshop_below(rng, 2) ? weft_jobshop_uniform(rng, 0, 1) : 0;
}

void weft_jobshop_rule_draw(struct weft_jobshop_rule *rule,
                            const struct weft_schedule_problem *problem,
                            double makespan, struct weft_jobshop_rng *rng)
{
    rule->reversed = weft_jobshop_below(rng, 2) == 1;
    rule->wait = draw_wait(rng);
    draw_rank(rule, problem->n_models, rng);
    for (int32_t i = 0; i < problem->n_models; i++)
        draw_model(rule, &problem->model[i], i, makespan, rng);
}

/* Approximately normal, with deviation 1. */
static double bell(struct weft_jobshop_rng *rng)
{
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += weft_jobshop_uniform(rng, -1, 1);
    return sum;
}

static void mutate_term(struct weft_jobshop_rule *rule,
                        const struct weft_schedule_problem *problem,
                        double makespan, struct weft_jobshop_rng *rng)
{
    int32_t index = weft_jobshop_below(rng, problem->n_models);
    const struct weft_schedule_model *m = &problem->model[index];
    int32_t pass = weft_jobshop_below(rng, m->split_backward ? 3 : 2);
    double *term = rule->term + (index * N_PASSES + pass) * WEFT_RULE_TERMS;
    double size = bell(rng) * (weft_jobshop_below(rng, 2) ? 1 : 0.1);
    switch (weft_jobshop_below(rng, 3)) {
    case 0:
        term[0] += 0.2 * makespan * size;
        break;
    case 1:
        term[1] += 0.3 * makespan / m->micro_batches * size;
        break;
    default:
        term[2] += 2 * mean(m->forward, m) * size;
        break;
    }
}

void weft_jobshop_rule_mutate(struct weft_jobshop_rule *rule,
                              const struct weft_schedule_problem *problem,
                              double makespan, struct weft_jobshop_rng *rng)
{
    int32_t index = weft_jobshop_below(rng, problem->n_models);
    for (int32_t n = 1 + weft_jobshop_below(rng, 3); n > 0; n--)
        switch (weft_jobshop_below(rng, 10)) {
        case 0:
            draw_limit(rule->limit + (size_t) index * 2,
                       &problem->model[index], rng);
            break;
        case 1:
            rule->wait = draw_wait(rng);
            break;
        case 2:
            draw_rank(rule, problem->n_models, rng);
            break;
        default:
            mutate_term(rule, problem, makespan, rng);
            break;
        }
}
