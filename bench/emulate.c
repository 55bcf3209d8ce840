/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated beside executed: an iteration of a run is recorded, the event
 * engine plays it, and the runtime with its policy executes the same tasks on
 * emulated devices, where a task only sleeps for its time. So the order of
 * tasks is the real one's on up to 32 devices, whatever this machine has.
 *
 *     bench/emulate [GROUP] CONFIG.yaml [key=value ...]
 *
 * Prints for each row of the group the makespan of both; that of a simulation
 * in which tasks take as long as they slept, which a busy machine makes longer
 * than they were to; and how many of the tasks that follow one another on a
 * device did so in the simulation. GROUP is
 *
 *     --layouts    layouts on up to 32 devices (the default)
 *     --completed  training when all samples are complete and when a
 *                  mini-batch's own are (train.as_completed)
 *     --speeds     the second half of the devices is half as fast: replicas
 *                  that are all given as much, and by their speed
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/emulated.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/engine/engine.h"
#include "plan/lengths.h"
#include "run/predict/recorded.h"

enum { MOST_WORDS = 3 };
struct row {
    const char *layout;
    int32_t devices;
    const char *word[MOST_WORDS]; /* "key=value" */
};
#define PLAIN(layout, devices)                                               \
    {                                                                        \
        layout, devices,                                                     \
        {                                                                    \
            NULL                                                             \
        }                                                                    \
    }
static const struct row layouts[] = {
    PLAIN("dp1", 1),       PLAIN("dp2", 2),        PLAIN("tp2", 2),
    PLAIN("pp2", 2),       PLAIN("dp4", 4),        PLAIN("dp2tp2", 4),
    PLAIN("dp2pp2", 4),    PLAIN("tp4", 4),        PLAIN("dp2pp2,zero=2", 4),
    PLAIN("dp2tp2pp2", 8), PLAIN("dp4tp2pp2", 16), PLAIN("dp4tp4pp2", 32)};

/* In turn: the second of two is said to be so many times as fast. */
#define WHOLE "train.as_completed=false"
#define EARLY "train.as_completed=true"
static const struct row completed[] = {{"disaggregated", 4, {WHOLE}},
                                       {"disaggregated", 4, {EARLY}},
                                       {"disaggregated", 8, {WHOLE}},
                                       {"disaggregated", 8, {EARLY}}};

/* With a place per device, so that no task may choose another. */
#define APART "runtime.place=device", "numerics.gradient_groups=16"
static const struct row speeds[] = {
    {"dp2", 2, {APART}},
    {"dp2,shares=2:1", 2, {APART}},
    {"dp4", 4, {APART}},
    {"dp4,shares=2:2:1:1", 4, {APART}},
    {"dp2tp2,zero=1", 4, {APART}},
    {"dp2tp2,zero=1,shares=2:1", 4, {APART}},
    {"dp8", 8, {APART}},
    {"dp8,shares=2:2:2:2:1:1:1:1", 8, {APART}}};

static const struct group {
    const char *name;
    const struct row *row;
    size_t n;
    int32_t iterations;
    const char *lengths; /* as weft_lengths_read() */
    bool pairs;
    double slow; /* what tasks take on the second half of the devices */
} groups[] = {
    {"--layouts", layouts, WEFT_COUNT(layouts), 1, NULL, false, 1},
    {"--completed", completed, WEFT_COUNT(completed), 2, "lognormal:10:0.8",
     true, 1},
    {"--speeds", speeds, WEFT_COUNT(speeds), 1, "fixed:12", true, 2}};

/* Tasks take this much at least: to wake up and to sleep takes a tenth of a
 * millisecond. */
static const double least_s = 2e-3;

/* ---- What tasks take ---------------------------------------------------- */

static struct {
    int32_t n_devices;
    bool apart; /* each device has a place */
    double slow;
} now; /* the row */

static double seconds(void *ctx, const struct weft_recording *r, int64_t task,
                      int32_t device)
{
    const struct weft_rec_task *t = &r->task[task];
    (void) ctx;
    if (t->kind != WEFT_REC_TASK)
        return 0;
    if (device < 0) /* it runs on any of its place */
        device = now.apart ? t->place : 0;
    bool second = device >= (now.n_devices + 1) / 2;
    return (second ? now.slow : 1)
         * (least_s + 1e-9 * (double) t->work.flop
            + 1e-8 * (double) t->work.bytes);
}

