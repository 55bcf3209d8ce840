/* SPDX-License-Identifier: Apache-2.0 */
/* The search for a schedule on all processes of the job. */
#ifndef WEFT_RUN_SCHEDULE_JOB_H
#define WEFT_RUN_SCHEDULE_JOB_H

#include "plan/schedule.h"

/* weft_schedule_search_until() of searches with their proofs, the restarts
 * dealt over the ranks, whatever `options` says of first and stride. All ranks have the same problem and
 * options; all get the same result, which is that of one process, unless the
 * search was cut. Evaluations are those of all. Release its schedule.
 * Collective. */
int weft_schedule_job_search(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_options *options,
                             struct weft_schedule_result *out,
                             struct weft_err *err);
/* weft_schedule_pareto() likewise. Collective. */
int weft_schedule_job_pareto(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_options *options,
                             struct weft_schedule **out, int32_t *n_out,
                             struct weft_err *err);

#endif
