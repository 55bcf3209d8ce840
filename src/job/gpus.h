/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that a run's configuration, or a command's options, ask for. */
#ifndef WEFT_JOB_GPUS_H
#define WEFT_JOB_GPUS_H

#include "config/config.h"

/* n: 0 for all. n_sharing: ranks that have each GPU together. The other three
 * are for sentences: the names of what asks for GPUs, and for a number of them,
 * and what asks for CPUs. */
struct weft_gpus_asked {
    int32_t n, n_sharing;
    const char *devices, *gpus, *cpus;
};

/* How many GPUs of this machine this rank has, and the number of the first.
 * Ranks on one machine have equal parts of its GPUs, one after the other, or
 * n_sharing of them, which come one after the other, have a part together.
 * Errors, in one sentence that says how to run on CPUs: there is no GPU or
 * driver, the driver is too old, there are fewer than n for each of the ranks
 * here, or one has a compute capability that Weft has no code for. Local. */
int weft_gpus_ask(const struct weft_gpus_asked *asked, int32_t *out,
                  int32_t *first_out, struct weft_err *err);

/* Those of runtime.devices and runtime.gpus; 0 unless that is gpu. */
int weft_run_gpus(const struct weft_config *config, int32_t *out,
                  int32_t *first_out, struct weft_err *err);

#endif
