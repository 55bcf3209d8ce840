/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation beside the run that it is of: lengths from the run's samples,
 * times from its metrics. Parts of weft_run_simulate(). */
#ifndef WEFT_RUN_PREDICT_SIMULATE_RUN_H
#define WEFT_RUN_PREDICT_SIMULATE_RUN_H

#include "base/string.h"
#include "plan/engine/played.h"
#include "run/iteration.h"

/* How many iterations the run has finished. Errors: those of
 * weft_metrics_read(). */
int weft_simulate_finished(const char *run_dir, int32_t *out,
                           struct weft_err *err);
/* Shortens responses (n) of iteration `iteration`, which counts from 0, to the
 * lengths that they had. Those of samples that the run did not write are taken
 * to be like the others', in turn; where it wrote none they stay. *n_known_out:
 * of so many they are known. Errors: those of weft_file_read(), a line that is
 * no sample. */
int weft_simulate_lengths(const char *run_dir, int32_t iteration, size_t n,
                          int32_t *length_inout, int32_t *n_known_out,
                          struct weft_err *err);
/* What an iteration's metrics would be; number 0 is the first that was
 * played. */
struct weft_iteration_times weft_simulate_times(const struct weft_played *p,
                                                int32_t iteration);
/* Whether a metric is a time that can be predicted. */
bool weft_simulate_predicts(const struct weft_trainer *t,
                            const struct weft_metric *metric);
/* Appends a table: predicted and measured seconds of the run's last
 * iterations, but the first that was played, which had nothing before it. */
int weft_simulate_beside(const struct weft_trainer *t,
                         const struct weft_played *played,
                         const char *run_dir, struct weft_string *out,
                         struct weft_err *err);

#endif
