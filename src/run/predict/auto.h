/* SPDX-License-Identifier: Apache-2.0 */
/* `plan: auto`: the plan of a run is found when it begins. */
#ifndef WEFT_RUN_PREDICT_AUTO_H
#define WEFT_RUN_PREDICT_AUTO_H

#include "run/trainer.h"

/* Makes the plan of a run with `plan: auto`: the one in its run directory, if
 * it was found there before and is one for this job; else rank 0 searches
 * (run/predict/options.h) by what it knows of costs (t->known). It is the same
 * on all ranks, and for equal costs. needs get the memory of a device, where
 * the configuration does not say it. Collective. Errors: no costs are known,
 * those of weft_run_find(). */
int weft_auto_plan(struct weft_trainer *t, struct weft_plan_needs *needs,
                   struct weft_plan *out, struct weft_err *err);

#endif
