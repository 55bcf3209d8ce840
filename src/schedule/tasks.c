/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/tasks.h"

#include <stdio.h>

#include "base/alloc.h"

const char *weft_pass_name(enum weft_pass pass)
{
    static const char *const name[] = {"forward", "backward", "weight"};
    return name[pass];
}

const char *weft_subtask_text(const struct weft_schedule_problem *problem,
                              const struct weft_subtask *t,
                              char text[WEFT_SUBTASK_TEXT])
{
    const struct weft_schedule_model *m = &problem->model[t->model];
    char pipeline[32] = "", mini_batch[32] = "";
    if (m->pipelines > 1)
        snprintf(pipeline, sizeof pipeline, " of pipeline %d", t->pipeline);
    if (problem->mini_batches > 1)
        snprintf(mini_batch, sizeof mini_batch, " of mini-batch %d",
                 t->mini_batch);
    snprintf(text, WEFT_SUBTASK_TEXT,
             "%s of micro-batch %d%s of %.60s on stage %d%s",
             weft_pass_name(t->pass), t->micro_batch, mini_batch, m->name,
             t->stage, pipeline);
    return text;
}

int32_t weft_schedule_device(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_model *model,
                             int32_t pipeline, int32_t stage)
{
    int32_t width = weft_schedule_width(model), i = stage % width;
    (void) problem;
    return pipeline * width + (model->up ? width - 1 - i : i);
}

static int64_t count_model(const struct weft_schedule_problem *problem,
                           const struct weft_schedule_model *m)
{
    return (int64_t) problem->mini_batches * m->pipelines * m->micro_batches
         * m->stages * (m->split_backward ? 3 : 2);
}

int64_t weft_schedule_count(const struct weft_schedule_problem *problem)
{
    int64_t n = 0;
    for (int32_t m = 0; m < problem->n_models; m++)
        n += count_model(problem, &problem->model[m]);
    return n;
}

int64_t weft_subtask_id(const struct weft_schedule_problem *problem,
                        const struct weft_subtask *t)
{
    const struct weft_schedule_model *m = &problem->model[t->model];
    int64_t id = t->mini_batch, first = 0;
    for (int32_t i = 0; i < t->model; i++)
        first += count_model(problem, &problem->model[i]);
    id = id * m->pipelines + t->pipeline;
    id = id * m->micro_batches + t->micro_batch;
    id = id * m->stages + t->stage;
    return first + id * (m->split_backward ? 3 : 2) + t->pass;
}

int32_t weft_subtask_device(const struct weft_schedule_problem *problem,
                            const struct weft_subtask *t)
{
    return weft_schedule_device(problem, &problem->model[t->model],
                                t->pipeline, t->stage);
}

static size_t cell(const struct weft_schedule_model *m,
                   const struct weft_subtask *t)
{
    return (size_t) t->micro_batch * (size_t) m->stages + (size_t) t->stage;
}

double weft_subtask_duration(const struct weft_schedule_problem *problem,
                             const struct weft_subtask *t)
{
    const struct weft_schedule_model *m = &problem->model[t->model];
    const double *time[] = {m->forward, m->backward, m->weight};
    return time[t->pass][cell(m, t)];
}

double weft_subtask_memory(const struct weft_schedule_problem *problem,
                           const struct weft_subtask *t)
{
    const struct weft_schedule_model *m = &problem->model[t->model];
    if (t->pass == WEFT_PASS_FORWARD)
        return m->activation[cell(m, t)];
    return t->pass == weft_schedule_last_pass(m) ? -m->activation[cell(m, t)]
                                                 : 0;
}

int weft_subtask_waits(const struct weft_schedule_problem *problem,
                       const struct weft_subtask *t,
                       struct weft_subtask out[2])
{
    const struct weft_schedule_model *m = &problem->model[t->model];
    int n = 0;
    if (t->pass != WEFT_PASS_FORWARD || t->stage > 0) {
        struct weft_subtask *o = &out[n++];
        *o = *t;
        if (t->pass == WEFT_PASS_FORWARD)
            o->stage--;
        else if (t->pass == WEFT_PASS_WEIGHT)
            o->pass = WEFT_PASS_BACKWARD;
        else if (t->stage < m->stages - 1)
            o->stage++;
        else
            o->pass = WEFT_PASS_FORWARD;
    }
    if (t->pass == weft_schedule_last_pass(m) && t->micro_batch > 0) {
        out[n] = *t;
        out[n++].micro_batch--;
    }
    return n;
}

/* ---- Schedules -------------------------------------------------------- */

/* Subtasks of every device into count (n_devices). */
static void count_devices(const struct weft_schedule_problem *problem,
                          int32_t *count)
{
    for (int32_t i = 0; i < problem->n_models; i++) {
        const struct weft_schedule_model *m = &problem->model[i];
        int32_t each = problem->mini_batches * m->micro_batches
                     * (m->split_backward ? 3 : 2);
        for (int32_t p = 0; p < m->pipelines; p++)
            for (int32_t s = 0; s < m->stages; s++)
                count[weft_schedule_device(problem, m, p, s)] += each;
    }
}

int weft_schedule_init(const struct weft_schedule_problem *problem,
                       struct weft_schedule *out, struct weft_err *err)
{
    size_t n = (size_t) problem->n_devices;
    struct weft_schedule s = {.n_devices = problem->n_devices};
    bool ok = true;
    s.n = weft_alloc(n, sizeof *s.n);
    s.task = weft_alloc(n, sizeof *s.task);
    if (s.n && s.task)
        count_devices(problem, s.n);
    for (size_t d = 0; d < n && s.n && s.task; d++) {
        s.task[d] = weft_alloc((size_t) s.n[d], sizeof **s.task);
        ok = ok && s.task[d];
        s.n[d] = 0;
    }
    if (!ok || !s.n || !s.task) {
        weft_schedule_release(&s);
        return weft_err_nomem(err, "a schedule",
                              (size_t) weft_schedule_count(problem)
                                  * sizeof **s.task);
    }
    *out = s;
    return 0;
}

void weft_schedule_append(const struct weft_schedule_problem *problem,
                          struct weft_schedule *schedule,
                          const struct weft_subtask *t)
{
    int32_t d = weft_subtask_device(problem, t);
    schedule->task[d][schedule->n[d]++] = *t;
}

void weft_schedule_release(struct weft_schedule *schedule)
{
    for (int32_t d = 0; schedule->task && d < schedule->n_devices; d++)
        weft_free(schedule->task[d]);
    weft_free(schedule->task);
    weft_free(schedule->n);
    *schedule = (struct weft_schedule){0};
}
