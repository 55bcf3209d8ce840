/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule read from its file, and every rule of it checked. */
#include "schedule/file.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "schedule/tasks.h"

enum { MAX_BYTES = 1 << 30, MAX_MICRO_BATCHES = 1 << 20 };

static const char *const top_keys[] = {
    "algorithm",       "makespan",
    "lower_bound",     "bound",
    "optimal",         "serial_1f1b",
    "greedy",          "speedup",
    "peak_activation", "stages",
    "search",          "serial_peak_activation",
    "measured",        "peak_activation_bound"};
static const char *const task_keys[] = {
    "model", "mini_batch", "pipeline", "micro_batch",  "stage",
    "pass",  "start",      "end",      "measured_end", "measured_start"};

/* ---- Rules -------------------------------------------------------------- */

struct checking {
    const struct weft_schedule_problem *problem;
    struct weft_schedule *schedule;
    double *end;  /* (subtasks) */
    double *step; /* (models, mini-batches): the optimizer's step done */
    double slack;
};

/* When t may start by what it waits for. */
static double earliest(const struct checking *c, const struct weft_subtask *t,
                       struct weft_subtask *because_out)
{
    struct weft_subtask before[2];
    int n = weft_subtask_waits(c->problem, t, before);
    int32_t d = weft_subtask_device(c->problem, t);
    double ready = 0;
    for (int i = 0; i < n; i++) {
        bool here = weft_subtask_device(c->problem, &before[i]) == d;
        double end = c->end[weft_subtask_id(c->problem, &before[i])]
                   + (here ? 0 : c->problem->latency);
        if (end > ready) {
            ready = end;
            *because_out = before[i];
        }
    }
    return ready;
}

static int check_waits(const struct checking *c, const struct weft_subtask *t,
                       struct weft_err *err)
{
    char text[WEFT_SUBTASK_TEXT], other[WEFT_SUBTASK_TEXT];
    struct weft_subtask because = *t;
    double ready = earliest(c, t, &because);
    weft_subtask_text(c->problem, t, text);
    if (t->start < ready - c->slack)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s starts at %g, but must wait until %g for %s",
                            text, t->start, ready,
                            weft_subtask_text(c->problem, &because, other));
    if (weft_subtask_waits_for_step(t)) {
        int64_t b = (int64_t) t->model * c->problem->mini_batches
                  + t->mini_batch - 1;
        if (t->start < c->step[b] - c->slack)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s starts at %g, before the optimizer's "
                                "step of the mini-batch before (%g)",
                                text, t->start, c->step[b]);
    }
    return 0;
}

/* The device's entries one after another, and what they hold. */
static int check_device(const struct checking *c, int32_t d,
                        struct weft_err *err)
{
    const struct weft_schedule_problem *p = c->problem;
    char text[WEFT_SUBTASK_TEXT];
    double free_at = 0;
    int rc = 0;
    for (int32_t i = 0; i < c->schedule->n[d] && !rc; i++) {
        const struct weft_subtask *t = &c->schedule->task[d][i];
        double time = weft_subtask_duration(p, t);
        weft_subtask_text(p, t, text);
        if (!(fabs(t->end - t->start - time) <= c->slack))
            return weft_err_set(err, WEFT_EINVAL,
                                "device %d: %s takes %g, not %g", d, text,
                                time, t->end - t->start);
        if (!(t->start >= free_at - c->slack))
            return weft_err_set(err, WEFT_EINVAL,
                                "device %d: %s starts at %g, while the one "
                                "before runs (to %g)",
                                d, text, t->start, free_at);
        rc = check_waits(c, t, err);
        free_at = t->end;
    }
    double peak = weft_schedule_peak(p, c->schedule, d);
    if (!rc && p->capacity > 0 && peak > p->capacity * (1 + 1e-9))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "device %d holds %g of activations, more than the "
                          "capacity %g",
                          d, peak, p->capacity);
    return rc;
}

