/* SPDX-License-Identifier: Apache-2.0 */
/* What a sequence of a shop gives: starts, makespan, peak, a schedule. */
#include <math.h>

#include "base/alloc.h"
#include "base/err.h"
#include "schedule/jobshop.h"

/* An operation's neighbour: the one after it on its device, or in its series
 * where there is no sequence. */
static void follow(const struct weft_jobshop *shop, const int32_t *sequence,
                   int32_t *after, int32_t *missing)
{
    for (int32_t x = 0; x < shop->n_ops; x++) {
        after[x] = -1;
        missing[x] = shop->pred_at[x + 1] - shop->pred_at[x];
    }
    for (int32_t d = 0; d < shop->n_devices && sequence; d++)
        for (int32_t k = shop->device_at[d] + 1; k < shop->device_at[d + 1];
             k++) {
            after[sequence[k - 1]] = sequence[k];
            missing[sequence[k]]++;
        }
    for (int32_t l = 0; l < shop->n_series && !sequence; l++)
        for (int32_t i = 1; i < shop->series[l].n && shop->series[l].fixed;
             i++) {
            after[shop->series[l].op[i - 1]] = shop->series[l].op[i];
            missing[shop->series[l].op[i]]++;
        }
}

static void reach(int32_t y, double at, double *start, int32_t *missing,
                  int32_t *queue, int32_t *n)
{
    start[y] = fmax(start[y], at);
    if (--missing[y] == 0)
        queue[(*n)++] = y;
}

double weft_jobshop_time(const struct weft_jobshop *shop,
                         const int32_t *sequence, double *start)
{
    size_t n_ops = (size_t) shop->n_ops;
    int32_t *after = weft_alloc(3 * n_ops, sizeof *after), n = 0, done = 0;
    if (!after)
        return INFINITY;
    int32_t *missing = after + n_ops, *queue = missing + n_ops;
    double makespan = 0;
    follow(shop, sequence, after, missing);
    for (int32_t x = 0; x < shop->n_ops; x++) {
        start[x] = 0;
        if (missing[x] == 0)
            queue[n++] = x;
    }
    for (; done < n; done++) {
        int32_t x = queue[done];
        double end = start[x] + shop->op[x].time;
        makespan = fmax(makespan, end);
        for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++)
            reach(shop->succ[k].op, end + shop->succ[k].lag, start, missing,
                  queue, &n);
        if (after[x] >= 0)
            reach(after[x], end, start, missing, queue, &n);
    }
    weft_free(after);
    return done == shop->n_ops ? makespan : INFINITY;
}

double weft_jobshop_peak(const struct weft_jobshop *shop,
                         const int32_t *sequence)
{
    double peak = 0;
    for (int32_t d = 0; d < shop->n_devices; d++) {
        double held = 0;
        for (int32_t k = shop->device_at[d]; k < shop->device_at[d + 1];
             k++) {
            held += shop->op[sequence[k]].hold;
            peak = fmax(peak, held);
        }
    }
    return peak;
}

static struct weft_subtask subtask(const struct weft_jobshop *shop, int32_t x,
                                   double start)
{
    const struct weft_jobshop_op *op = &shop->op[x];
    const struct weft_jobshop_series *series = &shop->series[op->series];
    const struct weft_schedule_model *m =
        &shop->problem->model[series->model];
    int32_t model_stage = op->model_stage;
    for (int32_t i = 0; i < series->model; i++)
        model_stage -= shop->problem->model[i].pipelines
                     * shop->problem->model[i].stages;
    return (struct weft_subtask){.model = series->model,
                                 .mini_batch = op->place / m->micro_batches,
                                 .pipeline = model_stage / m->stages,
                                 .micro_batch = op->place % m->micro_batches,
                                 .stage = series->stage,
                                 .pass = series->pass,
                                 .start = start,
                                 .end = start + op->time};
}

int weft_jobshop_export(const struct weft_jobshop *shop,
                        const int32_t *sequence, struct weft_schedule *out,
                        struct weft_err *err)
{
    size_t n_devices = (size_t) shop->n_devices;
    struct weft_schedule s = {0};
    double *start = weft_alloc((size_t) shop->n_ops, sizeof *start);
    s.n = weft_alloc(n_devices, sizeof *s.n);
    s.task = weft_alloc(n_devices, sizeof *s.task);
    bool whole = start && s.n && s.task;
    s.n_devices = whole ? shop->n_devices : 0;
    for (int32_t d = 0; d < shop->n_devices && whole; d++) {
        s.n[d] = shop->device_at[d + 1] - shop->device_at[d];
        s.task[d] = weft_alloc((size_t) s.n[d], sizeof **s.task);
        whole = s.task[d] != NULL;
    }
    if (!whole) {
        weft_schedule_release(&s);
        weft_free(start);
        return weft_err_nomem(err, "a schedule",
                              (size_t) shop->n_ops * sizeof **s.task);
    }
    s.makespan = weft_jobshop_time(shop, sequence, start);
    s.peak_activation = weft_jobshop_peak(shop, sequence);
    for (int32_t d = 0; d < shop->n_devices; d++)
        for (int32_t k = 0; k < s.n[d]; k++) {
            int32_t x = sequence[shop->device_at[d] + k];
            s.task[d][k] = subtask(shop, x, start[x]);
        }
    weft_free(start);
    *out = s;
    return 0;
}
