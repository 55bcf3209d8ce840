/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for fused pipeline schedules on RLHFuse's settings (Table 3;
 * times and activations as its published code has them), on shapes that the
 * paper lacks, and on a large one.
 *
 *     bench/schedule [table3|memory|speed|shapes|large]...
 *     bench/schedule problems DIR
 *
 * "least" is the lower bound, "at" the seconds to the makespan shown. The
 * second writes the shapes as problems, for bench/schedule_cpsat.py.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "schedule/file.h"
#include "schedule/search/search.h"

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
            .name = (char *[]){"down", "up", "third"}[p.n_models],
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
                int32_t n_threads, int64_t evaluations)
{
    struct weft_schedule_problem p = make(s);
    struct weft_schedule_result r = {.restart = 0};
    struct weft_err err;
    struct watch watch = {.begin = weft_clock_s(), .makespan = INFINITY};
    struct weft_schedule_options o = {.seed = 1,
                                      .evaluations = evaluations,
                                      .n_restarts = evaluations > 0 ? 2 : 0,
                                      .n_threads = n_threads,
                                      .time_limit_s = time_limit_s,
                                      .progress = progress,
                                      .ctx = &watch};
    int rc = weft_schedule_search(&p, &o, &r, &err);
    r.cut = false; /* the proof need not be cut as well */
    if (rc == 0)
        must(weft_schedule_prove(&p, &o, &r, &err), &err);
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

/* ---- Table 3 ----------------------------------------------------------- */

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

static void run_table3(bool memory)
{
    head(memory ? "RLHFuse Table 3, with capacity" : "RLHFuse Table 3");
    for (size_t i = 0; i < WEFT_COUNT(table3); i++) {
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
        run(&s, memory ? 60 : 2, memory ? 2 : 1, memory ? 400000000 : 0);
    }
}

static void bench_table3(void)
{
    run_table3(false);
}

static void bench_memory(void)
{
    run_table3(true);
}

/* ---- Shapes that the paper lacks --------------------------------------- */

#define DOWN(k, n, m, f, b, act)                                             \
    .pipelines = k, .stages = n, .micro_batches = m, .forward = f,           \
    .backward = b, .activation = act
#define UP(k, n, m, f, b, act) DOWN(k, n, m, f, b, act), .up = true

static const struct setting shapes[] = {
    {.name = "4/4 M 4/4 f 1:1",
     .model = {{DOWN(1, 4, 4, 1, 2, 1)}, {UP(1, 4, 4, 1, 2, 1)}}},
    {.name = "16/16 M 24 f 7:3",
     .model = {{DOWN(1, 16, 24, 7, 14, 1)}, {UP(1, 16, 24, 3, 6, 1)}}},
    {.name = "32/16 M 64/32 f 1:1",
     .model = {{DOWN(1, 32, 64, 1, 2, 1)}, {UP(2, 16, 32, 1, 2, 1)}}},
    {.name = "12/4 M 12/4 f 5:4",
     .model = {{DOWN(1, 12, 12, 5, 10, 1)}, {UP(3, 4, 4, 4, 8, 1)}}},
    {.name = "8/2 M 16/4 f 5:5",
     .model = {{DOWN(1, 8, 16, 5, 10, 1)}, {UP(4, 2, 4, 5, 10, 1)}}},
    {.name = "8/8 M 16 f 5:2, last stage +30 %",
     .model = {{DOWN(1, 8, 16, 5, 10, 1), .uneven = 0.3},
               {UP(1, 8, 16, 2, 4, 1), .uneven = 0.3}}},
    {.name = "8/4 M 16/8, micro-batches +-40 %",
     .model = {{DOWN(1, 8, 16, 5, 10, 1), .ragged = 0.4},
               {UP(2, 4, 8, 4, 8, 1), .ragged = 0.4}}},
    {.name = "8/8 M 8 f 2.7:1.9, b 1.8 f",
     .model = {{DOWN(1, 8, 8, 2.7, 4.86, 1)}, {UP(1, 8, 8, 1.9, 3.42, 1)}}},
    {.name = "16/8 M 16/8, micro-batches +-20 %",
     .model = {{DOWN(1, 16, 16, 2, 4, 1), .ragged = 0.2},
               {UP(2, 8, 8, 2, 4, 1), .ragged = 0.2}}},
    {.name = "K 2, 3: 6/4 on 12, M 6/4",
     .model = {{DOWN(2, 6, 6, 3, 6, 1)}, {UP(3, 4, 4, 4, 8, 1)}}},
    {.name = "K 2, 3: 6/4 on 12, M 12/8",
     .model = {{DOWN(2, 6, 12, 3, 6, 1)}, {UP(3, 4, 8, 4, 8, 1)}}},
    {.name = "K 2, 3: 12/8 on 24, M 12/8",
     .model = {{DOWN(2, 12, 12, 3, 6, 1)}, {UP(3, 8, 8, 4, 8, 1)}}},
    {.name = "three models 8/8/8 M 8",
     .model = {{DOWN(1, 8, 8, 4, 8, 1)},
               {UP(1, 8, 8, 2, 4, 1)},
               {UP(1, 8, 8, 1, 2, 1)}}},
    {.name = "three models 8/4/2 M 8/4/2",
     .model = {{DOWN(1, 8, 8, 4, 8, 1)},
               {UP(2, 4, 4, 4, 8, 1)},
               {DOWN(4, 2, 2, 4, 8, 1)}}},
    {.name = "three models 16/8/4 M 16/8/8",
     .model = {{DOWN(1, 16, 16, 3, 6, 1)},
               {UP(2, 8, 8, 2, 4, 1)},
               {UP(4, 4, 8, 1, 2, 1)}}},
    {.name = "32/32 M 64 f 2:1",
     .model = {{DOWN(1, 32, 64, 2, 4, 1)}, {UP(1, 32, 64, 1, 2, 1)}}},
    {.name = "32/8 M 64/16 f 2:3",
     .model = {{DOWN(1, 32, 64, 2, 4, 1)}, {UP(4, 8, 16, 3, 6, 1)}}},
    {.name = "8/8 M 8 f 1:3",
     .model = {{DOWN(1, 8, 8, 1, 2, 1)}, {UP(1, 8, 8, 3, 6, 1)}}},
    {.name = "8/8 M 16 f 1:3, b 3 f",
     .model = {{DOWN(1, 8, 16, 1, 3, 1)}, {UP(1, 8, 16, 3, 9, 1)}}},
    {.name = "8/8 M 16 b = f",
     .model = {{DOWN(1, 8, 16, 2, 2, 1)}, {UP(1, 8, 16, 1, 1, 1)}}},
    {.name = "8/4 M 16/8 b 3 f",
     .model = {{DOWN(1, 8, 16, 3, 9, 1)}, {UP(2, 4, 8, 2, 6, 1)}}},
    {.name = "8/8 M 8 f 5:2 within 1.0",
     .model = {{DOWN(1, 8, 8, 5, 10, 1)}, {UP(1, 8, 8, 2, 4, 0.5)}},
     .capacity = 1},
    {.name = "8/4 M 16/8 f 5:4 within 1.0",
     .model = {{DOWN(1, 8, 16, 5, 10, 1)}, {UP(2, 4, 8, 4, 8, 1)}},
     .capacity = 1},
    {.name = "16/16 M 32 f 2:1 within 1.0",
     .model = {{DOWN(1, 16, 32, 2, 4, 1)}, {UP(1, 16, 32, 1, 2, 0.5)}},
     .capacity = 1},
    {.name = "8/8 M 16 f 5:2 within 0.5",
     .model = {{DOWN(1, 8, 16, 5, 10, 1)}, {UP(1, 8, 16, 2, 4, 0.5)}},
     .capacity = 0.5},
    {.name = "8/8 M 8 latency 0.5",
     .model = {{DOWN(1, 8, 8, 5, 10, 1)}, {UP(1, 8, 8, 2, 4, 1)}},
     .latency = 0.5},
    {.name = "16/8 M 32/16 latency 1",
     .model = {{DOWN(1, 16, 32, 2, 4, 1)}, {UP(2, 8, 16, 2, 4, 1)}},
     .latency = 1},
    {.name = "8/8 M 8 split",
     .model = {{DOWN(1, 8, 8, 2, 2, 1), .weight = 2},
               {UP(1, 8, 8, 1, 1, 1), .weight = 1}}},
    {.name = "16/16 M 16 f 2:1 split",
     .model = {{DOWN(1, 16, 16, 2, 2, 1), .weight = 2},
               {UP(1, 16, 16, 1, 1, 1), .weight = 1}}},
    {.name = "16/8 M 64/32 split",
     .model = {{DOWN(1, 16, 64, 2, 2, 1), .weight = 2},
               {UP(2, 8, 32, 2, 2, 1), .weight = 2}}},
    {.name = "8/8 M 8 split within 1.0",
     .model = {{DOWN(1, 8, 8, 2, 2, 1), .weight = 2},
               {UP(1, 8, 8, 1, 1, 0.5), .weight = 1}},
     .capacity = 1},
    {.name = "8/8 M 16, sync 4, optimizer 6",
     .model = {{DOWN(1, 8, 16, 5, 10, 1), .sync = 4, .optimizer = 6},
               {UP(1, 8, 16, 2, 4, 1), .sync = 2, .optimizer = 3}}},
    {.name = "8/8 M 8, two mini-batches",
     .model = {{DOWN(1, 8, 8, 5, 10, 1), .sync = 4, .optimizer = 6},
               {UP(1, 8, 8, 2, 4, 1), .sync = 2, .optimizer = 3}},
     .mini_batches = 2},
    {.name = "8/4 M 8/4, four mini-batches",
     .model = {{DOWN(1, 8, 8, 5, 10, 1)}, {UP(2, 4, 4, 4, 8, 1)}},
     .mini_batches = 4},
    {.name = "8/8 two chunks on 4, M 8",
     .model = {{DOWN(1, 8, 8, 2, 4, 1), .chunks = 2},
               {UP(1, 8, 8, 1, 2, 1), .chunks = 2}}},
    {.name = "one model 8, M 16", .model = {{DOWN(1, 8, 16, 1, 2, 1)}}},
};

static void bench_shapes(void)
{
    head("Other shapes");
    for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
        run(&shapes[i], 7, 1, 0); /* and a proof of at most some seconds */
}

static void write_problems(const char *dir)
{
    for (size_t i = 0; i < WEFT_COUNT(shapes); i++) {
        struct weft_err err;
        struct weft_schedule_problem p = make(&shapes[i]);
        char path[4096];
        snprintf(path, sizeof path, "%s/%zu.json", dir, i + 1);
        must(weft_schedule_problem_write(&p, path, &err), &err);
        printf("%s: %s\n", path, shapes[i].name);
        release(&p);
    }
}

static void bench_large(void)
{
    static const struct setting large = {
        .name = "64/64 M 400, 102400 subtasks",
        .model = {{DOWN(1, 64, 400, 2, 4, 1)}, {UP(1, 64, 400, 1, 2, 1)}}};
    head("Large");
    run(&large, 60, 1, 0);
}

/* Random moves on a schedule for `seconds`: estimated; then each evaluated
 * exactly. The estimate of one that makes the makespan longer is exact, any
 * other is done. */
static void speed(const char *name, const struct weft_schedule_problem *p,
                  double seconds)
{
    struct weft_err err;
    struct weft_jobshop_pair pair;
    struct weft_jobshop_walk w;
    struct weft_jobshop_rule rule;
    struct weft_jobshop_rng rng = {.seed = 1};
    must(weft_jobshop_pair_init(&pair, p, &err), &err);
    must(weft_jobshop_rule_init(&rule, p, &err), &err);
    must(weft_jobshop_walk_init(&w, &pair.forward, &err), &err);
    struct weft_jobshop_list *list = weft_jobshop_list_create(&pair.forward);
    int32_t n = pair.forward.n_ops;
    int32_t *sequence = weft_alloc((size_t) n, sizeof *sequence);
    weft_jobshop_rule_draw(&rule, p, 100, &rng);
    weft_jobshop_list_build(list, &rule, pair.tail, 0, INFINITY, sequence);
    weft_jobshop_walk_load(&w, sequence, 0, true);
    double rate[2], swaps = 0, sum = 0;
    for (int swap = 0; swap < 2; swap++) {
        int64_t n_moves = 0, n_swaps = 0;
        double begin = weft_clock_s(), end = begin;
        for (; end - begin < seconds; end = weft_clock_s())
            for (int i = 0; i < 1000; i++) {
                int32_t v = weft_jobshop_below(&rng, n), u = w.node[v].before;
                if (u < 0 || !weft_jobshop_walk_may_swap(&w, u, v))
                    continue;
                double t = weft_jobshop_walk_estimate(&w, u, v);
                sum += t;
                n_moves++;
                if (swap && t <= w.makespan)
                    n_swaps += weft_jobshop_walk_swap(&w, u, v);
            }
        rate[swap] = (double) n_moves / (end - begin);
        swaps = (double) n_swaps / (end - begin);
    }
    printf("%-34s %14.2f %14.2f %14.2f %14.1f\n", name, rate[0] / 1e6,
           rate[1] / 1e6, swaps / 1e6,
           (double) w.n_updates / (swaps * seconds) + 0 * sum);
    weft_free(sequence);
    weft_jobshop_list_free(list);
    weft_jobshop_walk_release(&w);
    weft_jobshop_rule_release(&rule);
    weft_jobshop_pair_release(&pair);
}

static void bench_speed(void)
{
    static const struct setting sizes[] = {
        {.name = "8/4 GBS 8, 192 subtasks",
         .model = {{DOWN(1, 8, 8, 5, 10, 2)}, {UP(2, 4, 4, 4, 8, 2)}}},
        {.name = "16/8 GBS 64, 4096 subtasks",
         .model = {{DOWN(1, 16, 64, 2, 4, 2)}, {UP(2, 8, 32, 2, 4, 2)}}},
        {.name = "64/64 M 400, 102400 subtasks",
         .model = {{DOWN(1, 64, 400, 2, 4, 1)}, {UP(1, 64, 400, 1, 2, 1)}}}};
    printf("%-34s %14s %14s %14s %14s\n", "Swaps of neighbours",
           "M estimates/s", "M moves/s", "M swaps done/s", "updates each");
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        struct weft_schedule_problem p = make(&sizes[i]);
        speed(sizes[i].name, &p, 1);
        release(&p);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } table[] = {{"table3", bench_table3},
                 {"memory", bench_memory},
                 {"speed", bench_speed},
                 {"shapes", bench_shapes},
                 {"large", bench_large}};
    if (argc == 3 && strcmp(argv[1], "problems") == 0) {
        write_problems(argv[2]);
        return 0;
    }
    for (size_t k = 0; k < WEFT_COUNT(table); k++) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++)
            wanted = wanted || strcmp(argv[i], table[k].name) == 0;
        if (wanted)
            table[k].run();
    }
    return 0;
}