static int check_all(struct checking *c, const struct weft_schedule *timed,
                     struct weft_err *err)
{
    const struct weft_schedule_problem *p = c->problem;
    double makespan = 0;
    int rc = 0;
    for (int32_t d = 0; d < p->n_devices; d++)
        for (int32_t i = 0; i < c->schedule->n[d]; i++) {
            const struct weft_subtask *t = &c->schedule->task[d][i];
            const struct weft_schedule_model *m = &p->model[t->model];
            double *step = &c->step[(int64_t) t->model * p->mini_batches
                                    + t->mini_batch];
            c->end[weft_subtask_id(p, t)] = t->end;
            *step = fmax(*step, t->end + m->sync + m->optimizer);
            makespan = fmax(makespan, *step);
        }
    c->slack = 1e-9 * fmax(makespan, timed->makespan);
    for (int32_t d = 0; d < p->n_devices && !rc; d++)
        rc = check_device(c, d, err);
    c->schedule->makespan = makespan;
    c->schedule->peak_activation = timed->peak_activation;
    return rc;
}

int weft_schedule_copy(const struct weft_schedule *from,
                       struct weft_schedule *out, struct weft_err *err)
{
    size_t most = 0;
    *out = (struct weft_schedule){.n_devices = from->n_devices,
                                  .makespan = from->makespan,
                                  .peak_activation = from->peak_activation};
    out->n = weft_alloc((size_t) from->n_devices, sizeof *out->n);
    out->task = weft_alloc((size_t) from->n_devices, sizeof *out->task);
    for (int32_t d = 0; out->n && out->task && d < from->n_devices; d++) {
        size_t n = (size_t) from->n[d];
        out->n[d] = from->n[d];
        most += n;
        out->task[d] = weft_alloc(n, sizeof **out->task);
        if (!out->task[d]) {
            weft_schedule_release(out);
            break;
        }
        memcpy(out->task[d], from->task[d], n * sizeof **out->task);
    }
    if (out->n && out->task)
        return 0;
    weft_schedule_release(out);
    return weft_err_nomem(err, "a schedule", most * sizeof **out->task);
}

int weft_schedule_check(const struct weft_schedule_problem *problem,
                        struct weft_schedule *schedule, struct weft_err *err)
{
    struct weft_schedule timed;
    size_t n = (size_t) weft_schedule_count(problem);
    size_t steps = (size_t) problem->n_models
                 * (size_t) problem->mini_batches;
    int rc = weft_schedule_copy(schedule, &timed, err);
    if (rc)
        return rc;
    rc = weft_schedule_time(problem, &timed, err); /* the orders */
    struct checking c = {.problem = problem,
                         .schedule = schedule,
                         .end = weft_alloc(n, sizeof *c.end),
                         .step = weft_alloc(steps, sizeof *c.step)};
    if (!c.end || !c.step)
        rc = weft_err_nomem(err, "a schedule", n * sizeof *c.end);
    if (!rc)
        rc = check_all(&c, &timed, err);
    weft_free(c.end);
    weft_free(c.step);
    weft_schedule_release(&timed);
    return rc;
}

/* ---- Reading ----------------------------------------------------------- */

static int read_model(const struct weft_schedule_problem *problem,
                      const json_t *entry, const char *subject, int32_t *out,
                      struct weft_err *err)
{
    const char *name = NULL;
    int rc = weft_json_string(entry, subject, "model", &name, err);
    if (rc)
        return rc;
    for (int32_t m = 0; m < problem->n_models; m++)
        if (strcmp(problem->model[m].name, name) == 0) {
            *out = m;
            return 0;
        }
    return weft_err_set(err, WEFT_EINVAL, "%s: the problem has no model '%s'",
                        subject, name);
}

