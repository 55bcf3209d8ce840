/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as JSON, a subtask per line. */
#include "schedule/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/string.h"
#include "schedule/tasks.h"

void weft_schedule_put_number(FILE *f, double x)
{
    char text[40];
    int digits = 6;
    if (!isfinite(x)) {
        fputs("null", f);
        return;
    }
    do
        snprintf(text, sizeof text, "%.*g", digits++, x);
    while (digits <= 17 && strtod(text, NULL) != x);
    fputs(text, f);
}

void weft_schedule_put_text(FILE *f, const char *text)
{
    json_t *value = json_string(text);
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    fputs(quoted ? quoted : "null", f);
    free(quoted);
    json_decref(value);
}

static void put_key(FILE *f, const char *key, double x)
{
    fprintf(f, " \"%s\": ", key);
    weft_schedule_put_number(f, x);
    fputs(",\n", f);
}

/* measured: the same as it ran, or NULL. */
static void put_task(FILE *f, const struct weft_schedule_problem *problem,
                     const struct weft_subtask *t,
                     const struct weft_subtask *measured)
{
    const struct weft_schedule_model *m = &problem->model[t->model];
    fputs("{\"model\": ", f);
    weft_schedule_put_text(f, m->name);
    if (problem->mini_batches > 1)
        fprintf(f, ", \"mini_batch\": %d", t->mini_batch);
    fprintf(f, ", \"pipeline\": %d, \"micro_batch\": %d", t->pipeline,
            t->micro_batch);
    if (m->chunks > 1)
        fprintf(f, ", \"stage\": %d", t->stage);
    fprintf(f, ", \"pass\": \"%s\", \"start\": ", weft_pass_name(t->pass));
    weft_schedule_put_number(f, t->start);
    fputs(", \"end\": ", f);
    weft_schedule_put_number(f, t->end);
    if (measured) {
        fputs(", \"measured_start\": ", f);
        weft_schedule_put_number(f, measured->start);
        fputs(", \"measured_end\": ", f);
        weft_schedule_put_number(f, measured->end);
    }
    fputs("}", f);
}

static void put_head(FILE *f, const struct weft_schedule *schedule,
                     const struct weft_schedule_report *r)
{
    fprintf(f, "{\"algorithm\": \"%s\",\n",
            weft_schedule_algorithm_name(r->algorithm));
    put_key(f, "makespan", schedule->makespan);
    put_key(f, "lower_bound", r->lower_bound);
    fputs(" \"bound\": ", f);
    if (r->argument)
        weft_schedule_put_text(f, r->argument);
    else
        fputs("null", f);
    fprintf(f, ",\n \"optimal\": %s,\n", r->optimal ? "true" : "false");
    put_key(f, "serial_1f1b", r->serial_1f1b);
    put_key(f, "greedy", r->greedy);
    put_key(f, "speedup", r->serial_1f1b / schedule->makespan);
    put_key(f, "peak_activation", schedule->peak_activation);
    put_key(f, "peak_activation_bound",
            r->peak_bound > 0 ? r->peak_bound : NAN);
    put_key(f, "serial_peak_activation", r->serial_peak_activation);
}

static void put_measured(FILE *f, const struct weft_schedule_comparison *c)
{
    fprintf(f, " \"measured\": {\"in_order\": %s,\n",
            c->in_order ? "true" : "false");
    put_key(f, "makespan", c->makespan);
    put_key(f, "bubble", c->bubble);
    put_key(f, "planned_bubble", c->planned_bubble);
    put_key(f, "peak_activation", c->peak);
    put_key(f, "start_error", c->start_error);
    fputs(" \"most_start_error\": ", f);
    weft_schedule_put_number(f, c->most_start_error);
    fputs("},\n", f);
}

static void put_search(FILE *f, const struct weft_schedule_report *r)
{
    fprintf(f,
            " \"search\": {\"seed\": %" PRIu64 ", \"restarts\": %d, "
            "\"evaluations\": %" PRId64 ", \"cut\": %s",
            r->seed, r->restarts, r->evaluations, r->cut ? "true" : "false");
    if (!isnan(r->seconds))
        fprintf(f, ", \"seconds\": %.3f", r->seconds);
    fputs("}}\n", f);
}

char *weft_schedule_json(const struct weft_schedule_problem *problem,
                         const struct weft_schedule *schedule,
                         const struct weft_schedule_report *report)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    put_head(f, schedule, report);
    fputs(" \"stages\": [", f);
    for (int32_t d = 0; d < schedule->n_devices; d++) {
        fprintf(f, "%s\n  [", d > 0 ? "," : "");
        for (int32_t i = 0; i < schedule->n[d]; i++) {
            fputs(i > 0 ? ",\n   " : "", f);
            put_task(f, problem, &schedule->task[d][i],
                     report->measured ? &report->measured->task[d][i] : NULL);
        }
        fputs("]", f);
    }
    fputs("\n ],\n", f);
    if (report->comparison)
        put_measured(f, report->comparison);
    put_search(f, report);
    return weft_string_end_stream(f, &text);
}

int weft_schedule_write(const struct weft_schedule_problem *problem,
                        const struct weft_schedule *schedule,
                        const struct weft_schedule_report *report,
                        const char *path, struct weft_err *err)
{
    return weft_file_write_text(
        path, weft_schedule_json(problem, schedule, report), err);
}

/* ---- A problem --------------------------------------------------------- */

/* x (micro_batches, stages), a list per micro-batch. */
static void put_table(FILE *f, const char *key, const double *x,
                      const struct weft_schedule_model *m)
{
    fprintf(f, ",\n   \"%s\": [", key);
    for (int32_t i = 0; i < m->micro_batches; i++) {
        fputs(i > 0 ? ", [" : "[", f);
        for (int32_t s = 0; s < m->stages; s++) {
            fputs(s > 0 ? ", " : "", f);
            weft_schedule_put_number(f, x[i * m->stages + s]);
        }
        fputs("]", f);
    }
    fputs("]", f);
}

static void put_model(FILE *f, const struct weft_schedule_model *m)
{
    fputs("  {\"name\": ", f);
    weft_schedule_put_text(f, m->name);
    fprintf(f,
            ", \"pipelines\": %d, \"stages\": %d, \"chunks\": %d, "
            "\"micro_batches\": %d, \"direction\": \"%s\"",
            m->pipelines, m->stages, m->chunks, m->micro_batches,
            m->up ? "up" : "down");
    put_table(f, "forward", m->forward, m);
    put_table(f, "backward", m->backward, m);
    if (m->split_backward)
        put_table(f, "weight", m->weight, m);
    put_table(f, "activation", m->activation, m);
    fputs(",\n   \"sync\": ", f);
    weft_schedule_put_number(f, m->sync);
    fputs(", \"optimizer\": ", f);
    weft_schedule_put_number(f, m->optimizer);
    fputs("}", f);
}

int weft_schedule_problem_write(const struct weft_schedule_problem *problem,
                                const char *path, struct weft_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return weft_err_nomem(err, path, 4096);
    fprintf(f, "{\"stages\": %d,\n", problem->n_devices);
    put_key(f, "latency", problem->latency);
    put_key(f, "memory_capacity",
            problem->capacity > 0 ? problem->capacity : NAN);
    fprintf(f, " \"mini_batches\": %d,\n \"models\": [\n",
            problem->mini_batches);
    for (int32_t m = 0; m < problem->n_models; m++) {
        fputs(m > 0 ? ",\n" : "", f);
        put_model(f, &problem->model[m]);
    }
    fputs("\n ]}\n", f);
    return weft_file_write_text(path, weft_string_end_stream(f, &text), err);
}
