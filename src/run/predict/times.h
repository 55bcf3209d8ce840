/* SPDX-License-Identifier: Apache-2.0 */
/* Times of a run that goes on: predicted beside measured ones, in its metrics
 * and its plan. */
#ifndef WEFT_RUN_PREDICT_TIMES_H
#define WEFT_RUN_PREDICT_TIMES_H

#include "run/iteration.h"

/* Of an iteration that has ended: sets perf/predicted_s/... and
 * perf/predicted_steps_per_s, where the run knows costs (t->known), by
 * simulating it with the lengths that its samples had; and the plan's
 * predicted_s and measured_s, the means of this process' iterations after the
 * first. Iterations that are too large for that are predicted where
 * checkpoints are due. What cannot be predicted is warned of once. Call it on
 * rank 0, once the other metrics are set. Errors: WEFT_ENOMEM. */
int weft_times_note(struct weft_iteration *p);

#endif
