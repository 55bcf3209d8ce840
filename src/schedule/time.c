/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From orders to starts.
 *
 * A device whose next subtask has all that it waits for takes it; whoever may
 * wait for that one is looked at again. Every subtask is taken once, so the
 * work is linear in their number. Nothing moves any more while some are left:
 * the orders have a cycle.
 */
#include <math.h>

#include "base/alloc.h"
#include "schedule/file.h"
#include "schedule/tasks.h"

/* A mini-batch of a model, up to its optimizer's step. */
struct step {
    int64_t left; /* subtasks */
    double end;   /* of the last of them; of the step when none is left */
};

struct timing {
    const struct weft_schedule_problem *problem;
    struct weft_schedule *schedule;
    double *end;       /* (subtasks): NAN until taken */
    double *free_at;   /* (n_devices) */
    int32_t *next;     /* (n_devices): place in the device's order */
    int32_t *stack;    /* (n_devices): devices to look at */
    bool *on_stack;    /* (n_devices) */
    struct step *step; /* (n_models, mini_batches) */
    int32_t n_stack;
};

static struct step *step_of(const struct timing *k, int32_t model,
                            int32_t mini_batch)
{
    return &k->step[(int64_t) model * k->problem->mini_batches + mini_batch];
}

static void look_at(struct timing *k, int32_t device)
{
    if (k->on_stack[device])
        return;
    k->on_stack[device] = true;
    k->stack[k->n_stack++] = device;
}

/* When t could start but for its device; NAN: what it waits for (then
 * *missing_out, but for a step) is not done. */
static double ready_at(const struct timing *k, const struct weft_subtask *t,
                       struct weft_subtask *missing_out)
{
    struct weft_subtask before[2];
    int n = weft_subtask_waits(k->problem, t, before);
    int32_t device = weft_subtask_device(k->problem, t);
    double ready = 0;
    for (int i = 0; i < n; i++) {
        double end = k->end[weft_subtask_id(k->problem, &before[i])];
        if (isnan(end)) {
            *missing_out = before[i];
            return NAN;
        }
        if (weft_subtask_device(k->problem, &before[i]) != device)
            end += k->problem->latency;
        ready = fmax(ready, end);
    }
    if (weft_subtask_waits_for_step(t)) {
        const struct step *step = step_of(k, t->model, t->mini_batch - 1);
        if (step->left > 0) {
            *missing_out = *t;
            return NAN;
        }
        ready = fmax(ready, step->end);
    }
    return ready;
}

/* The last subtask of a mini-batch is done: sum gradients, step, go on. */
static void finish_step(struct timing *k, int32_t model, int32_t mini_batch)
{
    const struct weft_schedule_model *m = &k->problem->model[model];
    struct step *step = step_of(k, model, mini_batch);
    step->end += m->sync + m->optimizer;
    k->schedule->makespan = fmax(k->schedule->makespan, step->end);
    for (int32_t p = 0; p < m->pipelines; p++)
        look_at(k, weft_schedule_device(k->problem, m, p, 0));
}

/* Looks again where a subtask may wait for t. */
static void wake(struct timing *k, const struct weft_subtask *t)
{
    const struct weft_schedule_model *m = &k->problem->model[t->model];
    int32_t d = weft_subtask_device(k->problem, t);
    int32_t width = weft_schedule_width(m), first = t->pipeline * width;
    int32_t i = d - first;
    look_at(k, first + (i + 1) % width);
    look_at(k, first + (i + width - 1) % width);
    struct step *step = step_of(k, t->model, t->mini_batch);
    step->end = fmax(step->end, t->end);
    if (--step->left == 0)
        finish_step(k, t->model, t->mini_batch);
}

/* Takes subtasks of a device for as long as the next one is ready. */
static void run_device(struct timing *k, int32_t d)
{
    struct weft_subtask missing;
    while (k->next[d] < k->schedule->n[d]) {
        struct weft_subtask *t = &k->schedule->task[d][k->next[d]];
        double ready = ready_at(k, t, &missing);
        if (isnan(ready))
            return;
        t->start = fmax(ready, k->free_at[d]);
        t->end = t->start + weft_subtask_duration(k->problem, t);
        k->free_at[d] = t->end;
        k->end[weft_subtask_id(k->problem, t)] = t->end;
        k->next[d]++;
        wake(k, t);
    }
}

/* ---- Errors ----------------------------------------------------------- */

static bool exists(const struct weft_schedule_problem *p,
                   const struct weft_subtask *t)
{
    if (t->model < 0 || t->model >= p->n_models)
        return false;
    const struct weft_schedule_model *m = &p->model[t->model];
    return t->mini_batch >= 0 && t->mini_batch < p->mini_batches
        && t->pipeline >= 0 && t->pipeline < m->pipelines
        && t->micro_batch >= 0 && t->micro_batch < m->micro_batches
        && t->stage >= 0 && t->stage < m->stages
        && (unsigned) t->pass <= (unsigned) weft_schedule_last_pass(m);
}

