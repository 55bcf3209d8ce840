/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for a schedule on all ranks of the job. */
#ifndef WEFT_FUSE_SCHEDULE_JOB_H
#define WEFT_FUSE_SCHEDULE_JOB_H

#include "schedule/schedule.h"

/* As weft_schedule_search_until(), with the restarts divided among the ranks;
 * options->first and stride are ignored. All ranks must give the same problem
 * and options. All get the same result: that of a single process, unless the
 * search was stopped early. Its number of evaluations is the sum over ranks.
 * Release the result's schedule. Collective. */
int weft_schedule_job_search(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_options *options,
                             struct weft_schedule_result *out,
                             struct weft_err *err);
/* As weft_schedule_pareto(), with the restarts divided among the ranks.
 * Collective. */
int weft_schedule_job_pareto(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_options *options,
                             struct weft_schedule **out, int32_t *n_out,
                             struct weft_err *err);

#endif
