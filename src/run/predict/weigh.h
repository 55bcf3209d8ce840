/* SPDX-License-Identifier: Apache-2.0 */
/* What the search for plans says of one that is given: each call's layout is
 * priced, and they are played, in seconds whatever the number of devices. */
#ifndef WEFT_RUN_PREDICT_WEIGH_H
#define WEFT_RUN_PREDICT_WEIGH_H

#include "run/predict/simulate.h"

/* plan: checked, whose training is not fused; its last samples are taken to
 * stay. Sets plan->predicted_s, and of *out what a simulation says of the whole
 * plan, but for limits and bounds; what stays is taken to be on each device as
 * on the fullest. Errors: those of weft_pricer_price(); WEFT_EINVAL, training
 * is fused. */
int weft_run_weigh(const struct weft_config *config,
                   const struct weft_plan_needs *needs,
                   const struct weft_simulate_options *simulate,
                   struct weft_plan *plan, struct weft_simulated *out,
                   struct weft_err *err);

#endif
