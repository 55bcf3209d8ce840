/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `plan_again`: a run with `plan: auto` looks for another plan between
 * iterations, by the lengths that its last responses had (run/tail.h has them),
 * and goes on by it where that pays. Numbers do not depend on it. A run that
 * was interrupted decides as one that was not.
 */
#ifndef WEFT_RUN_PREDICT_AGAIN_H
#define WEFT_RUN_PREDICT_AGAIN_H

#include "run/iteration.h"

struct weft_again;
void weft_again_free(struct weft_again *again); /* NULL is allowed */

/* Whether another plan is looked for once so many iterations are done. */
bool weft_again_is_due(const struct weft_trainer *t, int32_t done);

/* Where it is due, and lengths are others than when a plan was last looked for:
 * rank 0 searches (of bounded length, the same for the same lengths), and
 * simulates the present plan. All ranks go on by the plan that was found if it
 * saves plan_again.gain of an iteration, in what is left of the run more than
 * moving takes, and its memory fits. Then plans/iteration-000010.json is the
 * plan from that iteration on, plan.json the newest. Sets metrics plan/ on rank
 * 0. Collective. Errors: WEFT_ENOMEM, those of weft_trainer_change_plan(), of
 * files. */
int weft_again_plan(struct weft_trainer *t, struct weft_err *err);

/* What a search came to. */
struct weft_again_choice {
    int32_t takes, looked;
    double before_s, after_s; /* of an iteration, simulated */
    double move_s; /* in which models move to their new homes, predicted */
};
/* Finds a plan for these lengths, and says whether it pays in what is left of
 * the run. On the rank that knows costs. The plan has no memory; release it.
 * Errors: those of weft_run_simulate(), of weft_run_find(). */
int weft_again_choose(struct weft_trainer *t,
                      const struct weft_lengths *lengths,
                      struct weft_plan *plan, struct weft_again_choice *out,
                      struct weft_err *err);

#endif