static int read_pass(const struct weft_schedule_model *m, const json_t *entry,
                     const char *subject, enum weft_pass *out,
                     struct weft_err *err)
{
    const char *name = NULL;
    int rc = weft_json_string(entry, subject, "pass", &name, err);
    if (rc)
        return rc;
    for (int pass = 0; pass <= (int) weft_schedule_last_pass(m); pass++)
        if (strcmp(weft_pass_name((enum weft_pass) pass), name) == 0) {
            *out = (enum weft_pass) pass;
            return 0;
        }
    return weft_err_set(err, WEFT_EINVAL,
                        "%s: model '%s' has no pass '%s'; there are "
                        "'forward', 'backward'%s",
                        subject, m->name, name,
                        m->split_backward ? ", 'weight'" : "");
}

/* A whole number of the entry in [0, n). */
static int read_index(const json_t *entry, const char *subject,
                      const char *key, int64_t n, bool optional, int32_t *out,
                      struct weft_err *err)
{
    int64_t v = 0;
    int rc = optional
               ? weft_json_int_or(entry, subject, key, 0, n - 1, 0, &v, err)
               : weft_json_int(entry, subject, key, 0, n - 1, &v, err);
    *out = (int32_t) v;
    return rc;
}

static int read_task(const struct weft_schedule_problem *p,
                     const json_t *entry, const char *subject, int32_t device,
                     struct weft_subtask *out, struct weft_err *err)
{
    if (!json_is_object(entry))
        return weft_err_set(err, WEFT_EFORMAT, "%s must be an object, not %s",
                            subject, weft_json_type(entry));
    int rc = weft_json_keys(entry, subject, task_keys, WEFT_COUNT(task_keys),
                            err);
    if (!rc)
        rc = read_model(p, entry, subject, &out->model, err);
    if (rc)
        return rc;
    const struct weft_schedule_model *m = &p->model[out->model];
    int32_t width = weft_schedule_width(m);
    rc = read_index(entry, subject, "pipeline", m->pipelines, false,
                    &out->pipeline, err);
    if (!rc)
        rc = read_index(entry, subject, "micro_batch",
                        m->micro_batches > 0 ? m->micro_batches
                                             : MAX_MICRO_BATCHES,
                        false, &out->micro_batch, err);
    if (!rc)
        rc = read_index(entry, subject, "mini_batch", p->mini_batches,
                        p->mini_batches == 1, &out->mini_batch, err);
    if (!rc)
        rc = read_index(entry, subject, "stage", m->stages, m->chunks == 1,
                        &out->stage, err);
    if (!rc && m->chunks == 1 && !json_object_get(entry, "stage")) {
        /* The device tells, if it is one of the pipeline's. */
        int32_t i = device - out->pipeline * width;
        if (i < 0 || i >= width)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s: pipeline %d of %s is not on device %d",
                                subject, out->pipeline, m->name, device);
        out->stage = m->up ? width - 1 - i : i;
    }
    if (!rc)
        rc = read_pass(m, entry, subject, &out->pass, err);
    if (!rc)
        rc = weft_json_double(entry, subject, "start", &out->start, err);
    if (!rc)
        rc = weft_json_double(entry, subject, "end", &out->end, err);
    return rc;
}

static int read_stages(const struct weft_schedule_problem *p,
                       const json_t *stages, const char *path,
                       struct weft_schedule *out, struct weft_err *err)
{
    char subject[400];
    int rc = 0;
    if ((int64_t) json_array_size(stages) != p->n_devices)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: 'stages' has %zu lists, the problem %d "
                            "devices",
                            path, json_array_size(stages), p->n_devices);
    for (int32_t d = 0; d < p->n_devices && !rc; d++) {
        const json_t *list = json_array_get(stages, (size_t) d);
        size_t n = json_array_size(list);
        if (!json_is_array(list) || n > INT32_MAX)
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s: stages[%d] must be a list, not %s", path,
                                d, weft_json_type(list));
        out->task[d] = weft_alloc(n, sizeof **out->task);
        if (!out->task[d])
            return weft_err_nomem(err, path, n * sizeof **out->task);
        out->n[d] = (int32_t) n;
        for (size_t i = 0; i < n && !rc; i++) {
            snprintf(subject, sizeof subject, "%.300s: stages[%d][%zu]", path,
                     d, i);
            rc = read_task(p, json_array_get(list, i), subject, d,
                           &out->task[d][i], err);
        }
    }
    return rc;
}

