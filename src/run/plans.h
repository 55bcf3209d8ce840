/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans of a run that may change its plan (`plan_again`):
 *
 *     run_dir/plans/iteration-000010.json
 *
 * is the one from that iteration on, counted from 0. A run that goes on has the
 * plan with which the last iteration was made, and decides anew what was decided
 * after it.
 */
#ifndef WEFT_RUN_PLANS_H
#define WEFT_RUN_PLANS_H

#include "plan/layout.h"

/* Writes the plan from an iteration on. Errors: those of files. */
int weft_plans_write(const char *run_dir, const struct weft_plan *plan,
                     int32_t iteration, struct weft_err *err);
/* The path of the plan with which the last of the iterations that are done was
 * made, or would be the first; NULL: none is there. Caller frees. Errors:
 * WEFT_ENOMEM, those of files. */
int weft_plans_last(const char *run_dir, int32_t done, char **path_out,
                    struct weft_err *err);
/* Removes the plans from later iterations on. Errors: as weft_plans_last(). */
int weft_plans_cut(const char *run_dir, int32_t done, struct weft_err *err);

#endif
