/* SPDX-License-Identifier: Apache-2.0 */
/* The subtasks of a problem, for the files of this room: numbers, times,
 * what waits for what. */
#ifndef WEFT_SCHEDULE_TASKS_H
#define WEFT_SCHEDULE_TASKS_H

#include <stdio.h>

#include "schedule/schedule.h"

/* Devices of one pipeline. */
static inline int32_t weft_schedule_width(
    const struct weft_schedule_model *model)
{
    return model->stages / model->chunks;
}

/* The pass that ends a micro-batch on a stage: its activation is freed, its
 * gradient added. */
static inline enum weft_pass weft_schedule_last_pass(
    const struct weft_schedule_model *model)
{
    return model->split_backward ? WEFT_PASS_WEIGHT : WEFT_PASS_BACKWARD;
}

/* "forward", "backward", "weight" */
const char *weft_pass_name(enum weft_pass pass);

/* "backward of micro-batch 3 of actor on stage 2", with pipeline and
 * mini-batch where there are several. */
enum { WEFT_SUBTASK_TEXT = 200 };
const char *weft_subtask_text(const struct weft_schedule_problem *problem,
                              const struct weft_subtask *t,
                              char text[WEFT_SUBTASK_TEXT]);

/* Subtasks of the whole problem, and the number of one of them: 0 to that. */
int64_t weft_schedule_count(const struct weft_schedule_problem *problem);
int64_t weft_subtask_id(const struct weft_schedule_problem *problem,
                        const struct weft_subtask *t);
int32_t weft_subtask_device(const struct weft_schedule_problem *problem,
                            const struct weft_subtask *t);
double weft_subtask_duration(const struct weft_schedule_problem *problem,
                             const struct weft_subtask *t);
/* What it takes of (positive) or gives back to its device's memory. */
double weft_subtask_memory(const struct weft_schedule_problem *problem,
                           const struct weft_subtask *t);

/* The subtasks that t waits for directly: at most 2; returns how many. One on
 * another device is seen `latency` after its end. What follows from others is
 * left out; so is a step of the optimizer (see ..._waits_for_step). */
int weft_subtask_waits(const struct weft_schedule_problem *problem,
                       const struct weft_subtask *t,
                       struct weft_subtask out[2]);
/* Whether it waits for the step of its model's mini-batch before. */
static inline bool weft_subtask_waits_for_step(const struct weft_subtask *t)
{
    return t->mini_batch > 0 && t->pass == WEFT_PASS_FORWARD && t->stage == 0;
}

/* An empty schedule with room for every subtask. */
int weft_schedule_init(const struct weft_schedule_problem *problem,
                       struct weft_schedule *out, struct weft_err *err);
/* Puts a subtask behind the others of its device. */
void weft_schedule_append(const struct weft_schedule_problem *problem,
                          struct weft_schedule *schedule,
                          const struct weft_subtask *t);

/* Larger model first, one subtask after another by the earliest start. */
int weft_schedule_greedy(const struct weft_schedule_problem *problem,
                         struct weft_schedule *out, struct weft_err *err);

/* ---- Text -------------------------------------------------------------- */

/* As JSON: the fewest digits that read back, null where it is none; a string
 * in quotes. */
void weft_schedule_put_number(FILE *f, double x);
void weft_schedule_put_text(FILE *f, const char *text);

#endif
