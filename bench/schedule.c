/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for fused pipeline schedules on RLHFuse's settings (Table 3; times
 * and activations as its published code has them), on shapes that the paper
 * lacks, and on a large one.
 *
 *     bench/schedule [table3|memory|shapes|speed|large]...
 *
 * "least" is the lower bound, "at" the seconds to the makespan shown.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "plan/schedule_shop.h"

enum { MOST_MODELS = 3 };

/* A model as the table wants it: forward, backward and weight times of every
 * stage, `uneven` more on the last. */
struct shape {
    int32_t pipelines, stages, micro_batches;
    bool up;
    double forward, backward, weight, activation;
    int32_t chunks;
    double uneven, ragged; /* ragged: micro-batches differ by this share */
    double sync, optimizer;
};

struct setting {
    const char *name;
    struct shape model[MOST_MODELS];
    double capacity; /* of the first model's serial peak; 0: none */
    double latency;
    int32_t mini_batches;
};

static void must(int rc, const struct weft_err *err)
{
    if (rc) {
        fprintf(stderr, "schedule: %s\n", err->text);
        exit(1);
    }
}

static double *fill(const struct shape *s, double each)
{
    double *x = weft_alloc((size_t) s->micro_batches * (size_t) s->stages,
                           sizeof *x);
    for (int32_t i = 0; i < s->micro_batches && x; i++)
        for (int32_t k = 0; k < s->stages; k++)
            x[i * s->stages + k] = each
                                 * (1 + (k == s->stages - 1 ? s->uneven : 0))
                                 * (1 + s->ragged * (i * 7 % 5 - 2) / 2);
    return x;
}

static struct weft_schedule_problem make(const struct setting *s)
{
    struct weft_schedule_problem p = {
        .latency = s->latency,
        .mini_batches = s->mini_batches > 0 ? s->mini_batches : 1};
    p.model = weft_alloc(MOST_MODELS, sizeof *p.model);
    for (; p.n_models < MOST_MODELS && s->model[p.n_models].pipelines > 0;
         p.n_models++) {
        const struct shape *x = &s->model[p.n_models];
        struct weft_schedule_model *m = &p.model[p.n_models];
        *m = (struct weft_schedule_model){
            .pipelines = x->pipelines,
            .stages = x->stages,
            .chunks = x->chunks > 0 ? x->chunks : 1,
            .micro_batches = x->micro_batches,
            .up = x->up,
            .split_backward = x->weight > 0,
            .forward = fill(x, x->forward),
            .backward = fill(x, x->backward),
            .weight = x->weight > 0 ? fill(x, x->weight) : NULL,
            .activation = fill(x, x->activation),
            .sync = x->sync,
            .optimizer = x->optimizer};
        p.n_devices = m->pipelines * m->stages / m->chunks;
    }
    p.capacity = s->capacity * s->model[0].activation * s->model[0].stages;
    return p;
}

static void release(struct weft_schedule_problem *p)
{
    for (int32_t i = 0; i < p->n_models; i++) {
        weft_free(p->model[i].forward);
        weft_free(p->model[i].backward);
        weft_free(p->model[i].weight);
        weft_free(p->model[i].activation);
    }
    weft_free(p->model);
}

struct watch {
    double begin, at; /* when the shortest makespan so far came */
    double makespan;
};

static void progress(void *ctx, double makespan, double peak,
                     int64_t evaluations)
{
    struct watch *w = ctx;
    (void) peak;
    (void) evaluations;
    if (makespan < w->makespan) {
        w->makespan = makespan;
        w->at = weft_clock_s() - w->begin;
    }
}

