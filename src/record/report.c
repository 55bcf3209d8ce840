/* SPDX-License-Identifier: Apache-2.0 */
#include "record/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "record/chart.h"
#include "record/metrics.h"
#include "record/progress.h"
#include "record/report_samples.h"
#include "record/report_style.h"
#include "record/timeline.h"
#include "record/told.h"

struct page {
    const char *run_dir;
    struct weft_metrics_table table;
    struct weft_string out;
};

/* ---- Numbers of a column ---------------------------------------------- */

static const double *column(const struct page *p, const char *tag)
{
    return weft_metrics_column(&p->table, tag);
}

static double first_of(const double *v, size_t n)
{
    for (size_t i = 0; v && i < n; i++)
        if (isfinite(v[i]))
            return v[i];
    return NAN;
}

static double last_of(const double *v, size_t n)
{
    for (size_t i = n; v && i > 0; i--)
        if (isfinite(v[i - 1]))
            return v[i - 1];
    return NAN;
}

struct range {
    double mean, sum, min, max;
    size_t n;
};

static struct range range_of(const double *v, size_t n)
{
    struct range r = {NAN, 0, INFINITY, -INFINITY, 0};
    for (size_t i = 0; v && i < n; i++) {
        if (!isfinite(v[i]))
            continue;
        r.sum += v[i];
        r.min = fmin(r.min, v[i]);
        r.max = fmax(r.max, v[i]);
        r.n++;
    }
    if (r.n > 0)
        r.mean = r.sum / (double) r.n;
    return r;
}

/* ---- Head ------------------------------------------------------------- */

static void add_tile(struct page *p, const char *value, const char *what)
{
    weft_string_add(&p->out, "<div class=\"tile\"><b>");
    weft_string_add_html(&p->out, value);
    weft_string_add(&p->out, "</b><span>");
    weft_string_add_html(&p->out, what);
    weft_string_add(&p->out, "</span></div>\n");
}

/* Adds "first -> last" of a metric, if the run has it. */
static void add_change(struct page *p, const char *tag, const char *what)
{
    const double *v = column(p, tag);
    char text[64];
    if (!v || !isfinite(first_of(v, p->table.n_rows)))
        return;
    snprintf(text, sizeof text, "%.3g \xe2\x86\x92 %.3g",
             first_of(v, p->table.n_rows), last_of(v, p->table.n_rows));
    add_tile(p, text, what);
}

/* The run's time in iterations. (Times of batches overlap, so they cannot be
 * added.) */
static double seconds_of(struct page *p)
{
    const double *rate = column(p, "perf/steps_per_s");
    double sum = 0;
    for (size_t i = 0; rate && i < p->table.n_rows; i++)
        sum += rate[i] > 0 ? 1 / rate[i] : 0;
    return sum;
}

static void add_tiles(struct page *p)
{
    size_t n = p->table.n_rows;
    double seconds = seconds_of(p);
    struct range tokens = range_of(column(p, "perf/total_num_tokens"), n);
    char text[64], took[24];
    weft_string_add(&p->out, "<div class=\"tiles\">\n");
    snprintf(text, sizeof text, "%lld",
             n > 0 ? (long long) p->table.iteration[n - 1] : 0LL);
    add_tile(p, text, "iterations");
    const struct weft_watched *w;
    for (int i = 0; (w = weft_told_watched(i)) != NULL; i++)
        if (w->tile)
            add_change(p, w->tag, w->tile);
    if (seconds > 0)
        add_tile(p, weft_progress_duration(seconds, took), "in iterations");
    if (tokens.n > 0 && seconds > 0) {
        snprintf(text, sizeof text, "%.0f", tokens.sum / seconds);
        add_tile(p, text, "tokens per second");
    }
    weft_string_add(&p->out, "</div>\n");
}

static void add_head(struct page *p)
{
    char *name = weft_path_name(p->run_dir);
    weft_string_add(
        &p->out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
                 "\n<meta name=\"viewport\" content=\"width=device-width\">\n"
                 "<title>");
    weft_string_add_html(&p->out, name ? name : "run");
    weft_string_add(&p->out, " - weft</title>\n");
    weft_string_add(&p->out, style);
    weft_string_add(&p->out, "<h1>");
    weft_string_add_html(&p->out, name ? name : "run");
    weft_string_add(&p->out, "</h1>\n<p class=\"sub\">");
    weft_string_add_html(&p->out, p->run_dir);
    weft_string_addf(&p->out, " \xc2\xb7 weft %s</p>\n", weft_version());
    weft_free(name);
}

