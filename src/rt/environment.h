/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment and the system allow StarPU, before it starts. */
#ifndef WEFT_RT_ENVIRONMENT_H
#define WEFT_RT_ENVIRONMENT_H

#include <stdbool.h>

#include "base/err.h"

/* Refuses variables that ask StarPU for what Weft decides itself: ignoring them
 * silently would surprise the user. A value that asks for the same as Weft does
 * is fine. Errors: WEFT_EINVAL. */
int weft_environment_check(struct weft_err *err);
/* Sets the folder where StarPU keeps measurements of the machine, unless the
 * user has set it; StarPU's default is the user's home itself. */
void weft_environment_set_home(void);
/* With CUDA, StarPU measures the buses when it first starts on a machine, and
 * where it sees another number of GPUs, into files that another process, such as
 * the next rank, would read half-written. Gives those of this machine and of so
 * many GPUs names of their own, and takes a lock beside them, which ranks share
 * once the files are there. Returns its descriptor, which the caller closes, or
 * -1. */
int weft_environment_lock_home(int n_gpus);

/* Whether CUDA waits for the end of each kernel that is launched
 * (CUDA_LAUNCH_BLOCKING). */
bool weft_environment_blocks(void);

/* Whether StarPU can start so many devices within the process's limits. */
int weft_limits_check(int n_devices, struct weft_err *err);

#endif
