/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows the progress of a run, a line per iteration:
 *
 *     iteration 12/60  score 0.53 (+0.02)  kl 0.011  length 14.2
 *         tok/s 5120  eta 1m20s
 *
 * and on a terminal a bar below the lines.
 */
#ifndef WEFT_RECORD_PROGRESS_H
#define WEFT_RECORD_PROGRESS_H

#include <stdio.h>

#include "record/metrics.h"

struct weft_progress;

/* Writes to `out` (usually stderr), which is borrowed. n_done: how many
 * iterations a resumed run has finished; n_total > 0; now_s: weft_clock_s().
 * Returns NULL when memory is out. */
struct weft_progress *weft_progress_create(FILE *out, int64_t n_done,
                                           int64_t n_total, double now_s);
/* Call it after each iteration. `progress` may be NULL in all functions. */
void weft_progress_step(struct weft_progress *progress, int64_t iteration,
                        const struct weft_metrics *metrics, double now_s);
/* Removes the bar until the next step. Call it before other text is written to
 * the terminal. */
void weft_progress_pause(struct weft_progress *progress);
void weft_progress_free(struct weft_progress *progress);

/* "1m20s", "3h05m", "12s" */
const char *weft_progress_duration(double s, char out[24]);

/* Formats the line of an iteration; returns out. before: of the metric whose
 * change is shown, in the previous iteration, NaN if there is none. eta_s < 0:
 * unknown. */
const char *weft_progress_line(int64_t iteration, int64_t n_total,
                               const struct weft_metrics *metrics,
                               double before, double eta_s, char *out,
                               size_t n);

#endif
