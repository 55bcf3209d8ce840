/* SPDX-License-Identifier: Apache-2.0 */
/* What it takes to bring a model's weights to where a call needs them, by
 * costs. */
#ifndef WEFT_LM_WEIGHTS_H
#define WEFT_LM_WEIGHTS_H

#include "graphs/calls/layout.h"
#include "plan/costs.h"

/* Seconds in which weights come from their home to all places of a call's
 * layout, all on their way at once (weft_plan_moves()): what the link is busy
 * for that is busy longest. 0: they are there. Embedding and head count as
 * parts of layers. Errors: WEFT_ENOMEM. */
int weft_weights_move_s(const struct weft_costs *costs,
                        const struct weft_shape *shape,
                        const struct weft_g_layout *home,
                        const struct weft_g_layout *layout, double *out,
                        struct weft_err *err);

/* The same from the memory of a rank's host to its GPUs, of a frozen model that
 * is offloaded; 0 where places are the host's. */
int weft_weights_restore_s(const struct weft_costs *costs,
                           const struct weft_shape *shape,
                           const struct weft_g_layout *home, int32_t n_gpus,
                           double *out, struct weft_err *err);

#endif
