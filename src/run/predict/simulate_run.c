/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/simulate_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

/* ---- Lengths ------------------------------------------------------------ */

/* Texts may hold zero characters. */
static int read_line(const char *text, size_t size, const char *path,
                     size_t line, size_t n, int32_t *length, bool *known,
                     struct weft_err *err)
{
    json_t *row = NULL;
    int64_t index = 0, tokens = 0;
    int rc = weft_json_parse_texts(text, size, path, line, &row, err);
    if (!rc)
        rc = weft_json_int(row, path, "index", 0, INT32_MAX, &index, err);
    if (!rc)
        rc = weft_json_int(row, path, "n_tokens", 0, INT32_MAX, &tokens, err);
    /* longer ones than the configuration allows now end at its limit */
    if (!rc && (size_t) index < n && tokens > 0) {
        length[index] = weft_min32(length[index], (int32_t) tokens);
        known[index] = true;
    }
    json_decref(row);
    return rc;
}

/* Gives the others the lengths of those that are known, one after the other. */
static int32_t spread(size_t n, int32_t *length, const bool *known)
{
    int32_t n_known = 0;
    for (size_t k = 0; k < n; k++)
        n_known += known[k];
    for (size_t k = 0, like = n; k < n && n_known > 0; k++) {
        if (known[k])
            continue;
        do
            like = like + 1 < n ? like + 1 : 0;
        while (!known[like]);
        length[k] = weft_min32(length[k], length[like]);
    }
    return n_known;
}

int weft_simulate_lengths(const char *run_dir, int32_t iteration, size_t n,
                          int32_t *length_inout, int32_t *n_known_out,
                          struct weft_err *err)
{
    char *path = weft_samples_path(run_dir, iteration + 1), *text = NULL;
    bool *known = weft_alloc(n + 1, sizeof *known);
    size_t size = 0;
    int rc = path && known ? weft_file_read(path, 0, &text, &size, err)
                           : weft_err_nomem(err, "a path", strlen(run_dir));
    const char *line = text, *end = text + size;
    size_t number = 0;
    while (!rc && line < end) {
        const char *next = memchr(line, '\n', (size_t) (end - line));
        next = next ? next : end;
        rc = read_line(line, (size_t) (next - line), path, ++number, n,
                       length_inout, known, err);
        line = next + 1;
    }
    if (!rc)
        *n_known_out = spread(n, length_inout, known);
    weft_free(known);
    weft_free(text);
    weft_free(path);
    return rc;
}

/* ---- Times -------------------------------------------------------------- */

static int read_metrics(const char *run_dir, struct weft_metrics_table *out,
                        struct weft_err *err)
{
    char *path = weft_path_join(run_dir, "metrics.jsonl");
    int rc = path ? weft_metrics_read(path, out, err)
                  : weft_err_nomem(err, "a path", strlen(run_dir));
    weft_free(path);
    return rc;
}

int weft_simulate_finished(const char *run_dir, int32_t *out,
                           struct weft_err *err)
{
    struct weft_metrics_table table;
    int rc = read_metrics(run_dir, &table, err);
    if (rc)
        return rc;
    *out = (int32_t) table.n_rows;
    weft_metrics_table_clear(&table);
    return 0;
}

struct weft_iteration_times weft_simulate_times(const struct weft_played *p,
                                                int32_t iteration)
{
    const struct weft_played_call *call = p->call
                                        + iteration * WEFT_MAX_CALLS;
    const struct weft_span no_rewards = {0, 0};
    struct weft_call_time time[WEFT_MAX_CALLS] = {{0}};
    struct weft_iteration_times out;
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        if (call[c].span.end_s > 0)
            time[c] = (struct weft_call_time){.n_tasks = 1,
                                              .busy_s = call[c].ran_s,
                                              .waited_s = call[c].waited_s,
                                              .first_s = call[c].span.start_s,
                                              .last_s = call[c].span.end_s};
    weft_iteration_times_get(p->flow, time, &no_rewards, &out);
    return out;
}

/* The mean of the last n numbers; NaN: there is no such column. */
static double last_mean(const struct weft_metrics_table *table,
                        const char *tag, int32_t n, bool inverse)
{
    const double *x = weft_metrics_column(table, tag);
    double sum = x ? 0 : NAN;
    for (int32_t i = 0; x && i < n; i++) {
        double value = x[table->n_rows - 1 - (size_t) i];
        sum += (inverse ? 1 / value : value) / n;
    }
    return sum;
}

static void add_line(struct weft_string *out, const char *name,
                     double predicted, double measured)
{
    if (isfinite(measured) && measured > 0 && predicted > 0)
        weft_string_addf(out, "%-24s  %11.4f  %11.4f  %7.1f %%\n", name,
                         predicted, measured,
                         100 * (predicted / measured - 1));
}

static double mean_of(const struct weft_played *p, enum weft_measured of)
{
    double sum = 0;
    for (int32_t i = 1; i < p->n; i++) {
        struct weft_iteration_times s = weft_simulate_times(p, i);
        sum += weft_iteration_time(&s, of) / (p->n - 1);
    }
    return sum;
}

/* What rules and programs take is not known, and belongs to the same time. */
static bool all_are_models(const struct weft_config *c)
{
    int32_t n = 0;
    while (n < c->n_rewards && c->reward[n].type == WEFT_REWARD_MODEL)
        n++;
    return n == c->n_rewards;
}

bool weft_simulate_predicts(const struct weft_trainer *t,
                            const struct weft_metric *m)
{
    return m->of >= WEFT_OF_GENERATION
        && (m->of != WEFT_OF_SCORING || all_are_models(&t->config))
        && (!m->when || m->when(&t->settings));
}

int weft_simulate_beside(const struct weft_trainer *t,
                         const struct weft_played *played,
                         const char *run_dir, struct weft_string *out,
                         struct weft_err *err)
{
    struct weft_metrics_table table;
    int32_t n = played->n - 1;
    int rc = read_metrics(run_dir, &table, err);
    if (rc)
        return rc;
    weft_string_addf(out,
                     "\nmeans of the last %d iterations:\n%-24s  %11s  %11s  "
                     "%9s\n",
                     (int) n, "metric", "predicted s", "measured s", "error");
    const struct weft_metric *const *list =
        weft_algorithm_of(&t->config)->told->metrics;
    for (; *list; list++)
        for (const struct weft_metric *m = *list; m->tag; m++)
            if (weft_simulate_predicts(t, m))
                add_line(out, m->tag, mean_of(played, m->of),
                         last_mean(&table, m->tag, n, false));
    struct weft_iteration_times times;
    double both = 0, waited = 0;
    for (int32_t i = 1; i < played->n; i++) {
        times = weft_simulate_times(played, i);
        both += times.gen_infer / n;
        waited += times.waited / n / played->job->n_devices;
    }
    add_line(out, "timing_s/gen_infer", both,
             last_mean(&table, "timing_s/gen_infer", n, false));
    add_line(out, "timing_s/moves_exposed", waited,
             last_mean(&table, "timing_s/moves_exposed", n, false));
    add_line(out, "from end to end", played->steady_s,
             last_mean(&table, "perf/steps_per_s", n, true));
    weft_metrics_table_clear(&table);
    return weft_string_check(out, "a table", err);
}
