/* SPDX-License-Identifier: Apache-2.0 */
/* A run on more and more devices, and where these stop being worth it (ReaL
 * section 8.4). */
#ifndef WEFT_RUN_PREDICT_SCALE_H
#define WEFT_RUN_PREDICT_SCALE_H

#include "run/predict/compare.h"

enum { WEFT_SCALE_SIZES = 16 };

/* A row for each size, from few to many: the fastest placement that fits. */
struct weft_scale {
    int32_t n, n_samples; /* samples of an iteration */
    struct weft_scaled {
        int32_t n_devices;
        bool priced;               /* by prices of calls, not simulated */
        struct weft_compared best; /* name NULL: none fits ... */
        bool unknown; /* ... or training is fused, which has no price */
    } row[WEFT_SCALE_SIZES];
};

/* Finds the fastest placement for a job of this size. On few devices those are
 * simulated that may be it by prices of their calls; on more prices alone say
 * which it is. progress: as of struct weft_compare_how. Errors: WEFT_ENOMEM. */
int weft_run_scale(const struct weft_config *config,
                   const struct weft_plan_needs *needs,
                   const struct weft_plan *own,
                   const struct weft_simulate_options *options,
                   void (*progress)(int32_t done, int32_t of),
                   struct weft_scaled *out, struct weft_err *err);

/* The row from which on throughput for each device falls; -1: none fits. */
int32_t weft_scale_transition(const struct weft_scale *scale);
/* Appends a table, and which of the sizes is the first that is enough. Errors:
 * WEFT_ENOMEM. */
int weft_scale_text(const struct weft_scale *scale, struct weft_string *out,
                    struct weft_err *err);
/* Throughput over devices, and the transition point. */
int weft_scale_svg(const struct weft_scale *scale, struct weft_string *out,
                   struct weft_err *err);

#endif
