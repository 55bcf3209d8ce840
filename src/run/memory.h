/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan: what a run will take, by class, before it takes it. */
#ifndef WEFT_RUN_MEMORY_H
#define WEFT_RUN_MEMORY_H

#include "run/trainer.h"

struct weft_memory_plan {
    size_t bytes[WEFT_N_MEM_CLASSES]; /* activations: all devices' highest */
    size_t total;
};

/* Needs architectures, prompts and the runtime's device count. */
void weft_memory_plan(const struct weft_trainer *t,
                      struct weft_memory_plan *out);
/* Refuses a plan that does not fit runtime.memory_limit_gib, or what the
 * machine has free; the sentence names the largest class and what to lower. */
int weft_memory_check(const struct weft_trainer *t, struct weft_err *err);

#endif
