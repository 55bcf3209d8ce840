/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: an ordered list of tag and number per iteration, appended to
 * <run>/metrics.jsonl as one JSON object per line with "iteration" first, and
 * to a TensorBoard event file where asked. Tags are verl's; the name set
 * "trl" adds TRL's names for the same numbers.
 */
#ifndef WEFT_RUN_METRICS_H
#define WEFT_RUN_METRICS_H

#include "base/err.h"

/* ---- A record --------------------------------------------------------- */

struct weft_metrics;

int weft_metrics_create(struct weft_metrics **out, struct weft_err *err);
void weft_metrics_free(struct weft_metrics *metrics); /* NULL is allowed */
/* Empties it. */
void weft_metrics_clear(struct weft_metrics *metrics);

/* Sets or replaces; the order is that of first setting. Memory that runs out
 * is remembered, and weft_metrics_write() then fails. */
void weft_metrics_set(struct weft_metrics *metrics, const char *tag,
                      double value);
/* The same with the tag in printf format. */
void weft_metrics_setf(struct weft_metrics *metrics, double value,
                       const char *fmt, ...) WEFT_PRINTF(3, 4);
/* Sets <tag>/mean, /max, /min of n numbers; nothing when n is 0. */
void weft_metrics_set_spread(struct weft_metrics *metrics, const char *tag,
                             size_t n, const double *value);

bool weft_metrics_get(const struct weft_metrics *metrics, const char *tag,
                      double *out);
/* Memory ran out since the last clear. */
bool weft_metrics_failed(const struct weft_metrics *metrics);
size_t weft_metrics_n(const struct weft_metrics *metrics);
/* The i-th; tag borrowed until the next change. */
const char *weft_metrics_at(const struct weft_metrics *metrics, size_t i,
                            double *value_out);

/* TRL's names for a verl tag, at most two; returns how many. */
enum { WEFT_METRICS_TAG = 128, WEFT_METRICS_ALIASES = 2 };
size_t weft_metrics_trl_names(
    const char *tag, char out[WEFT_METRICS_ALIASES][WEFT_METRICS_TAG]);

/* Rank 0's record to all ranks. Collective. Errors: no memory. */
int weft_metrics_share(struct weft_metrics *metrics, struct weft_err *err);

/* ---- The files of a run ----------------------------------------------- */

struct weft_metrics_writer;

/* Opens <run_dir>/metrics.jsonl. n_iterations: those the run already has;
 * lines beyond them (of a process that died before its next checkpoint) are
 * dropped, as is a torn last line. names: "verl", or "trl" for TRL's beside
 * them. Errors: a folder that cannot be written, a line that is no JSON
 * object with "iteration" (other than a torn last one), named by its
 * number. */
int weft_metrics_open(const char *run_dir, int64_t n_iterations,
                      bool tensorboard, const char *names,
                      struct weft_metrics_writer **out, struct weft_err *err);
/* Appends iteration's record (NaN and infinity: null). The line is whole in
 * the file's cache when this returns. */
int weft_metrics_write(struct weft_metrics_writer *writer, int64_t iteration,
                       const struct weft_metrics *metrics,
                       struct weft_err *err);
/* Brings what was written to the disk; before a checkpoint. */
int weft_metrics_sync(struct weft_metrics_writer *writer,
                      struct weft_err *err);
void weft_metrics_writer_close(struct weft_metrics_writer *writer);

/* ---- Reading them back ------------------------------------------------ */

/* A whole metrics.jsonl by columns. */
struct weft_metrics_table {
    size_t n_rows, n_tags;
    char **tag;         /* (n_tags) in order of first appearance */
    int64_t *iteration; /* (n_rows) */
    double *value;      /* (n_tags, n_rows) NaN: not in that row */
};

/* A torn last line is left out. Errors: no file, a damaged line. Clear with
 * weft_metrics_table_clear(). */
int weft_metrics_read(const char *path, struct weft_metrics_table *out,
                      struct weft_err *err);
void weft_metrics_table_clear(struct weft_metrics_table *table);
/* Column of a tag (n_rows numbers), or NULL. */
const double *weft_metrics_column(const struct weft_metrics_table *table,
                                  const char *tag);

#endif
