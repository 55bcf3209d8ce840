/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as JSON, a subtask per line. */
#include "plan/schedule_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/schedule_tasks.h"

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

static void put_task(FILE *f, const struct weft_schedule_problem *problem,
                     const struct weft_subtask *t)
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
    put_key(f, "serial_peak_activation", r->serial_peak_activation);
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
            put_task(f, problem, &schedule->task[d][i]);
        }
        fputs("]", f);
    }
    fputs("\n ],\n", f);
    put_search(f, report);
    return weft_schedule_end_text(f, &text);
}

char *weft_schedule_end_text(FILE *f, char **text)
{
    bool failed = ferror(f) != 0;
    if (fclose(f) == 0 && !failed)
        return *text;
    weft_free(*text);
    return NULL;
}

int weft_schedule_write_text(char *text, const char *path,
                             struct weft_err *err)
{
    if (!text)
        return weft_err_nomem(err, path, 4096);
    int rc = weft_file_write(path, text, strlen(text), err);
    weft_free(text);
    return rc;
}

int weft_schedule_write(const struct weft_schedule_problem *problem,
                        const struct weft_schedule *schedule,
                        const struct weft_schedule_report *report,
                        const char *path, struct weft_err *err)
{
    return weft_schedule_write_text(
        weft_schedule_json(problem, schedule, report), path, err);
}
