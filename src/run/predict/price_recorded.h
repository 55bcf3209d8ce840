/* SPDX-License-Identifier: Apache-2.0 */
/* The prices of calls in a recording. */
#ifndef WEFT_RUN_PREDICT_PRICE_RECORDED_H
#define WEFT_RUN_PREDICT_PRICE_RECORDED_H

#include "run/predict/price.h"
#include "run/predict/simulation.h"

/* Of a set of calls; out (WEFT_MAX_CALLS). Errors: WEFT_ENOMEM, those of the
 * engine. */
int weft_price_recorded(struct weft_simulation *s, uint32_t calls,
                        struct weft_priced *out, struct weft_err *err);

#endif
