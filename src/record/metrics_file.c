/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl: appends lines, reads columns. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "record/lines.h"
#include "record/metrics.h"
#include "record/tensorboard.h"

enum { SYNC_EVERY_S = 1 };

struct weft_metrics_writer {
    struct weft_line_file file;
    bool trl;
    double synced_s;
    struct weft_tensorboard *tensorboard;
};

/* ---- Opening ---------------------------------------------------------- */

static int open_tensorboard(struct weft_metrics_writer *w,
                            const char *run_dir, int64_t n_iterations,
                            struct weft_err *err)
{
    char *dir = weft_path_join(run_dir, "tensorboard");
    if (!dir)
        return weft_err_nomem(err, "a path", strlen(run_dir));
    int rc = weft_tensorboard_open(dir, n_iterations, &w->tensorboard, err);
    weft_free(dir);
    return rc;
}

int weft_metrics_open(const char *run_dir, int64_t n_iterations,
                      bool tensorboard, const char *names,
                      struct weft_metrics_writer **out, struct weft_err *err)
{
    struct weft_metrics_writer *w = weft_alloc(1, sizeof *w);
    if (!w)
        return weft_err_nomem(err, "metrics", sizeof *w);
    w->trl = names && strcmp(names, "trl") == 0;
    int rc = weft_line_file_open(run_dir, "metrics.jsonl", n_iterations,
                                 &w->file, err);
    if (!rc && tensorboard)
        rc = open_tensorboard(w, run_dir, n_iterations, err);
    if (rc)
        weft_metrics_writer_close(w);
    else
        *out = w;
    return rc;
}

/* ---- Writing ---------------------------------------------------------- */

static void add_pair(struct weft_string *t, const char *tag, double value)
{
    weft_string_add(t, ", ");
    weft_string_add_json(t, tag);
    weft_string_add(t, ": ");
    weft_string_add_number(t, value);
}

static void add_record(struct weft_string *t, bool trl, int64_t iteration,
                       const struct weft_metrics *metrics)
{
    char name[WEFT_METRICS_ALIASES][WEFT_METRICS_TAG];
    double value;
    weft_string_addf(t, "{\"iteration\": %lld", (long long) iteration);
    for (size_t i = 0; i < weft_metrics_n(metrics); i++) {
        const char *tag = weft_metrics_at(metrics, i, &value);
        add_pair(t, tag, value);
        size_t n = trl ? weft_metrics_trl_names(tag, name) : 0;
        for (size_t k = 0; k < n; k++)
            add_pair(t, name[k], value);
    }
    weft_string_add(t, "}\n");
}

int weft_metrics_write(struct weft_metrics_writer *writer, int64_t iteration,
                       const struct weft_metrics *metrics,
                       struct weft_err *err)
{
    struct weft_string line = {0};
    add_record(&line, writer->trl, iteration, metrics);
    line.failed = line.failed || weft_metrics_failed(metrics);
    int rc = weft_string_check(&line, "metrics", err);
    if (!rc)
        rc = weft_line_file_add(&writer->file, &line, err);
    weft_string_release(&line);
    if (!rc && writer->tensorboard)
        rc = weft_tensorboard_write(writer->tensorboard, iteration,
                                    writer->trl, metrics, err);
    if (!rc && weft_clock_s() - writer->synced_s >= SYNC_EVERY_S)
        rc = weft_metrics_sync(writer, err);
    return rc;
}

int weft_metrics_sync(struct weft_metrics_writer *writer,
                      struct weft_err *err)
{
    writer->synced_s = weft_clock_s();
    if (fdatasync(writer->file.fd) != 0 && errno != EINVAL)
        return weft_err_sys(err, "write", writer->file.path);
    return 0;
}

void weft_metrics_writer_close(struct weft_metrics_writer *writer)
{
    if (!writer)
        return;
    weft_tensorboard_close(writer->tensorboard);
    if (writer->file.fd >= 0)
        (void) fdatasync(writer->file.fd);
    weft_line_file_close(&writer->file);
    weft_free(writer);
}

/* ---- Reading ---------------------------------------------------------- */

/* Column of a tag, made where it is missing; rows 0..row-1 are NaN. */
static double *column_of(struct weft_metrics_table *t, const char *tag,
                         size_t room)
{
    for (size_t k = 0; k < t->n_tags; k++)
        if (strcmp(t->tag[k], tag) == 0)
            return t->value + k * room;
    double *value = weft_realloc(t->value, (t->n_tags + 1) * room,
                                 sizeof *value);
    if (value)
        t->value = value;
    char **tags = weft_realloc(t->tag, t->n_tags + 1, sizeof *tags);
    if (tags)
        t->tag = tags;
    if (!value || !tags || !(tags[t->n_tags] = weft_strdup(tag)))
        return NULL;
    double *column = value + t->n_tags++ * room;
    for (size_t i = 0; i < room; i++)
        column[i] = NAN;
    return column;
}

static int take_record(struct weft_metrics_table *t, json_t *o,
                       int64_t iteration, size_t room)
{
    const char *tag;
    json_t *value;
    t->iteration[t->n_rows] = iteration;
    json_object_foreach(o, tag, value)
    {
        if (strcmp(tag, "iteration") == 0 || !json_is_number(value))
            continue;
        double *column = column_of(t, tag, room);
        if (!column)
            return WEFT_ENOMEM;
        column[t->n_rows] = json_number_value(value);
    }
    t->n_rows++;
    return 0;
}

static int read_lines(const char *path, const char *text, size_t n_text,
                      size_t room, struct weft_metrics_table *t,
                      struct weft_err *err)
{
    struct weft_lines l = {path, text, text + n_text, 0, false};
    struct weft_line r;
    int rc;
    while (!(rc = weft_lines_next(&l, &r, err)) && r.o) {
        if (take_record(t, r.o, r.iteration, room) != 0)
            rc = weft_err_nomem(err, path, n_text);
        json_decref(r.o);
        if (rc)
            break;
    }
    return rc;
}

int weft_metrics_read(const char *path, struct weft_metrics_table *out,
                      struct weft_err *err)
{
    struct weft_metrics_table t = {0};
    char *text;
    size_t n, room = 1;
    int rc = weft_file_read(path, 0, &text, &n, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        room += text[i] == '\n';
    t.iteration = weft_alloc(room, sizeof *t.iteration);
    rc = t.iteration ? read_lines(path, text, n, room, &t, err)
                     : weft_err_nomem(err, path, room * 8);
    for (size_t k = 1; k < t.n_tags; k++) /* move columns together */
        memmove(t.value + k * t.n_rows, t.value + k * room,
                t.n_rows * sizeof *t.value);
    weft_free(text);
    if (rc)
        weft_metrics_table_clear(&t);
    else
        *out = t;
    return rc;
}

void weft_metrics_table_clear(struct weft_metrics_table *table)
{
    for (size_t k = 0; k < table->n_tags; k++)
        weft_free(table->tag[k]);
    weft_free(table->tag);
    weft_free(table->iteration);
    weft_free(table->value);
    *table = (struct weft_metrics_table){0};
}

const double *weft_metrics_column(const struct weft_metrics_table *table,
                                  const char *tag)
{
    for (size_t k = 0; k < table->n_tags; k++)
        if (strcmp(table->tag[k], tag) == 0)
            return table->value + k * table->n_rows;
    return NULL;
}