/* ---- Charts ----------------------------------------------------------- */

/* A line of a chart; low and high, the tags of its band, may be NULL. */
struct wanted {
    const char *label, *tag, *low, *high;
};

static void add_chart(struct page *p, const char *title, const char *unit,
                      bool stacked, const struct wanted *wanted)
{
    struct weft_chart c = {.title = title,
                           .unit = unit,
                           .n = p->table.n_rows,
                           .x = p->table.iteration,
                           .stacked = stacked};
    for (; wanted->tag && c.n_series < WEFT_CHART_SERIES; wanted++) {
        const double *y = column(p, wanted->tag);
        if (!y || range_of(y, c.n).n == 0)
            continue;
        c.series[c.n_series++] = (struct weft_chart_series){
            wanted->label, y, wanted->low ? column(p, wanted->low) : NULL,
            wanted->high ? column(p, wanted->high) : NULL};
    }
    if (c.n_series > 0)
        weft_chart_add(&c, &p->out);
}

#define LINE(label, tag)                                                     \
    {                                                                        \
        label, tag, NULL, NULL                                               \
    }
#define CHART(title, unit, ...)                                              \
    add_chart(p, title, unit, false,                                         \
              (const struct wanted[]){__VA_ARGS__, LINE(NULL, NULL)})

/* Adds the chart that begins with a line of a table; returns the line after
 * its last. */
static const struct weft_curve *add_curve(struct page *p,
                                          const struct weft_curve *first)
{
    struct wanted wanted[WEFT_CHART_SERIES + 1] = {{.tag = NULL}};
    char band[WEFT_CHART_SERIES][3][WEFT_METRICS_TAG];
    const struct weft_curve *c = first;
    int n = 0;
    for (; c->tag && strcmp(c->title, first->title) == 0
           && n < WEFT_CHART_SERIES;
         c++, n++) {
        static const char *const end[] = {"mean", "min", "max"};
        wanted[n] = (struct wanted){.label = c->label, .tag = c->tag};
        for (int k = 0; k < 3; k++)
            snprintf(band[n][k], sizeof band[n][k], "%s/%s", c->tag, end[k]);
        if (c->band)
            wanted[n] = (struct wanted){c->label, band[n][0], band[n][1],
                                        band[n][2]};
    }
    add_chart(p, first->title, first->unit, false, wanted);
    return c;
}

/* Whether one of the first lists has drawn the chart. */
static bool drawn(int lists, const struct weft_curve *c)
{
    for (int i = 0; i < lists; i++)
        for (const struct weft_curve *o = weft_told_curves(i); o->tag; o++)
            if (strcmp(o->tag, c->tag) == 0
                && strcmp(o->title, c->title) == 0)
                return true;
    return false;
}

static void add_curves(struct page *p)
{
    const struct weft_curve *c;
    weft_string_add(&p->out, "<h2>Learning</h2>\n<div class=\"charts\">\n");
    for (int i = 0; (c = weft_told_curves(i)) != NULL; i++)
        while (c->tag)
            c = drawn(i, c) ? c + 1 : add_curve(p, c);
    weft_string_add(&p->out, "</div>\n");
}

/* ---- Time ------------------------------------------------------------- */

static void add_offload(struct page *p)
{
    size_t n = p->table.n_rows;
    struct range took = range_of(column(p, "perf/offload_s"), n);
    struct range hidden = range_of(column(p, "perf/offload_hidden_ratio"), n);
    if (took.n > 0 && hidden.n > 0)
        weft_string_addf(
            &p->out,
            "<p class=\"sub\">Copying offloaded weights back took "
            "devices %.3g s of an iteration; %.0f%% of it ran "
            "beside other calls.</p>\n",
            took.mean, 100 * hidden.mean);
}

#define SAVING "checkpoint", "timing_s/save_checkpoint"

/* Whether the run has the call: what never took time is one of another
 * algorithm. */
static bool takes_time(const struct page *p, const char *tag)
{
    return range_of(column(p, tag), p->table.n_rows).max > 0;
}

static void add_calls(struct page *p)
{
    struct wanted wanted[WEFT_CHART_SERIES + 1] = {{.tag = NULL}};
    const struct weft_curve *c, *first = NULL;
    int n = 0;
    for (int i = 0; (c = weft_told_times(i)) != NULL; i++)
        for (first = first ? first : c; c->tag && n + 1 < WEFT_CHART_SERIES;
             c++)
            if (takes_time(p, c->tag))
                wanted[n++] = (struct wanted){.label = c->label,
                                              .tag = c->tag};
    wanted[n] = (struct wanted){SAVING, NULL, NULL};
    if (first)
        add_chart(p, first->title, first->unit, true, wanted);
}

