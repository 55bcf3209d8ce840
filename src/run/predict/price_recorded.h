/* SPDX-License-Identifier: Apache-2.0 */
/* The price of the call in a recording that has no other. */
#ifndef WEFT_RUN_PREDICT_PRICE_RECORDED_H
#define WEFT_RUN_PREDICT_PRICE_RECORDED_H

#include "run/predict/price.h"
#include "run/predict/simulation.h"

/* Errors: WEFT_ENOMEM, those of the engine. */
int weft_price_recorded(struct weft_simulation *s, struct weft_priced *out,
                        struct weft_err *err);

#endif
