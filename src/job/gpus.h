/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that a run's configuration asks for. */
#ifndef WEFT_JOB_GPUS_H
#define WEFT_JOB_GPUS_H

#include "config/config.h"

/* How many GPUs of this machine this rank has, and the number of the first: 0
 * unless runtime.devices is gpu. Ranks on one machine have equal parts of its
 * GPUs, one after the other. Errors, in one sentence that says how to run on
 * CPUs: there is no GPU or driver, the driver is too old, there are fewer than
 * runtime.gpus for each of the ranks here, or one has a compute capability that
 * Weft has no code for. Local. */
int weft_run_gpus(const struct weft_config *config, int32_t *out,
                  int32_t *first_out, struct weft_err *err);

#endif
