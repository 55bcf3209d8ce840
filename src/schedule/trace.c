/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as a trace, for viewers of such. */
#include "schedule/file.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"
#include "schedule/tasks.h"

/* ---- Trace events ------------------------------------------------------- */

static void put_event(FILE *f, const struct weft_schedule_problem *problem,
                      int32_t device, const struct weft_subtask *t)
{
    const char *model = problem->model[t->model].name;
    fputs(",\n {\"ph\": \"X\", \"pid\": 0, \"tid\": ", f);
    fprintf(f, "%d, \"name\": ", device);
    char name[200];
    snprintf(name, sizeof name, "%.100s %s %d", model,
             weft_pass_name(t->pass), t->micro_batch);
    weft_schedule_put_text(f, name);
    fputs(", \"cat\": ", f);
    weft_schedule_put_text(f, model);
    fputs(", \"ts\": ", f);
    weft_schedule_put_number(f, t->start);
    fputs(", \"dur\": ", f);
    weft_schedule_put_number(f, t->end - t->start);
    fprintf(f,
            ", \"args\": {\"mini_batch\": %d, \"pipeline\": %d, "
            "\"micro_batch\": %d, \"stage\": %d}}",
            t->mini_batch, t->pipeline, t->micro_batch, t->stage);
}

/* The counter of a device's activations. */
static void put_held(FILE *f, int32_t device, double at, double held)
{
    fputs(",\n {\"ph\": \"C\", \"pid\": 0, \"name\": ", f);
    fprintf(f, "\"activations of device %d\", \"ts\": ", device);
    weft_schedule_put_number(f, at);
    fputs(", \"args\": {\"held\": ", f);
    weft_schedule_put_number(f, held);
    fputs("}}", f);
}

int weft_schedule_write_perfetto(const struct weft_schedule_problem *problem,
                                 const struct weft_schedule *schedule,
                                 const char *path, struct weft_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return weft_err_nomem(err, path, 4096);
    fputs("{\"traceEvents\": [\n {\"ph\": \"M\", \"pid\": 0, \"name\": "
          "\"process_name\", \"args\": {\"name\": \"schedule\"}}",
          f);
    for (int32_t d = 0; d < schedule->n_devices; d++) {
        double held = 0;
        fprintf(f,
                ",\n {\"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"name\": "
                "\"thread_name\", \"args\": {\"name\": \"device %d\"}}",
                d, d);
        for (int32_t i = 0; i < schedule->n[d]; i++) {
            const struct weft_subtask *t = &schedule->task[d][i];
            double change = weft_subtask_memory(problem, t);
            put_event(f, problem, d, t);
            held += change;
            if (change != 0)
                put_held(f, d, change > 0 ? t->start : t->end, held);
        }
    }
    fputs("\n]}\n", f);
    return weft_file_write_text(path, weft_string_end_stream(f, &text), err);
}

/* ---- Paje -------------------------------------------------------------- */

static const char paje_head[] =
    "%EventDef PajeDefineContainerType 0\n%  Alias string\n%  Type string\n"
    "%  Name string\n%EndEventDef\n"
    "%EventDef PajeDefineStateType 1\n%  Alias string\n%  Type string\n"
    "%  Name string\n%EndEventDef\n"
    "%EventDef PajeDefineVariableType 2\n%  Alias string\n%  Type string\n"
    "%  Name string\n%  Color color\n%EndEventDef\n"
    "%EventDef PajeDefineEntityValue 3\n%  Alias string\n%  Type string\n"
    "%  Name string\n%  Color color\n%EndEventDef\n"
    "%EventDef PajeCreateContainer 4\n%  Time date\n%  Alias string\n"
    "%  Type string\n%  Container string\n%  Name string\n%EndEventDef\n"
    "%EventDef PajeDestroyContainer 5\n%  Time date\n%  Type string\n"
    "%  Name string\n%EndEventDef\n"
    "%EventDef PajeSetState 6\n%  Time date\n%  Type string\n"
    "%  Container string\n%  Value string\n%  MicroBatch int\n%EndEventDef\n"
    "%EventDef PajeSetVariable 7\n%  Time date\n%  Type string\n"
    "%  Container string\n%  Value double\n%EndEventDef\n"
    "0 P 0 \"schedule\"\n0 D P \"device\"\n1 S D \"pass\"\n"
    "2 M D \"activations\" \"0.2 0.4 0.7\"\n"
    "3 idle S \"idle\" \"0.9 0.9 0.9\"\n"
    "4 0 root P 0 \"schedule\"\n";