static int read_root(const struct weft_schedule_problem *p,
                     const json_t *root, const char *path,
                     struct weft_schedule *out, struct weft_err *err)
{
    json_t *stages = NULL;
    if (!json_is_object(root))
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s: a schedule is an object, not %s", path,
                            weft_json_type(root));
    int rc = weft_json_keys(root, path, top_keys, WEFT_COUNT(top_keys), err);
    if (!rc)
        rc = weft_json_array(root, path, "stages", &stages, err);
    if (!rc)
        rc = read_stages(p, stages, path, out, err);
    return rc;
}

/* Takes the reference. */
static int read_schedule(const struct weft_schedule_problem *problem,
                         json_t *root, const char *path,
                         struct weft_schedule *out, struct weft_err *err)
{
    size_t n = (size_t) problem->n_devices;
    struct weft_schedule s = {.n_devices = problem->n_devices};
    s.n = weft_alloc(n, sizeof *s.n);
    s.task = weft_alloc(n, sizeof *s.task);
    int rc = s.n && s.task ? read_root(problem, root, path, &s, err)
                           : weft_err_nomem(err, path, n * sizeof *s.task);
    json_decref(root);
    if (rc)
        weft_schedule_release(&s);
    else
        *out = s;
    return rc;
}

static int read_file(const struct weft_schedule_problem *problem,
                     const char *path, struct weft_schedule *out,
                     struct weft_err *err)
{
    json_t *root = NULL;
    int rc = weft_json_read(path, MAX_BYTES, &root, err);
    return rc ? rc : read_schedule(problem, root, path, out, err);
}

static int check_read(const struct weft_schedule_problem *problem,
                      const char *path, struct weft_schedule *schedule,
                      struct weft_err *err)
{
    int rc = weft_schedule_check(problem, schedule, err);
    if (rc) {
        weft_err_prefix(err, "%s", path);
        weft_schedule_release(schedule);
    }
    return rc;
}

int weft_schedule_read(const struct weft_schedule_problem *problem,
                       const char *path, struct weft_schedule *out,
                       struct weft_err *err)
{
    struct weft_schedule s;
    int rc = read_file(problem, path, &s, err);
    if (!rc)
        rc = check_read(problem, path, &s, err);
    if (!rc)
        *out = s;
    return rc;
}

int weft_schedule_parse(const struct weft_schedule_problem *problem,
                        const char *text, size_t n, const char *name,
                        struct weft_schedule *out, struct weft_err *err)
{
    struct weft_schedule s;
    json_t *root = NULL;
    int rc = weft_json_parse(text, n, name, &root, err);
    if (!rc)
        rc = read_schedule(problem, root, name, &s, err);
    if (!rc)
        rc = check_read(problem, name, &s, err);
    if (!rc)
        *out = s;
    return rc;
}

int weft_schedule_read_order(struct weft_schedule_problem *problem,
                             const char *path, struct weft_schedule *out,
                             struct weft_err *err)
{
    int rc = read_file(problem, path, out, err);
    for (int32_t m = 0; m < problem->n_models && !rc; m++) {
        int32_t most = 0;
        for (int32_t d = 0; d < out->n_devices; d++)
            for (int32_t i = 0; i < out->n[d]; i++) {
                struct weft_subtask *t = &out->task[d][i];
                t->start = t->end = 0;
                if (t->model == m && t->micro_batch >= most)
                    most = t->micro_batch + 1;
            }
        if (problem->model[m].micro_batches == 0)
            problem->model[m].micro_batches = most;
    }
    return rc;
}
