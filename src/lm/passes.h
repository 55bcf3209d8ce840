/* SPDX-License-Identifier: Apache-2.0 */
/* What a forward pass of a model takes on one replica of a layout: decode
 * steps, prefilling and inference, by costs. */
#ifndef WEFT_LM_PASSES_H
#define WEFT_LM_PASSES_H

#include "graphs/calls/layout.h"
#include "plan/costs.h"

struct weft_pass_price;

/* Of the layout's first replica. decodes: with its KV cache, as generation;
 * else whole texts, as inference. Borrows costs, shape and layout. Errors:
 * WEFT_ENOMEM. */
int weft_pass_price_create(struct weft_costs *costs,
                           const struct weft_shape *shape,
                           const struct weft_g_layout *layout, bool decodes,
                           struct weft_pass_price **out,
                           struct weft_err *err);
void weft_pass_price_free(struct weft_pass_price *pass); /* NULL is allowed */

/* Whether all of it was measured, or the cluster's description says what some
 * of it takes. */
bool weft_pass_price_is_measured(const struct weft_pass_price *pass);

/* Seconds of a pass of so many rows through all stages, one after another. */
double weft_pass_price_s(struct weft_pass_price *pass,
                         const struct weft_work_rows *rows);

#endif