static void run(const struct setting *s, double time_limit_s,
                int32_t n_threads)
{
    struct weft_schedule_problem p = make(s);
    struct weft_schedule_result r;
    struct weft_err err;
    struct watch watch = {.begin = weft_clock_s(), .makespan = INFINITY};
    struct weft_schedule_options o = {.seed = 1,
                                      .n_threads = n_threads,
                                      .time_limit_s = time_limit_s,
                                      .progress = progress,
                                      .ctx = &watch};
    int rc = weft_schedule_search(&p, &o, &r, &err);
    if (rc == WEFT_ENOTFOUND) {
        printf("%-34s %s\n", s->name, err.text);
    } else {
        must(rc, &err);
        double serial = s->model[0].activation * s->model[0].stages
                      * fmin(1, (double) s->model[0].micro_batches
                                    / s->model[0].stages);
        printf("%-34s %8g %8g %6.2f%% %6.2f %6.3f %6.3f %6.1f %7.2f M\n",
               s->name, r.schedule.makespan, r.bound.makespan,
               100 * (r.schedule.makespan / r.bound.makespan - 1), watch.at,
               r.schedule.peak_activation / serial,
               r.bound.peak_activation / serial, r.seconds,
               (double) r.evaluations / r.seconds / 1e6);
        weft_schedule_release(&r.schedule);
    }
    fflush(stdout);
    release(&p);
}

static void head(const char *title)
{
    printf("%-34s %8s %8s %7s %6s %6s %6s %6s %9s\n", title, "makespan",
           "least", "gap", "at s", "peak", "least", "s", "evals/s");
}

/* ---- Table 3 -------------------------------------------------------------- */

/* pp0, pp1, GBS, forward times, activations; capacity of the memory bar. */
static const struct table3 {
    int32_t pp0, pp1, gbs;
    double f0, f1, mem0, mem1, memory;
} table3[] = {
    {8, 4, 8, 5, 4, 1.95, 2, 1.0},     {8, 4, 16, 5, 4, 1.95, 2, 1.01},
    {8, 4, 32, 5, 4, 1.95, 2, 1.14},   {8, 8, 8, 5, 2, 1.95, 1, 1.0},
    {8, 8, 16, 5, 2, 1.95, 1, 1.09},   {8, 8, 32, 5, 2, 1.95, 1, 1.13},
    {16, 8, 16, 2, 2, 1.64, 2, 1.0},   {16, 8, 32, 2, 2, 1.64, 2, 1.10},
    {16, 8, 64, 2, 2, 1.64, 2, 1.10},  {16, 16, 16, 2, 1, 1.64, 1, 1.0},
    {16, 16, 32, 2, 1, 1.64, 1, 1.11}, {16, 16, 64, 2, 1, 1.64, 1, 1.10},
};

static void bench_table3(bool memory)
{
    head(memory ? "RLHFuse Table 3, with capacity" : "RLHFuse Table 3");
    for (size_t i = 0; i < WEFT_COUNT(table3); i++) {
        continue;
        const struct table3 *t = &table3[i];
        int32_t k = t->pp0 / t->pp1;
        char name[64];
        snprintf(name, sizeof name, "%d/%d GBS %d", (int) t->pp0,
                 (int) t->pp1, (int) t->gbs);
        if (memory)
            snprintf(name + strlen(name), sizeof name - strlen(name),
                     " within %.2f", t->memory);
        struct setting s = {.name = name,
                            .model = {{.pipelines = 1,
                                       .stages = t->pp0,
                                       .micro_batches = t->gbs,
                                       .forward = t->f0,
                                       .backward = 2 * t->f0,
                                       .activation = t->mem0},
                                      {.pipelines = k,
                                       .stages = t->pp1,
                                       .micro_batches = t->gbs / k,
                                       .up = true,
                                       .forward = t->f1,
                                       .backward = 2 * t->f1,
                                       .activation = t->mem1}},
                            .capacity = memory ? t->memory : 0};
        run(&s, memory ? 60 : 2, memory ? 2 : 1);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "table3") == 0)
            bench_table3(false);
        else if (strcmp(argv[i], "memory") == 0)
            bench_table3(true);
    }
    return 0;
}
