/* SPDX-License-Identifier: Apache-2.0 */
/* What a run takes by place and class: predicted before it takes it, measured
 * when it has. Both go to the plan's file. */
#ifndef WEFT_RUN_MEMORY_H
#define WEFT_RUN_MEMORY_H

#include "run/trainer.h"

/* Fills t->plan.memory, an upper bound: needs architectures, prompts and
 * layouts, but no runtime. Errors: WEFT_ENOMEM, those of recording. */
int weft_memory_predict(struct weft_trainer *t, struct weft_err *err);
/* Refuses a prediction that does not fit runtime.memory_limit_gib, or what
 * the machine has free; the sentence names the largest class and the nearest
 * change of the layout that fits, or what to lower. */
int weft_memory_check(const struct weft_trainer *t, struct weft_err *err);
/* Fills t->plan.measured with the peaks so far, and warns of those above the
 * prediction. Collective. Errors: WEFT_ENOMEM. */
int weft_memory_measure(struct weft_trainer *t, struct weft_err *err);

/* The most micro-batches of a pipeline in an optimizer step of a training
 * call. */
int32_t weft_run_micro_batches(const struct weft_trainer *t,
                               const struct weft_shape *shape,
                               enum weft_call call);

/* <run>/plan.json: the plan, predicted memory, measured once there is any. */
int weft_memory_write(const struct weft_trainer *t, struct weft_err *err);

#endif
