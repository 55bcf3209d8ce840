/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_schedule PROBLEM.json SCHEDULE.json
 *
 * Every rule of a fused pipeline schedule (doc/schedules.md), worked out from
 * the two files with nothing of the planner's: a sentence per violation on
 * stdout, status 1 when there is one, 2 when a file cannot be read.
 */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD, BACKWARD, WEIGHT, N_PASSES };
static const char *const pass_name[] = {"forward", "backward", "weight"};

struct model {
    const char *name;
    int pipelines, stages, chunks, micro_batches, last; /* last pass */
    bool up;
    const json_t *table[N_PASSES + 1]; /* and the activations */
    double after;                      /* the last backward pass */
};

/* A subtask; start NAN: not in the schedule. */
struct task {
    int device;
    double start, end;
};

static struct model *models;
static size_t n_models;
static int n_devices, mini_batches;
static double latency, capacity, slack;
static struct task **tasks; /* per model */
static int violations;

static void violated(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    violations++;
}

static void *get(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) {
        fputs("check_schedule: out of memory\n", stderr);
        exit(2);
    }
    return p;
}

static int whole(const json_t *object, const char *key, int otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? (int) json_integer_value(v) : otherwise;
}

static double number(const json_t *object, const char *key, double otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* A number, one per stage, or per micro-batch one of these. */
static double cell(const json_t *table, int micro_batch, int stage)
{
    if (json_is_array(table) && json_is_array(json_array_get(table, 0)))
        table = json_array_get(table, (size_t) micro_batch);
    if (json_is_array(table))
        table = json_array_get(table, (size_t) stage);
    return json_number_value(table);
}

static void read_problem(const json_t *root)
{
    const json_t *list = json_object_get(root, "models");
    n_models = json_array_size(list);
    n_devices = whole(root, "stages", 0);
    mini_batches = whole(root, "mini_batches", 1);
    latency = number(root, "latency", 0);
    capacity = number(root, "memory_capacity", INFINITY);
    models = get(n_models, sizeof *models);
    tasks = get(n_models, sizeof *tasks);
    for (size_t i = 0; i < n_models; i++) {
        const json_t *o = json_array_get(list, i);
        struct model *m = &models[i];
        const char *direction = json_string_value(
            json_object_get(o, "direction"));
        m->name = json_string_value(json_object_get(o, "name"));
        m->pipelines = whole(o, "pipelines", 1);
        m->stages = whole(o, "stages", 0);
        m->chunks = whole(o, "chunks", 1);
        m->micro_batches = whole(o, "micro_batches", 0);
        m->up = direction && strcmp(direction, "up") == 0;
        m->after = number(o, "sync", 0) + number(o, "optimizer", 0);
        for (int k = 0; k < N_PASSES; k++)
            m->table[k] = json_object_get(o, pass_name[k]);
        m->table[N_PASSES] = json_object_get(o, "activation");
        m->last = m->table[WEIGHT] && !json_is_null(m->table[WEIGHT])
                    ? WEIGHT
                    : BACKWARD;
        if (!m->name || m->stages < 1 || m->micro_batches < 1
            || m->pipelines * m->stages != n_devices * m->chunks) {
            fprintf(stderr, "check_schedule: model %zu makes no sense\n", i);
            exit(2);
        }
        size_t n = (size_t) mini_batches * (size_t) m->pipelines
                 * (size_t) m->micro_batches * (size_t) m->stages * N_PASSES;
        tasks[i] = get(n, sizeof **tasks);
        for (size_t k = 0; k < n; k++)
            tasks[i][k].start = NAN;
    }
}

static struct task *task(size_t model, int mini_batch, int pipeline,
                         int micro_batch, int stage, int pass)
{
    const struct model *m = &models[model];
    size_t at = (size_t) mini_batch;
    at = at * (size_t) m->pipelines + (size_t) pipeline;
    at = at * (size_t) m->micro_batches + (size_t) micro_batch;
    at = at * (size_t) m->stages + (size_t) stage;
    return &tasks[model][at * N_PASSES + (size_t) pass];
}

static int device_of(const struct model *m, int pipeline, int stage)
{
    int width = m->stages / m->chunks, i = stage % width;
    return pipeline * width + (m->up ? width - 1 - i : i);
}

/* ---- The entries of a device ------------------------------------------- */

/* Enters one; its activation: what it takes or gives back. */
static bool enter(const json_t *o, int device, int i, double *activation)
{
    const char *name = json_string_value(json_object_get(o, "model"));
    const char *pass_text = json_string_value(json_object_get(o, "pass"));
    size_t model = 0;
    int pass = 0;
    while (model < n_models && strcmp(models[model].name, name ? name : ""))
        model++;
    while (pass < N_PASSES
           && strcmp(pass_name[pass], pass_text ? pass_text : ""))
        pass++;
    if (model == n_models || pass > models[model].last) {
        violated("device %d, entry %d: no such model or pass", device, i);
        return false;
    }
    const struct model *m = &models[model];
    int width = m->stages / m->chunks;
    int pipeline = whole(o, "pipeline", -1);
    int micro_batch = whole(o, "micro_batch", -1);
    int mini_batch = whole(o, "mini_batch", 0);
    int local = device - pipeline * width;
    int stage = whole(o, "stage", m->up ? width - 1 - local : local);
    if (pipeline < 0 || pipeline >= m->pipelines || micro_batch < 0
        || micro_batch >= m->micro_batches || mini_batch < 0
        || mini_batch >= mini_batches || stage < 0 || stage >= m->stages
        || device_of(m, pipeline, stage) != device) {
        violated("device %d, entry %d: no such subtask of %s here", device, i,
                 m->name);
        return false;
    }
    struct task *t = task(model, mini_batch, pipeline, micro_batch, stage,
                          pass);
    double time = cell(m->table[pass], micro_batch, stage);
    if (!isnan(t->start))
        violated("device %d, entry %d: %s of micro-batch %d of %s is there "
                 "twice",
                 device, i, pass_text, micro_batch, name);
    t->device = device;
    t->start = number(o, "start", -1);
    t->end = number(o, "end", -1);
    if (t->start < 0 || fabs(t->end - t->start - time) > slack)
        violated("device %d, entry %d: %s of micro-batch %d of %s runs from "
                 "%g to %g and takes %g",
                 device, i, pass_text, micro_batch, name, t->start, t->end,
                 time);
    *activation = pass == FORWARD || pass == m->last
                    ? cell(m->table[N_PASSES], micro_batch, stage)
                    : 0;
    if (pass != FORWARD)
        *activation = -*activation;
    return true;
}

/* One at a time, within the capacity. Returns the most that was held. */
static double check_device(const json_t *list, int device)
{
    double held = 0, peak = 0, free_at = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        double activation = 0;
        if (!enter(o, device, (int) i, &activation))
            continue;
        double start = number(o, "start", -1);
        if (start < free_at - slack)
            violated("device %d, entry %zu: starts at %g, before the one "
                     "before ends (%g)",
                     device, i, start, free_at);
        free_at = number(o, "end", -1);
        held += activation;
        peak = fmax(peak, held);
        if (activation > 0 && held > capacity * (1 + 1e-9))
            violated("device %d, entry %zu: at %g %g is held, more than the "
                     "capacity %g",
                     device, i, start, held, capacity);
    }
    return peak;
}

