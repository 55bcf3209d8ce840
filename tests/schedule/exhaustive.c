/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every schedule of a small problem.
 *
 * Makespan and peak depend on the devices' orders alone, so it is enough to
 * append subtasks to them, each as early as it can start. Orders are met once
 * if subtasks are taken by rising start (ties by index, those without
 * duration first); branches that cannot beat the best are cut by the work
 * left on a device and the chain left behind a subtask.
 */
#include "exhaustive.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/tasks.h"

enum { MOST = 32 };

struct node {
    struct weft_subtask task;
    int32_t device;
    int before[2], n_before;
    double memory, duration;
    double tail; /* after its end, at least, to the makespan */
};

struct exhaustive {
    const struct weft_schedule_problem *problem;
    struct node node[MOST];
    int n;
    double start[MOST];
    uint32_t taken;
    double *free_at, *held, *work; /* (n_devices); work: still to do */
    double makespan, peak;         /* best */
    bool found;
    int order[MOST], best[MOST], n_order;
};

static double end_of(const struct exhaustive *x, int i)
{
    return x->start[i] + x->node[i].duration;
}

static double step_of(const struct exhaustive *x, int i)
{
    const struct weft_schedule_model *m =
        &x->problem->model[x->node[i].task.model];
    return m->sync + m->optimizer;
}

/* When i can start; NAN: not yet. */
static double ready_at(const struct exhaustive *x, int i)
{
    const struct node *node = &x->node[i];
    double ready = x->free_at[node->device];
    for (int k = 0; k < node->n_before; k++) {
        int j = node->before[k];
        bool here = x->node[j].device == node->device;
        if (!(x->taken >> j & 1))
            return NAN;
        ready = fmax(ready, end_of(x, j) + (here ? 0 : x->problem->latency));
    }
    for (int j = 0; j < x->n && weft_subtask_waits_for_step(&node->task); j++)
        if (x->node[j].task.model == node->task.model
            && x->node[j].task.mini_batch == node->task.mini_batch - 1) {
            if (!(x->taken >> j & 1))
                return NAN;
            ready = fmax(ready, end_of(x, j) + step_of(x, j));
        }
    return ready;
}

/* What is known of the makespan: true when it cannot be better. */
static bool is_hopeless(const struct exhaustive *x, double peak)
{
    double bound = 0;
    if (!x->found)
        return false;
    for (int32_t d = 0; d < x->problem->n_devices; d++)
        bound = fmax(bound, x->free_at[d] + x->work[d]);
    for (int i = 0; i < x->n; i++)
        if (x->taken >> i & 1)
            bound = fmax(bound, end_of(x, i) + x->node[i].tail);
    return bound > x->makespan || (bound == x->makespan && peak >= x->peak);
}

static void keep_best(struct exhaustive *x, double peak)
{
    double makespan = 0;
    for (int i = 0; i < x->n; i++)
        makespan = fmax(makespan, end_of(x, i) + step_of(x, i));
    if (x->found
        && (makespan > x->makespan
            || (makespan == x->makespan && peak >= x->peak)))
        return;
    x->found = true;
    x->makespan = makespan;
    x->peak = peak;
    memcpy(x->best, x->order, sizeof x->best);
}

static void extend(struct exhaustive *x, double peak)
{
    int last = x->n_order ? x->order[x->n_order - 1] : -1;
    if (is_hopeless(x, peak))
        return;
    if (x->n_order == x->n) {
        keep_best(x, peak);
        return;
    }
    for (int i = 0; i < x->n; i++) {
        const struct node *node = &x->node[i];
        int32_t d = node->device;
        if (x->taken >> i & 1)
            continue;
        double start = ready_at(x, i), was = x->free_at[d];
        double held = x->held[d], higher = fmax(peak, held + node->memory);
        if (isnan(start)
            || (last >= 0
                && (start < x->start[last]
                    || (start == x->start[last] && i < last
                        && x->node[last].duration > 0))))
            continue;
        if (x->problem->capacity > 0
            && higher > x->problem->capacity * (1 + 1e-9))
            continue;
        x->taken |= UINT32_C(1) << i;
        x->order[x->n_order++] = i;
        x->start[i] = start;
        x->free_at[d] = start + node->duration;
        x->held[d] += node->memory;
        x->work[d] -= node->duration;
        extend(x, higher);
        x->work[d] += node->duration;
        x->held[d] = held;
        x->free_at[d] = was;
        x->n_order--;
        x->taken &= ~(UINT32_C(1) << i);
    }
}

