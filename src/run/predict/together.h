/* SPDX-License-Identifier: Apache-2.0 */
/* What the order of a graph's calls says of their memory. */
#ifndef WEFT_RUN_PREDICT_TOGETHER_H
#define WEFT_RUN_PREDICT_TOGETHER_H

#include "plan/dataflow.h"

/* Placed calls whose results a call reads, itself or through steps. */
uint32_t weft_before(const struct weft_dataflow *flow, int32_t call);

/* Sets of n calls that can be at work at the same time: those that do not train
 * the policy, and those that can be beside its training. Returns how many. */
int32_t weft_together(const struct weft_dataflow *flow, int32_t n,
                      const int32_t *call, uint32_t out[2]);

#endif