static void message(void *ctx, const struct weft_recording *r, int64_t task,
                    struct weft_engine_message *out)
{
    (void) ctx;
    (void) r;
    (void) task;
    *out = (struct weft_engine_message){.latency_s = 0};
}

/* ---- One beside the other ----------------------------------------------- */

static const struct weft_span *sorted;

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *) left, b = *(const int64_t *) right;
    double x = sorted[a].start_s, y = sorted[b].start_s;
    return x != y ? (x > y) - (x < y) : (a > b) - (a < b);
}

/* Tasks of a device in the order of their starts; returns how many. */
static int64_t list(const struct weft_recording *r, int32_t device,
                    const struct weft_span *span, int64_t *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++)
        if (r->task[i].device == device)
            out[n++] = i;
    sorted = span;
    qsort(out, (size_t) n, sizeof *out, compare);
    return n;
}

/* The share of neighbours on a device that are neighbours in both. */
static double same_order(const struct weft_recording *r, int32_t n_devices,
                         const struct weft_span *a, const struct weft_span *b)
{
    size_t n = (size_t) r->n_tasks;
    int64_t *x = weft_alloc(n, sizeof *x), *y = weft_alloc(n, sizeof *y);
    int64_t *after = weft_alloc(n, sizeof *after), same = 0, all = 0;
    for (int32_t d = 0; d < n_devices; d++) {
        int64_t k = list(r, d, a, x);
        list(r, d, b, y);
        for (int64_t i = 0; i + 1 < k; i++)
            after[x[i]] = x[i + 1];
        for (int64_t i = 0; i + 1 < k; i++, all++)
            same += after[y[i]] == y[i + 1];
    }
    weft_free(x);
    weft_free(y);
    weft_free(after);
    return all > 0 ? (double) same / (double) all : 1;
}

/* Of a task that was executed. */
static double took(void *ctx, const struct weft_recording *r, int64_t task,
                   int32_t device)
{
    const struct weft_span *span = ctx;
    (void) r;
    return device < 0 ? 0 : span[task].end_s - span[task].start_s;
}

/* executed: tasks take as long as they did; NULL: as planned. */
static double simulate(const struct weft_recording *r, int32_t n_devices,
                       struct weft_span *executed, struct weft_span *span)
{
    int32_t *place = weft_alloc((size_t) n_devices, sizeof *place), device;
    int32_t n_places = now.apart ? n_devices : 1;
    for (int32_t d = 0; d < n_devices; d++)
        place[d] = now.apart ? d : 0;
    const struct weft_engine_job job = {.n_devices = n_devices,
                                        .n_places = n_places,
                                        .places_per_rank = n_places,
                                        .place_of = place,
                                        .ctx = executed,
                                        .seconds = executed ? took : seconds,
                                        .message = message};
    struct weft_engine *e;
    CHECK(weft_engine_create(&job, r, &e, &err));
    CHECK(weft_engine_run(e, &err));
    for (int64_t i = 0; i < r->n_tasks; i++)
        weft_engine_span(e, i, &span[i], &device);
    double s = weft_engine_now_s(e);
    weft_engine_free(e);
    weft_free(place);
    return s;
}

/* Lengths of responses in all iterations; NULL: as long as can be. */
static int32_t *draw(const struct group *g, const struct weft_trainer *t)
{
    struct weft_lengths lengths;
    int64_t n = 0;
    for (int32_t f = 0; f < t->flow.n_fields; f++)
        if (weft_flow_origin(&t->flow, f) == f)
            n += weft_run_samples_at(&t->config, &t->flow, f);
    if (!g->lengths)
        return NULL;
    int32_t *out = weft_alloc((size_t) (n * g->iterations), sizeof *out);
    CHECK(weft_lengths_read(g->lengths, &lengths, &err));
    for (int64_t i = 0; i < n * g->iterations; i++)
        out[i] = weft_lengths_draw(&lengths, t->config.seed,
                                   (int32_t) (i / n), i % n,
                                   t->config.rollout.max_new_tokens);
    weft_lengths_release(&lengths);
    return out;
}