static void put_values(FILE *f, const struct weft_schedule_problem *problem)
{
    static const char *const colour[][3] = {
        {"0.66 0.80 0.94", "0.18 0.44 0.71", "0.11 0.27 0.47"},
        {"0.97 0.73 0.77", "0.79 0.25 0.36", "0.52 0.13 0.23"},
        {"0.71 0.87 0.69", "0.23 0.56 0.27", "0.12 0.35 0.17"},
        {"0.98 0.84 0.61", "0.82 0.50 0.12", "0.54 0.31 0.05"},
    };
    for (int32_t m = 0; m < problem->n_models; m++)
        for (int pass = 0; pass < 3; pass++) {
            fprintf(f, "3 v%d_%d S \"", m, pass);
            for (const char *c = problem->model[m].name; *c; c++)
                fputc(*c == '"' || *c == '\n' ? ' ' : *c, f);
            fprintf(f, " %s\" \"%s\"\n",
                    weft_pass_name((enum weft_pass) pass),
                    colour[(size_t) m % WEFT_COUNT(colour)][pass]);
        }
}

/* The start or the end of a subtask. Paje wants events by rising time. */
struct mark {
    double time;
    int32_t device, i;
    bool end;
};

static int compare(const void *left, const void *right)
{
    const struct mark *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->i != b->i ? (a->i < b->i ? -1 : 1) : a->end - b->end;
}

static struct mark *list_marks(const struct weft_schedule *schedule, size_t n)
{
    struct mark *mark = weft_alloc(n, sizeof *mark), *next = mark;
    for (int32_t d = 0; mark && d < schedule->n_devices; d++)
        for (int32_t i = 0; i < schedule->n[d]; i++) {
            const struct weft_subtask *t = &schedule->task[d][i];
            *next++ = (struct mark){t->start, d, i, false};
            *next++ = (struct mark){t->end, d, i, true};
        }
    if (mark)
        qsort(mark, n, sizeof *mark, compare);
    return mark;
}

/* A line of an event: "NUMBER time type device value". */
static void put_at(FILE *f, int event, const struct mark *mark,
                   const char *type)
{
    fprintf(f, "%d ", event);
    weft_schedule_put_number(f, mark->time);
    fprintf(f, " %s d%d ", type, mark->device);
}

static void put_mark(FILE *f, const struct weft_schedule_problem *problem,
                     const struct weft_schedule *schedule,
                     const struct mark *mark, double *held)
{
    const struct weft_subtask *t = &schedule->task[mark->device][mark->i];
    double change = weft_subtask_memory(problem, t);
    bool last = mark->i + 1 == schedule->n[mark->device];
    if (!mark->end) {
        put_at(f, 6, mark, "S");
        fprintf(f, "v%d_%d %d\n", t->model, (int) t->pass, t->micro_batch);
    } else if (last || t[1].start > t->end) {
        put_at(f, 6, mark, "S");
        fputs("idle -1\n", f);
    }
    if (change != 0 && (change < 0) == mark->end) {
        held[mark->device] += change;
        put_at(f, 7, mark, "M");
        weft_schedule_put_number(f, held[mark->device]);
        fputs("\n", f);
    }
}

static char *paje_text(const struct weft_schedule_problem *problem,
                       const struct weft_schedule *schedule,
                       const struct mark *mark, size_t n, double *held)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fputs(paje_head, f);
    put_values(f, problem);
    for (int32_t d = 0; d < schedule->n_devices; d++)
        fprintf(f, "4 0 d%d D root \"device %d\"\n", d, d);
    for (size_t i = 0; i < n; i++)
        put_mark(f, problem, schedule, &mark[i], held);
    for (int32_t d = 0; d < schedule->n_devices; d++) {
        fputs("5 ", f);
        weft_schedule_put_number(f, schedule->makespan);
        fprintf(f, " D d%d\n", d);
    }
    return weft_string_end_stream(f, &text);
}

int weft_schedule_write_paje(const struct weft_schedule_problem *problem,
                             const struct weft_schedule *schedule,
                             const char *path, struct weft_err *err)
{
    size_t n = 0;
    for (int32_t d = 0; d < schedule->n_devices; d++)
        n += 2 * (size_t) schedule->n[d];
    struct mark *mark = list_marks(schedule, n);
    double *held = weft_alloc((size_t) schedule->n_devices, sizeof *held);
    char *text = mark && held ? paje_text(problem, schedule, mark, n, held)
                              : NULL;
    weft_free(mark);
    weft_free(held);
    return weft_file_write_text(path, text, err);
}
