/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all ranks of a run have read the same. Every rank reads its own
 * files, and ranks that read different ones would not insert the same
 * tasks. */
#ifndef WEFT_RUN_COMMON_H
#define WEFT_RUN_COMMON_H

#include "run/trainer.h"

/* Compares configuration (without paths, which may differ between nodes),
 * plan, models and data with rank 0's, when they have been read. Collective;
 * each rank returns its own error. WEFT_EINVAL: the text names what
 * differs. */
int weft_run_common(const struct weft_trainer *trainer, struct weft_err *err);

#endif