/* The mean of what was predicted, and by how much it is off. */
static void add_predicted(struct page *p, const char *tag)
{
    char of[WEFT_METRICS_TAG];
    double sum = 0, beside = 0; /* of iterations that have both */
    snprintf(of, sizeof of, "perf/predicted_s/%s", strchr(tag, '/') + 1);
    const double *a = column(p, of), *b = column(p, tag);
    for (size_t i = 0; a && b && i < p->table.n_rows; i++)
        if (isfinite(a[i]) && isfinite(b[i])) {
            sum += a[i];
            beside += b[i];
        }
    if (beside > 0)
        weft_string_addf(
            &p->out, "<td class=\"n\">%.3f<td class=\"n\">%+.0f%%",
            range_of(a, p->table.n_rows).mean, 100 * (sum / beside - 1));
}

/* A row of the table of times, if the run has the call. */
static void add_row(struct page *p, const char *label, const char *tag,
                    double step)
{
    struct range r = range_of(column(p, tag), p->table.n_rows);
    double share = step > 0 ? 100 * r.mean / step : 0;
    if (!takes_time(p, tag))
        return;
    weft_string_addf(&p->out,
                     "<tr><td>%s<td class=\"n\">%.3f<td class=\"n\">"
                     "%.3f<td class=\"n\">%.3f<td class=\"n\">%.0f%%",
                     label, r.mean, r.min, r.max, share);
    add_predicted(p, tag);
    weft_string_add(&p->out, "</tr>\n");
}

static void add_times(struct page *p)
{
    size_t n = p->table.n_rows;
    struct range step = range_of(column(p, "timing_s/step"), n);
    weft_string_add(&p->out, "<h2>Time</h2>\n<div class=\"charts\">\n");
    add_calls(p);
    CHART("Throughput", "tokens per second and device",
          LINE("all", "perf/throughput"));
    CHART("Generation", "tokens per second",
          LINE("generated", "perf/generation_tokens_per_s"));
    CHART("Iteration", "seconds from a batch's first task to its last",
          LINE("iteration", "timing_s/step"),
          LINE("predicted", "perf/predicted_s/step"));
    CHART("Steps", "per second", LINE("iterations", "perf/steps_per_s"));
    CHART("Offloaded weights", "fraction of their copying that was hidden",
          LINE("hidden", "perf/offload_hidden_ratio"));
    weft_string_add(&p->out, "</div>\n");
    if (step.n == 0)
        return;
    weft_string_add(
        &p->out,
        "<div class=\"wide times\"><table><tr><th>call<th class=\"n\">"
        "mean s<th class=\"n\">least<th class=\"n\">most"
        "<th class=\"n\">of an iteration");
    if (column(p, "perf/predicted_s/step"))
        weft_string_add(&p->out, "<th>predicted s<th>error");
    weft_string_add(&p->out, "</tr>\n");
    const struct weft_curve *c;
    for (int i = 0; (c = weft_told_times(i)) != NULL; i++)
        for (; c->tag; c++)
            add_row(p, c->label, c->tag, step.mean);
    add_row(p, SAVING, step.mean);
    add_row(p, "iteration", "timing_s/step", step.mean);
    weft_string_add(
        &p->out, "</table></div>\n<p class=\"sub\">Calls run at once where "
                 "their data allow it, and a batch is generated while "
                 "the one before it trains.</p>\n");
    add_offload(p);
}

/* ---- The fused schedule ----------------------------------------------- */

/* Adds an SVG as an <img>, so that its styles do not affect the page. */
static void add_svg(struct page *p, size_t n, const char *text,
                    const char *says)
{
    static const char plain[] = " '(),-./:;=!*[]{}";
    weft_string_addf(&p->out,
                     "<p><img style=\"max-width:100%%\" alt=\"%s\" "
                     "src=\"data:image/svg+xml,",
                     says);
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')
            || (c >= 'A' && c <= 'Z') || (c && strchr(plain, c)))
            weft_string_add_n(&p->out, &c, 1);
        else
            weft_string_addf(&p->out, "%%%02X", (unsigned) (uint8_t) c);
    }
    weft_string_add(&p->out, "\"></p>\n");
}

