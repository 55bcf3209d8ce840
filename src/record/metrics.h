/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: an ordered list of tags and numbers per iteration. It is appended
 * to <run>/metrics.jsonl as one JSON object per line, with "iteration" first,
 * and to a TensorBoard event file if the configuration asks for one. Tags are
 * verl's; the name set "trl" adds TRL's names for the same numbers.
 */
#ifndef WEFT_RECORD_METRICS_H
#define WEFT_RECORD_METRICS_H

#include "base/err.h"

/* ---- A record --------------------------------------------------------- */

struct weft_metrics;

int weft_metrics_create(struct weft_metrics **out, struct weft_err *err);
void weft_metrics_free(struct weft_metrics *metrics); /* NULL is allowed */
/* Removes all entries. */
void weft_metrics_clear(struct weft_metrics *metrics);

/* Adds or replaces an entry; entries are ordered by when they were first set.
 * If memory runs out, weft_metrics_write() fails later. */
void weft_metrics_set(struct weft_metrics *metrics, const char *tag,
                      double value);
/* The same with the tag in printf format. */
void weft_metrics_setf(struct weft_metrics *metrics, double value,
                       const char *fmt, ...) WEFT_PRINTF(3, 4);
/* Sets <tag>/mean, /max and /min of n numbers; does nothing when n is 0. */
void weft_metrics_set_spread(struct weft_metrics *metrics, const char *tag,
                             size_t n, const double *value);

bool weft_metrics_get(const struct weft_metrics *metrics, const char *tag,
                      double *out);
/* Whether memory ran out since the last weft_metrics_clear(). */
bool weft_metrics_failed(const struct weft_metrics *metrics);
size_t weft_metrics_n(const struct weft_metrics *metrics);
/* The i-th entry; its tag is borrowed until the next change. */
const char *weft_metrics_at(const struct weft_metrics *metrics, size_t i,
                            double *value_out);

/* TRL's names for a verl tag, at most two; returns how many. */
enum { WEFT_METRICS_TAG = 128, WEFT_METRICS_ALIASES = 2 };
size_t weft_metrics_trl_names(
    const char *tag, char out[WEFT_METRICS_ALIASES][WEFT_METRICS_TAG]);

/* Copies rank 0's record to all ranks. Collective. Errors: WEFT_ENOMEM. */
int weft_metrics_share(struct weft_metrics *metrics, struct weft_err *err);

/* ---- The files of a run ----------------------------------------------- */

struct weft_metrics_writer;

/* Opens <run_dir>/metrics.jsonl. n_iterations: how many the run has finished;
 * lines of later iterations, which a process wrote that died before its next
 * checkpoint, are removed, and so is an incomplete last line. names: "verl",
 * or "trl" to add TRL's names. Errors: a folder that cannot be written; a
 * complete line that is no JSON object with "iteration", named by its
 * number. */
int weft_metrics_open(const char *run_dir, int64_t n_iterations,
                      bool tensorboard, const char *names,
                      struct weft_metrics_writer **out, struct weft_err *err);
/* Appends the record of an iteration; NaN and infinity become null. On return
 * the whole line is in the operating system's cache. */
int weft_metrics_write(struct weft_metrics_writer *writer, int64_t iteration,
                       const struct weft_metrics *metrics,
                       struct weft_err *err);
/* Waits until all that was written is on the disk; call it before a
 * checkpoint. */
int weft_metrics_sync(struct weft_metrics_writer *writer,
                      struct weft_err *err);
void weft_metrics_writer_close(struct weft_metrics_writer *writer);

/* ---- Reading them back ------------------------------------------------ */

/* A whole metrics.jsonl by columns. */
struct weft_metrics_table {
    size_t n_rows, n_tags;
    char **tag;         /* (n_tags) in order of first appearance */
    int64_t *iteration; /* (n_rows) */
    double *value;      /* (n_tags, n_rows); NaN: the row has no such tag */
};

/* Ignores an incomplete last line. Errors: no file, a damaged line. Clear with
 * weft_metrics_table_clear(). */
int weft_metrics_read(const char *path, struct weft_metrics_table *out,
                      struct weft_err *err);
void weft_metrics_table_clear(struct weft_metrics_table *table);
/* Column of a tag (n_rows numbers), or NULL. */
const double *weft_metrics_column(const struct weft_metrics_table *table,
                                  const char *tag);

#endif
