/* SPDX-License-Identifier: Apache-2.0 */
/* The seconds by which devices are divided (plan/divide.h), predicted where
 * they have not been measured. */
#ifndef WEFT_RUN_PREDICT_DIVIDED_H
#define WEFT_RUN_PREDICT_DIVIDED_H

#include "plan/layout.h"
#include "run/predict/simulate.h"

/* Writes the strategy with its three seconds into text (size): those of calls
 * that have all devices, laid out as where it divides them in time, and priced
 * one by one (run/predict/price.h). Errors: those of weft_plan_check(),
 * weft_pricer_price(). */
int weft_run_divided(const struct weft_config *config,
                     const struct weft_plan_needs *needs,
                     const struct weft_simulate_options *options, char *text,
                     size_t size, struct weft_err *err);

#endif
