/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a run, for commands: all do the same work, the first one
 * speaks. In a job of one every call is trivial. */
#ifndef WEFT_RUN_JOB_H
#define WEFT_RUN_JOB_H

#include "base/err.h"

/* Joins the processes that mpirun or srun started; first of all. Errors: see
 * weft_world_open(). */
int weft_job_open(struct weft_err *err);
void weft_job_close(void);
bool weft_job_is_first(void);
int weft_job_size(void);
/* Makes an error of one an error of all, the same for each. Collective. */
int weft_job_agree(int rc, struct weft_err *err);
/* The largest number that a process has. Collective. */
int weft_job_max(int mine);

#endif
