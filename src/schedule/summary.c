/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule in a few lines for a terminal. */
#include "schedule/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/string.h"
#include "schedule/tasks.h"

enum { COLUMNS = 72, MOST_ROWS = 32, LETTERS = 26 };

static void put_times(FILE *f, const struct weft_schedule *s,
                      const struct weft_schedule_report *r)
{
    fprintf(f, "makespan         %g", s->makespan);
    if (r->optimal)
        fputs(", optimal", f);
    if (isfinite(r->lower_bound)) {
        fprintf(f, "\nlower bound      %g", r->lower_bound);
        if (r->argument)
            fprintf(f, " (%s)", r->argument);
        if (s->makespan > r->lower_bound)
            fprintf(f, ", gap %.2f %%",
                    100 * (s->makespan / r->lower_bound - 1));
    }
    if (isfinite(r->serial_1f1b))
        fprintf(f, "\nserial 1F1B      %g", r->serial_1f1b);
    if (isfinite(r->serial_1f1b) && s->makespan > 0)
        fprintf(f, ": this is %.3f times as fast",
                r->serial_1f1b / s->makespan);
    if (isfinite(r->greedy))
        fprintf(f, "\ngreedy           %g", r->greedy);
    fprintf(f, "\npeak activation  %g", s->peak_activation);
    if (r->serial_peak_activation > 0)
        fprintf(f, ", %.2f times serial 1F1B's %g",
                s->peak_activation / r->serial_peak_activation,
                r->serial_peak_activation);
    if (r->peak_bound > 0)
        fprintf(f, "\n                 at this makespan at least %g",
                r->peak_bound);
    fputs("\n", f);
    if (r->restarts > 0)
        fprintf(f,
                "search           %d restarts from seed %" PRIu64 ", %" PRId64
                " evaluations%s\n",
                r->restarts, r->seed, r->evaluations,
                r->cut ? ", cut short" : "");
}

static bool fits(const struct weft_schedule_problem *problem,
                 const struct weft_schedule *s)
{
    bool ok = s->task && s->n_devices <= MOST_ROWS && s->makespan > 0
           && problem->n_models <= LETTERS;
    for (int32_t d = 0; ok && d < s->n_devices; d++)
        ok = s->n[d] <= COLUMNS;
    return ok;
}

/* Lower case forward, upper case backward; what runs in the middle of a
 * column. A whole makespan that has room gets a column per unit. */
static void put_rows(FILE *f, const struct weft_schedule *s)
{
    bool whole = s->makespan <= COLUMNS && s->makespan == floor(s->makespan);
    int columns = whole ? (int) s->makespan : COLUMNS;
    for (int32_t d = 0; d < s->n_devices; d++) {
        int32_t i = 0;
        fprintf(f, "%4d ", d);
        for (int c = 0; c < columns; c++) {
            double at = (c + 0.5) * s->makespan / columns;
            while (i < s->n[d] && s->task[d][i].end <= at)
                i++;
            const struct weft_subtask *t = &s->task[d][i];
            bool idle = i == s->n[d] || t->start > at;
            fputc(idle                            ? '.'
                  : t->pass == WEFT_PASS_FORWARD  ? 'a' + t->model
                  : t->pass == WEFT_PASS_BACKWARD ? 'A' + t->model
                                                  : '+',
                  f);
        }
        fputs("\n", f);
    }
}

static void put_timeline(FILE *f, const struct weft_schedule_problem *problem,
                         const struct weft_schedule *s)
{
    bool split = false;
    fputs("\n", f);
    put_rows(f, s);
    fputs("     ", f);
    for (int32_t m = 0; m < problem->n_models; m++) {
        fprintf(f, "%c %s  ", 'a' + m, problem->model[m].name);
        split = split || problem->model[m].split_backward;
    }
    fprintf(f, "lower case forward, upper case backward%s\n",
            split ? ", + weight" : "");
}

char *weft_schedule_summary(const struct weft_schedule_problem *problem,
                            const struct weft_schedule *schedule,
                            const struct weft_schedule_report *report)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    put_times(f, schedule, report);
    if (fits(problem, schedule))
        put_timeline(f, problem, schedule);
    return weft_string_end_stream(f, &text);
}
