/* SPDX-License-Identifier: Apache-2.0 */
/* One optimizer step by itself, for tests and measurements of graphs. */
#ifndef WEFT_TESTS_TRAIN_STEP_H
#define WEFT_TESTS_TRAIN_STEP_H

#include "graphs/calls/calls.h"

/* Begins, submits and ends a step; outputs are those of weft_g_step_end(). */
static inline int train_step(
    struct weft_seq *seq, const struct weft_g_train *train, int32_t n,
    const struct weft_pack_sample *sample, struct weft_g_stats *stats_out,
    int32_t *n_stats_out, struct weft_tile **norm_out, struct weft_err *err)
{
    struct weft_g_step *step = NULL;
    *n_stats_out = 0;
    int rc = weft_g_step_begin(seq, train, n, sample, &step, err);
    if (!rc)
        rc = weft_g_step_submit(&step, 1, NULL, 0, err);
    if (rc)
        weft_g_step_abandon(step);
    else
        weft_g_step_end(step, stats_out, n_stats_out, norm_out);
    return rc;
}

#endif
