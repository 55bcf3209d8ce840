/* SPDX-License-Identifier: Apache-2.0 */
/* Measures fused training: stage times for the next schedule, and the
 * comparison of planned and measured schedules, which can be kept. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "record/metrics.h"
#include "fuse/inside.h"

/* Times of the first iteration are too long, as caches are cold and memory is
 * touched for the first time. */
enum { WRITE_EVERY_S = 1, WARM_ITERATIONS = 2 };

/* ---- When subtasks ran ------------------------------------------------- */

/* Makes the measured schedule: the planned one with measured times since the
 * first start. */
static int read_spans(struct weft_fuse_turn *s, struct weft_err *err)
{
    double first = INFINITY;
    size_t at = 0;
    int rc = weft_rt_spans_all(s->n_spans, s->span, err);
    if (!rc)
        rc = weft_schedule_copy(&s->planned, &s->measured, err);
    if (rc)
        return rc;
    s->measured.makespan = 0;
    for (size_t i = 0; i < s->n_tasks; i++)
        if (s->span[i].end_s > 0)
            first = fmin(first, s->span[i].start_s);
    for (size_t i = s->n_tasks; i < s->n_spans; i++)
        s->measured.makespan = fmax(s->measured.makespan,
                                    s->span[i].end_s - first);
    for (int32_t d = 0; d < s->measured.n_devices; d++)
        for (int32_t i = 0; i < s->measured.n[d]; i++) {
            struct weft_subtask *k = &s->measured.task[d][i];
            const struct weft_span *span = &s->span[at++];
            bool ran = span->end_s > 0;
            k->start = ran ? span->start_s - first : NAN;
            k->end = ran ? span->end_s - first : NAN;
        }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

/* The median over the iteration of a stage's time per cost, forward or
 * backward; 0: none ran. `ratio`: room for all of these times. */
static double rate_of(const struct weft_fuse *fuse, int32_t model,
                      int32_t stage, bool backward, double *ratio)
{
    size_t n = 0;
    for (const struct weft_fuse_turn *s = fuse->turn; s; s = s->next) {
        const double *cost = s->cost + weft_fuse_first(&s->problem, model);
        for (int32_t d = 0; d < s->measured.n_devices; d++)
            for (int32_t i = 0; i < s->measured.n[d]; i++) {
                const struct weft_subtask *k = &s->measured.task[d][i];
                if (k->model == model && k->stage == stage
                    && (k->pass != WEFT_PASS_FORWARD) == backward
                    && k->end > k->start)
                    ratio[n++] = (k->end - k->start) / cost[k->micro_batch];
            }
    }
    qsort(ratio, n, sizeof *ratio, by_value);
    return n > 0 ? ratio[n / 2] : 0;
}

/* The median time from a step's last backward pass to the end of AdamW. */
static double update_of(const struct weft_fuse *fuse, int32_t model,
                        double *ratio)
{
    size_t n = 0;
    for (const struct weft_fuse_turn *s = fuse->turn; s; s = s->next)
        for (int32_t b = 0; b < s->problem.mini_batches; b++) {
            double end =
                s->span[s->n_tasks + (size_t) (b * fuse->n_models + model)]
                    .end_s;
            double last = 0;
            size_t at = 0;
            for (int32_t d = 0; d < s->planned.n_devices; d++)
                for (int32_t i = 0; i < s->planned.n[d]; i++, at++) {
                    const struct weft_subtask *k = &s->planned.task[d][i];
                    if (k->model == model && k->mini_batch == b)
                        last = fmax(last, s->span[at].end_s);
                }
            if (end > 0)
                ratio[n++] = fmax(0, end - last);
        }
    qsort(ratio, n, sizeof *ratio, by_value);
    return n > 0 ? ratio[n / 2] : 0;
}

/* Updates the rates from the measured times, which are the same on all
 * ranks. */
static int learn(struct weft_fuse *fuse, struct weft_err *err)
{
    size_t n = 0;
    for (const struct weft_fuse_turn *s = fuse->turn; s; s = s->next)
        n += s->n_spans;
    double *ratio = weft_alloc(n, sizeof *ratio);
    if (!ratio)
        return weft_err_nomem(err, "stage times", n * sizeof *ratio);
    for (int32_t m = 0; m < fuse->n_models; m++) {
        for (int32_t i = 0; i < 2 * fuse->model[m].stages; i++) {
            double rate = rate_of(fuse, m, i / 2, i % 2, ratio);
            if (rate > 0)
                fuse->model[m].rate[i] = rate;
        }
        fuse->model[m].update = update_of(fuse, m, ratio);
    }
    weft_free(ratio);
    return 0;
}

/* Compares the iteration's schedules with their plans: sums of times, means of
 * shares. */
static int compare(struct weft_fuse *fuse, struct weft_err *err)
{
    struct weft_schedule_comparison *all = &fuse->all, one;
    int n = 0, rc = 0;
    *all = (struct weft_schedule_comparison){.in_order = true};
    for (struct weft_fuse_turn *s = fuse->turn; s && !rc; s = s->next, n++) {
        rc = weft_schedule_compare(&s->problem, &s->planned, &s->measured,
                                   &one, err);
        if (rc)
            break;
        all->planned_makespan += one.planned_makespan;
        all->makespan += one.makespan;
        all->planned_bubble += one.planned_bubble;
        all->bubble += one.bubble;
        all->planned_peak = fmax(all->planned_peak, one.planned_peak);
        all->peak = fmax(all->peak, one.peak);
        all->start_error += one.start_error;
        all->most_start_error = fmax(all->most_start_error,
                                     one.most_start_error);
        all->in_order = all->in_order && one.in_order;
    }
    all->planned_bubble /= n > 0 ? n : 1;
    all->bubble /= n > 0 ? n : 1;
    all->start_error /= n > 0 ? n : 1;
    return rc;
}

int weft_fuse_measure(struct weft_fuse *fuse, struct weft_err *err)
{
    int rc = 0;
    if (!fuse || !fuse->turn)
        return 0;
    for (struct weft_fuse_turn *s = fuse->turn; s && !rc; s = s->next)
        rc = read_spans(s, err);
    fuse->was_measured = fuse->n_learned > 0;
    if (!rc)
        rc = compare(fuse, err);
    const struct weft_config *c = fuse->options.config;
    bool again = c->train.schedule_search == WEFT_FUSE_EACH_ITERATION;
    if (!rc && (again || fuse->n_learned < WARM_ITERATIONS)) {
        rc = learn(fuse, err);
        fuse->n_learned++;
        fuse->search_again = !c->train.schedule;
    }
    return rc;
}

/* ---- Files ------------------------------------------------------------- */

static int write_pictures(const struct weft_config *c,
                          const struct weft_fuse_turn *s,
                          struct weft_schedule_report *report,
                          struct weft_err *err)
{
    char path[4200];
    report->until = fmax(s->planned.makespan, s->measured.makespan);
    report->title = "planned (s, MiB)";
    snprintf(path, sizeof path, "%s/schedule/planned.svg", c->run_dir);
    int rc = weft_schedule_write_svg(&s->problem, &s->planned, report, path,
                                     err);
    report->title = "measured (s, MiB)";
    report->optimal = false;
    report->serial_1f1b = NAN; /* not measured */
    snprintf(path, sizeof path, "%s/schedule/measured.svg", c->run_dir);
    return rc ? rc
              : weft_schedule_write_svg(&s->problem, &s->measured, report,
                                        path, err);
}

static int write_files(const struct weft_config *c, struct weft_fuse_turn *s,
                       struct weft_err *err)
{
    struct weft_schedule_comparison comparison;
    struct weft_schedule serial = {0};
    struct weft_schedule_bound bound;
    char path[4200];
    int rc = weft_schedule_compare(&s->problem, &s->planned, &s->measured,
                                   &comparison, err);
    if (!rc)
        rc = weft_schedule_bounds(&s->problem, 0, &bound, err);
    if (!rc)
        rc = weft_schedule_baseline(&s->problem, WEFT_SCHEDULE_SERIAL,
                                    &serial, err);
    if (rc)
        return rc;
    s->planned.peak_activation = comparison.planned_peak;
    s->measured.peak_activation = comparison.peak;
    struct weft_schedule_report report = {
        .algorithm = WEFT_SCHEDULE_SEARCH,
        .lower_bound = bound.makespan,
        .argument = bound.argument,
        .serial_1f1b = serial.makespan,
        .serial_peak_activation = serial.peak_activation,
        .greedy = NAN,
        .optimal = s->planned.makespan <= bound.makespan * (1 + 1e-9),
        .seed = c->seed,
        .seconds = NAN,
        .measured = &s->measured,
        .comparison = &comparison};
    weft_schedule_release(&serial);
    snprintf(path, sizeof path, "%s/schedule", c->run_dir);
    rc = weft_dir_create(path, err);
    snprintf(path, sizeof path, "%s/schedule/problem.json", c->run_dir);
    if (!rc)
        rc = weft_schedule_problem_write(&s->problem, path, err);
    snprintf(path, sizeof path, "%s/schedule/fused.json", c->run_dir);
    if (!rc)
        rc = weft_schedule_write(&s->problem, &s->planned, &report, path,
                                 err);
    return rc ? rc : write_pictures(c, s, &report, err);
}

int weft_fuse_report(struct weft_fuse *fuse, bool last,
                     struct weft_metrics *m, struct weft_err *err)
{
    if (!fuse || !fuse->turn || !fuse->was_measured)
        return 0;
    const struct weft_schedule_comparison *all = &fuse->all;
    weft_metrics_set(m, "schedule/planned_s", all->planned_makespan);
    weft_metrics_set(m, "schedule/measured_s", all->makespan);
    weft_metrics_set(m, "schedule/planned_bubble", all->planned_bubble);
    weft_metrics_set(m, "schedule/measured_bubble", all->bubble);
    weft_metrics_set(m, "schedule/start_error_s", all->start_error);
    weft_metrics_set(m, "schedule/planned_peak_mib", all->planned_peak);
    weft_metrics_set(m, "schedule/measured_peak_mib", all->peak);
    weft_metrics_set(m, "schedule/in_order", all->in_order);
    double now = weft_clock_s();
    if (!last && now - fuse->written_s < WRITE_EVERY_S)
        return 0;
    fuse->written_s = now;
    struct weft_fuse_turn *last_turn = fuse->turn;
    while (last_turn->next)
        last_turn = last_turn->next;
    return write_files(fuse->options.config, last_turn, err);
}

/* ---- What was planned -------------------------------------------------- */

void weft_fuse_planned_release(struct weft_fuse_planned *planned)
{
    for (int32_t i = 0; i < planned->n; i++)
        weft_schedule_release(&planned->schedule[i]);
    weft_free(planned->schedule);
    *planned = (struct weft_fuse_planned){.n = 0};
}

int weft_fuse_keep(const struct weft_fuse *fuse,
                   struct weft_fuse_planned *out, struct weft_err *err)
{
    struct weft_fuse_planned kept = {.n = 0};
    const struct weft_fuse_turn *first = fuse ? fuse->turn : NULL;
    size_t n = 0;
    int rc = 0;
    for (const struct weft_fuse_turn *s = first; s; s = s->next)
        n++;
    kept.schedule = weft_alloc(n, sizeof *kept.schedule);
    if (!kept.schedule)
        return weft_err_nomem(err, "schedules", n * sizeof *kept.schedule);
    for (const struct weft_fuse_turn *s = first; s && !rc; s = s->next) {
        rc = weft_schedule_copy(&s->planned, &kept.schedule[kept.n], err);
        kept.n += rc == 0;
    }
    if (rc)
        weft_fuse_planned_release(&kept);
    else
        *out = kept;
    return rc;
}
