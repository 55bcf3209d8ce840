/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as it ran, beside its plan. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/file.h"
#include "schedule/tasks.h"

static bool ran(const struct weft_subtask *t)
{
    return t->end > t->start; /* false where they are no numbers */
}

/* The share of the devices' time until the makespan that they do nothing. */
static double bubble(const struct weft_schedule *s)
{
    double busy = 0;
    for (int32_t d = 0; d < s->n_devices; d++) {
        double until = 0; /* what ran may overlap: stages of a group */
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *t = &s->task[d][i];
            if (ran(t) && t->end > until) {
                busy += t->end - fmax(t->start, until);
                until = t->end;
            }
        }
    }
    return s->makespan > 0 ? 1 - busy / (s->makespan * s->n_devices) : 0;
}

struct change {
    double at, by;
};

/* What is given back at a moment goes before what is taken. */
static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->by < y->by ? -1 : x->by > y->by;
}

/* By the clock, whatever the order of the lists. `change`: room. */
static double peak(const struct weft_schedule_problem *problem,
                   const struct weft_schedule *s, struct change *change)
{
    double most = 0;
    for (int32_t d = 0; d < s->n_devices; d++) {
        double held = 0;
        size_t n = 0;
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *t = &s->task[d][i];
            double by = weft_subtask_memory(problem, t);
            if (ran(t) && by != 0)
                change[n++] = (struct change){by > 0 ? t->start : t->end, by};
        }
        qsort(change, n, sizeof *change, by_time);
        for (size_t i = 0; i < n; i++) {
            held += change[i].by;
            most = fmax(most, held);
        }
    }
    return most;
}

static void compare_starts(const struct weft_schedule *planned,
                           const struct weft_schedule *measured,
                           struct weft_schedule_comparison *out)
{
    int64_t n = 0;
    out->in_order = true;
    for (int32_t d = 0; d < planned->n_devices; d++) {
        double last = -INFINITY;
        for (int32_t i = 0; i < planned->n[d]; i++) {
            const struct weft_subtask *t = &measured->task[d][i];
            if (!ran(t))
                continue;
            double error = fabs(t->start - planned->task[d][i].start);
            out->start_error += error;
            out->most_start_error = fmax(out->most_start_error, error);
            out->in_order = out->in_order && t->start >= last;
            last = t->start;
            n++;
        }
    }
    out->start_error /= n > 0 ? (double) n : 1;
}

int weft_schedule_compare(const struct weft_schedule_problem *problem,
                          const struct weft_schedule *planned,
                          const struct weft_schedule *measured,
                          struct weft_schedule_comparison *out,
                          struct weft_err *err)
{
    size_t n = (size_t) weft_schedule_count(problem);
    struct change *change = weft_alloc(n, sizeof *change);
    if (!change)
        return weft_err_nomem(err, "a schedule", n * sizeof *change);
    *out = (struct weft_schedule_comparison){
        .planned_makespan = planned->makespan,
        .makespan = measured->makespan,
        .planned_bubble = bubble(planned),
        .bubble = bubble(measured),
        .planned_peak = peak(problem, planned, change),
        .peak = peak(problem, measured, change)};
    compare_starts(planned, measured, out);
    weft_free(change);
    return 0;
}
