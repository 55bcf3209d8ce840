/* SPDX-License-Identifier: Apache-2.0 */
/* The price of the call in a recording that has no other. */
#ifndef WEFT_RUN_PREDICT_PRICE_RECORDED_H
#define WEFT_RUN_PREDICT_PRICE_RECORDED_H

#include "run/predict/price.h"
#include "run/predict/simulation.h"

/* n_devices: of the call. step_s: how much longer it takes with a lot more than
 * it has; 0: it has fewer than two. Errors: WEFT_ENOMEM, those of the
 * engine. */
int weft_price_recorded(struct weft_simulation *s, int32_t n_devices,
                        struct weft_priced *out, double *step_s,
                        struct weft_err *err);

#endif
