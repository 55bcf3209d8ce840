/* SPDX-License-Identifier: Apache-2.0 */
/* What each call of a plan takes by itself: seconds and memory of its devices.
 * The plan is recorded once, and played once for each call, with the tasks of
 * all others taking no time: so prices have no second description of what
 * calls do. */
#ifndef WEFT_RUN_PREDICT_PRICE_H
#define WEFT_RUN_PREDICT_PRICE_H

#include "run/predict/simulate.h"

struct weft_priced {
    double seconds; /* of an iteration; 0: it has no tasks */
    /* bytes of each device, where they are most: weights of the call's role;
     * gradients and optimizer state beside them, where it trains; what its
     * tasks need while they run */
    double weights, state, active;
};

/* Prices the calls of a plan. out (WEFT_MAX_CALLS). Errors: those of
 * weft_run_simulate(). */
int weft_run_price(const struct weft_config *config,
                   const struct weft_g_job *job, struct weft_plan *plan,
                   const struct weft_simulate_options *options,
                   struct weft_priced *out, struct weft_err *err);

#endif