/* ---- What waits for what ----------------------------------------------- */

static void after(const char *what, size_t model, int micro_batch, int stage,
                  const struct task *first, const struct task *then)
{
    double lag = first->device == then->device ? 0 : latency;
    if (isnan(first->start) || isnan(then->start))
        return; /* said elsewhere */
    if (then->start < first->end + lag - slack)
        violated("%s, micro-batch %d, stage %d: %s starts at %g, before %g",
                 models[model].name, micro_batch, stage, what, then->start,
                 first->end + lag);
}

static void check_micro_batch(size_t k, int b, int p, int j)
{
    const struct model *m = &models[k];
    for (int s = 0; s < m->stages; s++) {
        struct task *f = task(k, b, p, j, s, FORWARD);
        struct task *w = task(k, b, p, j, s, BACKWARD);
        for (int pass = 0; pass <= m->last; pass++)
            if (isnan(task(k, b, p, j, s, pass)->start))
                violated("%s, micro-batch %d, stage %d, pipeline %d: %s is "
                         "missing",
                         m->name, j, s, p, pass_name[pass]);
        if (s > 0)
            after("forward", k, j, s, task(k, b, p, j, s - 1, FORWARD), f);
        if (s < m->stages - 1)
            after("backward", k, j, s, task(k, b, p, j, s + 1, BACKWARD), w);
        after("backward", k, j, s, f, w);
        if (m->last == WEIGHT)
            after("weight", k, j, s, w, task(k, b, p, j, s, WEIGHT));
        if (j > 0)
            after("gradient of the next", k, j - 1, s,
                  task(k, b, p, j - 1, s, m->last),
                  task(k, b, p, j, s, m->last));
    }
}

