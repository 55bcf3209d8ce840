/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Playing a pipeline schedule: the real runtime and its policy run tasks that
 * only sleep for the planned times, so that a schedule of 16 stages can be
 * tried on two cores.
 */
#ifndef WEFT_FUSE_PLAY_H
#define WEFT_FUSE_PLAY_H

#include "schedule/schedule.h"

/* Plays `schedule` of `problem` with unit_s seconds per unit of time. Replaces
 * start and end of the subtasks and the makespan by measured ones, in units
 * since the first start. Errors: more devices than the runtime can start,
 * those of weft_rt_start(). */
int weft_play_schedule(const struct weft_schedule_problem *problem,
                       struct weft_schedule *schedule, double unit_s,
                       struct weft_err *err);

#endif