static void record(const char *file, int n, const char *const *word,
                   const struct group *g, const struct row *row,
                   struct weft_recording *out)
{
    const char *all[24];
    char layout[64];
    int n_all = 0;
    struct weft_config config;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    snprintf(layout, sizeof layout, "layout=%s", row->layout);
    all[n_all++] = layout;
    for (int i = 0; i < MOST_WORDS && row->word[i]; i++)
        all[n_all++] = row->word[i];
    for (int i = 0; i < n; i++)
        all[n_all++] = word[i];
    CHECK(weft_run_config_read(file, n_all, all, &config, &err));
    now.apart = config.runtime.place == WEFT_PLACE_DEVICE;
    const struct weft_g_job job = {.n_ranks = 1,
                                   .n_devices = row->devices,
                                   .place_per_device = now.apart};
    CHECK(weft_trainer_describe(&config, &job, &plan, &t, &err));
    weft_recording_init(out);
    int32_t *length = draw(g, t);
    const struct weft_recorded how = {.rank = -1,
                                      .iterations = g->iterations,
                                      .n_total = length,
                                      .responses = length != NULL};
    t->n_iterations = g->iterations;
    CHECK(weft_run_record(t, &how, out, &err));
    weft_free(length);
    plan = t->plan;
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
}

/* What the device with the most work takes for it: no order takes less. */
static double fullest(const struct weft_recording *r)
{
    double most = 0;
    for (int32_t d = 0; d < now.n_devices; d++) {
        double s = 0;
        for (int64_t i = 0; i < r->n_tasks; i++)
            if (r->task[i].device == d)
                s += seconds(NULL, r, i, d);
        most = fmax(most, s);
    }
    return most;
}

/* Plays and executes a row; returns the seconds of both, and the bound. */
static void compare_row(const char *file, int n, const char *const *word,
                        const struct group *g, const struct row *row,
                        double *planned_out, double *executed_out,
                        double *bound_out)
{
    struct weft_recording r;
    char name[80];
    now.n_devices = row->devices;
    now.slow = g->slow;
    record(file, n, word, g, row, &r);
    size_t n_tasks = (size_t) r.n_tasks;
    struct weft_span *a = weft_alloc(n_tasks, sizeof *a);
    struct weft_span *b = weft_alloc(n_tasks, sizeof *b);
    double planned = simulate(&r, row->devices, NULL, a);
    double executed = execute(&r, row->devices, now.apart, seconds, NULL, b);
    double bound = fullest(&r);
    double order = same_order(&r, row->devices, a, b);
    double again = simulate(&r, row->devices, b, a);
    snprintf(name, sizeof name, "%s%s%s", row->layout,
             row->word[0] ? " " : "", row->word[0] ? row->word[0] : "");
    printf("%-38s %7d %7lld %10.3f %10.3f %6.1f%% %10.3f %6.1f%% %5.1f%%\n",
           name, (int) row->devices, (long long) r.n_tasks, planned, executed,
           100 * (planned / executed - 1), again,
           100 * (again / executed - 1), 100 * order);
    fflush(stdout);
    weft_free(a);
    weft_free(b);
    weft_recording_release(&r);
    *planned_out = planned;
    *executed_out = executed;
    *bound_out = bound;
}

int main(int argc, char **argv)
{
    const struct group *g = &groups[0];
    for (size_t i = 0; argc > 1 && i < WEFT_COUNT(groups); i++)
        if (strcmp(argv[1], groups[i].name) == 0) {
            g = &groups[i];
            argv++;
            argc--;
            break;
        }
    if (argc < 2 || argc > 16 || argv[1][0] == '-') {
        fprintf(stderr, "usage: emulate [--layouts | --completed | --speeds] "
                        "CONFIG.yaml [key=value ...]\n");
        return 2;
    }
    printf("%-38s %7s %7s %10s %10s %7s %10s %7s %6s\n", "layout", "devices",
           "tasks", "planned s", "executed s", "error", "as took s", "error",
           "order");
    double planned[2], executed[2], bound, largest = 0;
    int32_t n_near = 0;
    for (size_t i = 0; i < g->n; i++) {
        compare_row(argv[1], argc - 2, (const char *const *) argv + 2, g,
                    &g->row[i], &planned[i % 2], &executed[i % 2], &bound);
        double error = 100 * fabs(planned[i % 2] / executed[i % 2] - 1);
        n_near += error <= 5;
        largest = fmax(largest, error);
        if (g->pairs && i % 2 == 1)
            printf("  %.3f times as fast as planned, %.3f as executed; no "
                   "order takes less than %.3f s, what the fullest device "
                   "has to do\n",
                   planned[0] / planned[1], executed[0] / executed[1], bound);
    }
    printf("%d of %d within 5 %% as planned, the largest error is %.1f %%\n",
           (int) n_near, (int) g->n, largest);
    return 0;
}