/* All of a mini-batch; returns when its optimizer has stepped. */
static double check_mini_batch(size_t k, int b, double ready)
{
    const struct model *m = &models[k];
    double end = 0;
    for (int p = 0; p < m->pipelines; p++)
        for (int j = 0; j < m->micro_batches; j++) {
            check_micro_batch(k, b, p, j);
            for (int s = 0; s < m->stages; s++) {
                const struct task *f = task(k, b, p, j, s, FORWARD);
                const struct task *g = task(k, b, p, j, s, m->last);
                if (f->start < ready - slack)
                    violated("%s, mini-batch %d, micro-batch %d, stage %d: "
                             "forward starts at %g, before the optimizer's "
                             "step (%g)",
                             m->name, b, j, s, f->start, ready);
                end = fmax(end, g->end);
            }
        }
    return end + m->after;
}

static void check_number(const json_t *root, const char *key, double value)
{
    double said = number(root, key, NAN);
    if (!(fabs(said - value) <= 1e-9 * (1 + fabs(value))))
        violated("'%s' is %.17g, but the schedule has %.17g", key, said,
                 value);
}

int main(int argc, char **argv)
{
    json_t *root[2] = {NULL, NULL};
    json_error_t error;
    double makespan = 0, peak = 0;
    if (argc != 3) {
        fputs("usage: check_schedule PROBLEM.json SCHEDULE.json\n", stderr);
        return 2;
    }
    for (int i = 0; i < 2; i++)
        if (!(root[i] = json_load_file(argv[i + 1], 0, &error))) {
            fprintf(stderr, "check_schedule: %s: %s\n", argv[i + 1],
                    error.text);
            return 2;
        }
    read_problem(root[0]);
    slack = 1e-9 * (1 + fabs(number(root[1], "makespan", 0)));
    const json_t *stages = json_object_get(root[1], "stages");
    if ((int) json_array_size(stages) != n_devices)
        violated("there are %zu lists for %d devices",
                 json_array_size(stages), n_devices);
    for (int d = 0; d < n_devices; d++)
        peak = fmax(peak,
                    check_device(json_array_get(stages, (size_t) d), d));
    for (size_t k = 0; k < n_models; k++) {
        double ready = 0;
        for (int b = 0; b < mini_batches; b++)
            ready = check_mini_batch(k, b, ready);
        makespan = fmax(makespan, ready);
    }
    check_number(root[1], "makespan", makespan);
    check_number(root[1], "peak_activation", peak);
    for (size_t k = 0; k < n_models; k++)
        free(tasks[k]);
    free(tasks);
    free(models);
    json_decref(root[0]);
    json_decref(root[1]);
    return violations > 0;
}
