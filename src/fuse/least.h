/* SPDX-License-Identifier: Apache-2.0 */
/* What two models that train under one schedule take at least: for a search of
 * plans, before any schedule is searched for. */
#ifndef WEFT_FUSE_LEAST_H
#define WEFT_FUSE_LEAST_H

#include "base/err.h"
#include "plan/layout.h"

struct weft_fuse_call {
    const struct weft_shape *shape;
    const struct weft_call_plan *plan;
    int32_t micro_batches; /* of each pipeline, in an optimizer step */
    /* of an optimizer step: what each of its devices does, in the mean, and in
     * passes of micro-batches alone */
    double busy_s, passes_s;
};

/* Whether pipelines of two calls on one mesh can be fused: stages of the one
 * with the smaller tp fill devices of stages of the other (RLHFuse section
 * 5.1). */
bool weft_fuse_fits(const struct weft_call_plan *a,
                    const struct weft_call_plan *b);

/* Seconds of so many optimizer steps of both that no schedule undercuts
 * (weft_schedule_bounds()), messages left out; the second one's pipelines are
 * reversed. Their pipelines fit. Errors: WEFT_ENOMEM. */
int weft_fuse_least(const struct weft_fuse_call call[2], int32_t mini_batches,
                    double *out, struct weft_err *err);

#endif