static void add_picture(struct page *p, const char *file, const char *says)
{
    char *path = weft_path_join(p->run_dir, file), *text = NULL;
    size_t n = 0;
    if (path && weft_file_read(path, 0, &text, &n, NULL) == 0)
        add_svg(p, n, text, says);
    weft_free(text);
    weft_free(path);
}

static void add_planned(struct page *p, const char *what, const char *planned,
                        const char *measured)
{
    size_t n = p->table.n_rows;
    const double *a = column(p, planned), *b = column(p, measured);
    weft_string_addf(&p->out,
                     "<tr><td>%s<td class=\"n\">%.4g<td class=\"n\">%.4g",
                     what, last_of(a, n), last_of(b, n));
    weft_string_addf(&p->out,
                     "<td class=\"n\">%.4g<td class=\"n\">%.4g</tr>\n",
                     range_of(a, n).mean, range_of(b, n).mean);
}

/* Adds the schedules of a run with train.intra_stage_fusion. */
static void add_schedule(struct page *p)
{
    size_t n = p->table.n_rows;
    const double *kept = column(p, "schedule/in_order");
    if (range_of(kept, n).n == 0)
        return;
    weft_string_add(&p->out,
                    "<h2>Fused schedule</h2>\n<div class=\"charts\">");
    CHART("Makespan of the fused training", "seconds",
          LINE("planned", "schedule/planned_s"),
          LINE("measured", "schedule/measured_s"));
    CHART("Bubbles", "share of the devices' time",
          LINE("planned", "schedule/planned_bubble"),
          LINE("measured", "schedule/measured_bubble"));
    weft_string_add(&p->out,
                    "</div>\n<div class=\"wide times\"><table><tr><th>"
                    "<th class=\"n\">planned, last<th class=\"n\">measured"
                    "<th class=\"n\">planned, mean<th class=\"n\">measured"
                    "</tr>\n");
    add_planned(p, "makespan, s", "schedule/planned_s",
                "schedule/measured_s");
    add_planned(p, "bubbles", "schedule/planned_bubble",
                "schedule/measured_bubble");
    add_planned(p, "peak activation of a device, MiB",
                "schedule/planned_peak_mib", "schedule/measured_peak_mib");
    weft_string_addf(
        &p->out,
        "</table></div>\n<p class=\"sub\">Starts were off by %.3g "
        "s in the mean of the last iteration; devices kept the "
        "planned order in %.0f of %zu iterations.</p>\n",
        last_of(column(p, "schedule/start_error_s"), n),
        range_of(kept, n).sum, range_of(kept, n).n);
    add_picture(p, "schedule/planned.svg", "the planned schedule");
    add_picture(p, "schedule/measured.svg", "the schedule as it ran");
}

/* ---- Generation ------------------------------------------------------- */

/* Draws the newest iteration's that the run has kept; nothing: it has none. */
static int draw_generation(const char *run_dir, struct weft_string *svg,
                           struct weft_err *err)
{
    struct weft_timeline g = {.n_rows = 0};
    char *path = weft_path_join(run_dir, WEFT_TIMELINE_FILE);
    int rc = path ? 0 : weft_err_nomem(err, "a path", strlen(run_dir));
    if (!rc && weft_file_exists(path)) {
        rc = weft_timeline_read(path, &g, err);
        if (!rc)
            rc = weft_timeline_svg(&g, svg, err);
    }
    weft_timeline_release(&g);
    weft_free(path);
    return rc;
}

static int check_run(const char *run_dir, struct weft_err *err)
{
    char *metrics = weft_path_join(run_dir, "metrics.jsonl");
    int rc = !metrics ? weft_err_nomem(err, "a path", strlen(run_dir))
           : !weft_file_exists(metrics)
               ? weft_err_set(err, WEFT_ENOTFOUND,
                              "'%s' is no run directory: it has no "
                              "metrics.jsonl",
                              run_dir)
               : 0;
    weft_free(metrics);
    return rc;
}

static int add_generation(struct page *p, struct weft_err *err)
{
    struct weft_string svg = {0};
    int rc = draw_generation(p->run_dir, &svg, err);
    if (!rc && svg.n > 0) {
        weft_string_add(&p->out, "<h2>Generation</h2>\n");
        add_svg(p, svg.n, svg.data, "how samples were generated");
    }
    weft_string_release(&svg);
    return rc;
}

