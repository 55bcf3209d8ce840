/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan: what a run will take, by class, before it takes it. */
#ifndef WEFT_RUN_MEMORY_H
#define WEFT_RUN_MEMORY_H

#include "run/trainer.h"

/* Bytes by place and class. */
struct weft_memory_plan {
    int32_t n_places;
    size_t (*bytes)[WEFT_N_MEM_CLASSES];
};

/* What the run will take at most at every place. Needs architectures, prompts
 * and layouts. Release also after an error. Errors: WEFT_ENOMEM. */
int weft_memory_plan(const struct weft_trainer *t,
                     struct weft_memory_plan *out, struct weft_err *err);
void weft_memory_plan_release(struct weft_memory_plan *plan);
/* Refuses a plan that does not fit runtime.memory_limit_gib, or what the
 * machine has free; the sentence names the largest class and what to lower. */
int weft_memory_check(const struct weft_trainer *t, struct weft_err *err);

#endif