/* Every subtask once, on its device. Leaves k->end NAN. */
static int check_complete(struct timing *k, struct weft_err *err)
{
    const struct weft_schedule_problem *p = k->problem;
    char text[WEFT_SUBTASK_TEXT];
    int64_t n = 0, all = weft_schedule_count(p);
    for (int32_t d = 0; d < p->n_devices; d++)
        for (int32_t i = 0; i < k->schedule->n[d]; i++, n++) {
            const struct weft_subtask *t = &k->schedule->task[d][i];
            if (!exists(p, t))
                return weft_err_set(err, WEFT_EINVAL,
                                    "device %d: entry %d is no subtask of "
                                    "the problem",
                                    d, i);
            weft_subtask_text(p, t, text);
            int32_t right = weft_subtask_device(p, t);
            if (right != d)
                return weft_err_set(err, WEFT_EINVAL,
                                    "device %d: %s belongs to device %d", d,
                                    text, right);
            double *seen = &k->end[weft_subtask_id(p, t)];
            if (isnan(*seen))
                return weft_err_set(err, WEFT_EINVAL,
                                    "device %d: %s is there twice", d, text);
            *seen = NAN;
        }
    if (n < all)
        return weft_err_set(err, WEFT_EINVAL,
                            "the schedule has %lld of %lld subtasks",
                            (long long) n, (long long) all);
    return 0;
}

static int cycle_error(const struct timing *k, struct weft_err *err)
{
    char text[WEFT_SUBTASK_TEXT], other[WEFT_SUBTASK_TEXT];
    int32_t d = 0;
    while (k->next[d] == k->schedule->n[d])
        d++;
    const struct weft_subtask *t = &k->schedule->task[d][k->next[d]];
    struct weft_subtask missing = *t;
    ready_at(k, t, &missing);
    bool step = weft_subtask_id(k->problem, &missing)
             == weft_subtask_id(k->problem, t);
    return weft_err_set(
        err, WEFT_EINVAL,
        "device %d: %s waits for %s, which cannot come before it in these "
        "orders (a cycle)",
        d, weft_subtask_text(k->problem, t, text),
        step ? "the step of the mini-batch before"
             : weft_subtask_text(k->problem, &missing, other));
}

/* ---- All --------------------------------------------------------------- */

double weft_schedule_peak(const struct weft_schedule_problem *problem,
                          const struct weft_schedule *schedule,
                          int32_t device)
{
    double held = 0, peak = 0;
    for (int32_t i = 0; i < schedule->n[device]; i++) {
        held += weft_subtask_memory(problem, &schedule->task[device][i]);
        peak = fmax(peak, held);
    }
    return peak;
}

static int run_all(struct timing *k, struct weft_err *err)
{
    const struct weft_schedule_problem *p = k->problem;
    for (int32_t i = 0; i < p->n_models; i++) {
        const struct weft_schedule_model *m = &p->model[i];
        for (int32_t b = 0; b < p->mini_batches; b++)
            step_of(k, i, b)->left = (int64_t) m->pipelines * m->micro_batches
                                   * m->stages * (m->split_backward ? 3 : 2);
    }
    k->schedule->makespan = 0;
    for (int32_t d = p->n_devices - 1; d >= 0; d--)
        look_at(k, d);
    while (k->n_stack > 0) {
        int32_t d = k->stack[--k->n_stack];
        k->on_stack[d] = false;
        run_device(k, d);
    }
    for (int32_t d = 0; d < p->n_devices; d++)
        if (k->next[d] < k->schedule->n[d])
            return cycle_error(k, err);
    k->schedule->peak_activation = 0;
    for (int32_t d = 0; d < p->n_devices; d++)
        k->schedule->peak_activation = fmax(
            k->schedule->peak_activation,
            weft_schedule_peak(p, k->schedule, d));
    return 0;
}

int weft_schedule_time(const struct weft_schedule_problem *problem,
                       struct weft_schedule *schedule, struct weft_err *err)
{
    size_t n = (size_t) weft_schedule_count(problem);
    size_t d = (size_t) problem->n_devices;
    size_t steps = (size_t) problem->n_models
                 * (size_t) problem->mini_batches;
    if (schedule->n_devices != problem->n_devices)
        return weft_err_set(err, WEFT_EINVAL,
                            "the schedule has %d devices, the problem %d",
                            schedule->n_devices, problem->n_devices);
    struct timing k = {
        .problem = problem,
        .schedule = schedule,
        .end = weft_alloc(n, sizeof *k.end),
        .free_at = weft_alloc(d, sizeof *k.free_at),
        .next = weft_alloc(d, sizeof *k.next),
        .stack = weft_alloc(d, sizeof *k.stack),
        .on_stack = weft_alloc(d, sizeof *k.on_stack),
        .step = weft_alloc(steps, sizeof *k.step),
    };
    int rc;
    if (k.end && k.free_at && k.next && k.stack && k.on_stack && k.step) {
        rc = check_complete(&k, err);
        if (!rc)
            rc = run_all(&k, err);
    } else {
        rc = weft_err_nomem(err, "the times of a schedule",
                            n * sizeof *k.end);
    }
    weft_free(k.step);
    weft_free(k.on_stack);
    weft_free(k.stack);
    weft_free(k.next);
    weft_free(k.free_at);
    weft_free(k.end);
    return rc;
}