int weft_report_generation(const char *run_dir, const char *path,
                           struct weft_err *err)
{
    struct weft_string svg = {0};
    int rc = check_run(run_dir, err);
    if (!rc)
        rc = draw_generation(run_dir, &svg, err);
    if (!rc && svg.n == 0)
        rc = weft_err_set(err, WEFT_ENOTFOUND,
                          "'%s' has no " WEFT_TIMELINE_FILE ": runs keep it "
                          "of iterations with a checkpoint and of their last",
                          run_dir);
    if (!rc)
        rc = weft_file_write(path, svg.data, svg.n, err);
    weft_string_release(&svg);
    return rc;
}

/* ---- The rest --------------------------------------------------------- */

static void add_table(struct page *p)
{
    size_t n = p->table.n_rows;
    weft_string_add(
        &p->out, "<h2>All metrics</h2>\n<details><summary>first, last, mean,"
                 " least, most</summary>\n<div class=\"wide\"><table><tr>"
                 "<th>tag<th class=\"n\">first<th class=\"n\">last"
                 "<th class=\"n\">mean<th class=\"n\">least<th class=\"n\">"
                 "most</tr>\n");
    for (size_t k = 0; k < p->table.n_tags; k++) {
        const double *v = p->table.value + k * n;
        struct range r = range_of(v, n);
        if (r.n == 0)
            continue;
        weft_string_add(&p->out, "<tr><td>");
        weft_string_add_html(&p->out, p->table.tag[k]);
        weft_string_addf(&p->out,
                         "<td class=\"n\">%.5g<td class=\"n\">%.5g"
                         "<td class=\"n\">%.5g<td class=\"n\">%.5g"
                         "<td class=\"n\">%.5g</tr>\n",
                         first_of(v, n), last_of(v, n), r.mean, r.min, r.max);
    }
    weft_string_add(&p->out, "</table></div></details>\n");
}

static void add_config(struct page *p)
{
    char *path = weft_path_join(p->run_dir, "config.yaml"), *text = NULL;
    size_t n;
    if (path && weft_file_read(path, 0, &text, &n, NULL) == 0) {
        weft_string_add(&p->out, "<h2>Configuration</h2>\n<details open>"
                                 "<summary>config.yaml</summary><pre>");
        weft_string_add_html(&p->out, text);
        weft_string_add(&p->out, "</pre></details>\n");
        weft_free(text);
    }
    weft_free(path);
}

/* Adds links to the other files of the run directory. */
static void add_files(struct page *p)
{
    static const char *const file[] = {
        "metrics.jsonl", "config.yaml", "samples",  "checkpoints",
        "tensorboard",   "trace",       "schedule", WEFT_TIMELINE_FILE};
    weft_string_add(&p->out, "<h2>Files</h2>\n<ul>\n");
    for (size_t i = 0; i < WEFT_COUNT(file); i++) {
        char *path = weft_path_join(p->run_dir, file[i]);
        if (path && (weft_file_exists(path) || weft_dir_exists(path)))
            weft_string_addf(&p->out, "<li><a href=\"%s\">%s</a></li>\n",
                             file[i], file[i]);
        weft_free(path);
    }
    weft_string_add(&p->out, "</ul>\n");
}

static int compose(struct page *p, bool inside, struct weft_err *err)
{
    add_head(p);
    add_tiles(p);
    add_curves(p);
    add_times(p);
    int rc = add_generation(p, err);
    add_schedule(p);
    if (!rc)
        rc = weft_report_samples(p->run_dir, &p->table, &p->out, err);
    if (rc)
        return rc;
    add_config(p);
    add_table(p);
    if (inside)
        add_files(p);
    weft_string_add(&p->out, "</html>\n");
    return weft_string_check(&p->out, "the report", err);
}

int weft_report_write(const char *run_dir, const char *path, char **path_out,
                      struct weft_err *err)
{
    struct page p = {.run_dir = run_dir};
    char *metrics = weft_path_join(run_dir, "metrics.jsonl");
    char *out = path ? weft_strdup(path)
                     : weft_path_join(run_dir, "report.html");
    int rc = metrics && out ? check_run(run_dir, err)
                            : weft_err_nomem(err, "a path", strlen(run_dir));
    if (!rc)
        rc = weft_metrics_read(metrics, &p.table, err);
    if (!rc)
        rc = compose(&p, path == NULL, err);
    if (!rc)
        rc = weft_file_write(out, p.out.data, p.out.n, err);
    weft_metrics_table_clear(&p.table);
    weft_string_release(&p.out);
    weft_free(metrics);
    if (!rc && path_out)
        *path_out = out;
    else
        weft_free(out);
    return rc;
}
