/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Playing a pipeline schedule: the real runtime and its policy run it on
 * devices that only sleep for the planned times, so that 16 stages fit on two
 * cores.
 */
#ifndef WEFT_RUN_PLAY_H
#define WEFT_RUN_PLAY_H

#include "plan/schedule.h"

/* Plays `schedule` of `problem` with unit_s seconds per unit of time. start
 * and end of the subtasks and the makespan become the measured ones, in
 * units, from the first start on. Errors: more devices than the runtime can
 * start, those of weft_rt_start(). */
int weft_play_schedule(const struct weft_schedule_problem *problem,
                       struct weft_schedule *schedule, double unit_s,
                       struct weft_err *err);

#endif
