/* SPDX-License-Identifier: Apache-2.0 */
/* `plan: auto`: the plan of a run is found when it begins. */
#ifndef WEFT_RUN_PREDICT_AUTO_H
#define WEFT_RUN_PREDICT_AUTO_H

#include "run/predict/options.h"
#include "run/trainer.h"

/* Makes the plan of a run with `plan: auto`: the one in its run directory, if
 * it was found there before and is one for this job; else rank 0 searches
 * (run/predict/options.h) by what it knows of costs (t->known), with the others'
 * help. It is the same on all ranks, and for equal costs. config.layout says
 * what it has to be like (plan/fixed.h). needs get the memory of a device, where
 * the configuration does not say it, and devices of several kinds. While it
 * searches it asks t->opening whether to stop. Collective. Errors: no costs are
 * known, those of
 * weft_run_find(), WEFT_EINTERRUPTED. */
int weft_auto_plan(struct weft_trainer *t, struct weft_plan_needs *needs,
                   struct weft_plan *out, struct weft_err *err);

/* Searches by what t->known knows, on rank 0, for responses of these lengths;
 * NULL: as long as they can be. Other ranks are in weft_spread_serve(). The plan
 * has no memory. needs get what those of weft_auto_plan() get. Errors: those of
 * weft_run_find(). */
int weft_auto_find(struct weft_trainer *t, struct weft_plan_needs *needs,
                   const struct weft_lengths *lengths,
                   const struct weft_search_how *how, struct weft_plan *out,
                   struct weft_found *found_out, struct weft_err *err);
/* What is said of a plan's fusion behind its time: parts that begin with a
 * semicolon, or "". Static. */
const char *weft_auto_fusion(const struct weft_plan *plan);
/* Rank 0's plan with its memory, on all ranks. Collective. Errors:
 * WEFT_ENOMEM. */
int weft_auto_share(const struct weft_trainer *t, struct weft_plan *plan,
                    struct weft_err *err);

#endif
