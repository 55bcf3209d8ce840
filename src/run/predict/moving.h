/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds in which weights move between two layouts, as the search estimates
 * them. */
#ifndef WEFT_RUN_PREDICT_MOVING_H
#define WEFT_RUN_PREDICT_MOVING_H

#include "base/shape.h"
#include "plan/cluster.h"
#include "plan/layout.h"

/* What the time in which weights move depends on, beside their layouts. */
struct weft_moving {
    int32_t n_nodes, n_devices; /* of the plan; devices of a node */
    const struct weft_cluster *cluster;
    const struct weft_shape *shape[WEFT_MAX_ROLES]; /* NULL: no such role */
};

/* Weights of a device of `to`, by the slowest link on their way. It is the
 * search problem's move(); ctx: a struct weft_moving. */
double weft_moving_s(void *ctx, int32_t role,
                     const struct weft_call_plan *from,
                     const struct weft_call_plan *to);

#endif