/* All subtasks by their numbers. */
static void list(struct exhaustive *x)
{
    const struct weft_schedule_problem *p = x->problem;
    struct weft_subtask t = {0}, before[2];
    for (t.model = 0; t.model < p->n_models; t.model++) {
        const struct weft_schedule_model *m = &p->model[t.model];
        int64_t n = (int64_t) p->mini_batches * m->pipelines
                  * m->micro_batches * m->stages;
        int passes = m->split_backward ? 3 : 2;
        for (int64_t i = 0; i < n * passes; i++) {
            struct node *node = &x->node[x->n++];
            int64_t at = i / passes;
            t.pass = (enum weft_pass)(i % passes);
            t.stage = (int32_t) (at % m->stages);
            at /= m->stages;
            t.micro_batch = (int32_t) (at % m->micro_batches);
            at /= m->micro_batches;
            t.pipeline = (int32_t) (at % m->pipelines);
            t.mini_batch = (int32_t) (at / m->pipelines);
            node->task = t;
            node->device = weft_subtask_device(p, &t);
            node->duration = weft_subtask_duration(p, &t);
            node->memory = weft_subtask_memory(p, &t);
            x->work[node->device] += node->duration;
            node->n_before = weft_subtask_waits(p, &t, before);
            for (int k = 0; k < node->n_before; k++)
                node->before[k] = (int) weft_subtask_id(p, &before[k]);
        }
    }
}

/* Longest chains behind every subtask; as often as a chain is long. */
static void set_tails(struct exhaustive *x)
{
    for (int i = 0; i < x->n; i++)
        x->node[i].tail = step_of(x, i);
    for (int again = 0; again < x->n; again++)
        for (int i = 0; i < x->n; i++)
            for (int k = 0; k < x->node[i].n_before; k++) {
                struct node *b = &x->node[x->node[i].before[k]];
                double way = b->device == x->node[i].device
                               ? 0
                               : x->problem->latency;
                b->tail = fmax(b->tail,
                               way + x->node[i].duration + x->node[i].tail);
            }
}

static int solve(struct exhaustive *x, struct weft_schedule *out,
                 struct weft_err *err)
{
    list(x);
    set_tails(x);
    extend(x, 0);
    if (!x->found)
        return weft_err_set(err, WEFT_ENOTFOUND,
                            "no schedule holds at most %g per device",
                            x->problem->capacity);
    int rc = weft_schedule_init(x->problem, out, err);
    if (rc)
        return rc;
    for (int i = 0; i < x->n; i++)
        weft_schedule_append(x->problem, out, &x->node[x->best[i]].task);
    rc = weft_schedule_time(x->problem, out, err);
    if (rc)
        weft_schedule_release(out);
    return rc;
}

int schedule_exhaustive(const struct weft_schedule_problem *problem,
                        struct weft_schedule *out, struct weft_err *err)
{
    size_t d = (size_t) problem->n_devices;
    if (weft_schedule_count(problem) > MOST)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "the problem has %lld subtasks; trying "
                            "everything ends at %d",
                            (long long) weft_schedule_count(problem), MOST);
    struct exhaustive x = {.problem = problem,
                           .free_at = weft_alloc(d, sizeof(double)),
                           .held = weft_alloc(d, sizeof(double)),
                           .work = weft_alloc(d, sizeof(double))};
    int rc = x.free_at && x.held && x.work
               ? solve(&x, out, err)
               : weft_err_nomem(err, "a schedule", 3 * d * sizeof(double));
    weft_free(x.free_at);
    weft_free(x.held);
    weft_free(x.work);
    return rc;
}
