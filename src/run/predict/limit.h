/* SPDX-License-Identifier: Apache-2.0 */
/* What limits a simulated plan. */
#ifndef WEFT_RUN_PREDICT_LIMIT_H
#define WEFT_RUN_PREDICT_LIMIT_H

#include "plan/engine/played.h"
#include "run/predict/simulation.h"

/* Of the iteration that is shown. played: of the last playing of s, with what
 * devices do between tasks (job.n_iterations). */
void weft_limit_find(const struct weft_simulation *s,
                     const struct weft_played *played,
                     struct weft_limit *out);

/* "memory bandwidth", "waiting": enum weft_cost_part, or WEFT_LIMIT_WAITING. */
const char *weft_limit_name(int by);

#endif
