/* SPDX-License-Identifier: Apache-2.0 */
/* The best schedule by trying everything: what searches and bounds are held
 * against. */
#ifndef WEFT_TESTS_SCHEDULE_EXHAUSTIVE_H
#define WEFT_TESTS_SCHEDULE_EXHAUSTIVE_H

#include "schedule/schedule.h"

/* Least makespan and at it least peak; at most about 20 subtasks in bearable
 * time. Errors: WEFT_EUNSUPPORTED (more than 32 subtasks), WEFT_ENOTFOUND (no
 * schedule fits), WEFT_ENOMEM. Release the schedule. */
int schedule_exhaustive(const struct weft_schedule_problem *problem,
                        struct weft_schedule *out, struct weft_err *err);

#endif
