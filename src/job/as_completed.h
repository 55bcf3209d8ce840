/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether mini-batches train as soon as their own samples are complete
 * (train.as_completed; FlexRLHF, figure 4), while others are generated.
 */
#ifndef WEFT_JOB_AS_COMPLETED_H
#define WEFT_JOB_AS_COMPLETED_H

#include "config/config.h"
#include "plan/layout.h"

/* If the configuration asks for it and nothing stands against it: what is
 * computed of all samples of an iteration together before training, or a plan
 * in which training has to wait for generation's devices. Otherwise, and if
 * it asks, `why` (size) gets what stands against it, a sentence for people;
 * else an empty one. */
bool weft_run_trains_as_completed(const struct weft_config *config,
                                  const struct weft_dataflow *flow,
                                  const struct weft_plan *plan, char *why,
                                  size_t size);

#endif
