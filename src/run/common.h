/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks of a run have in common: checks that they have read the same,
 * as every rank reads its own files, and ranks that read different ones would
 * not insert the same tasks; and text that rank 0 gives all. */
#ifndef WEFT_RUN_COMMON_H
#define WEFT_RUN_COMMON_H

#include "run/trainer.h"

/* Compares configuration (without paths, which may differ between nodes),
 * plan, models and data with rank 0's, when they have been read. Collective;
 * each rank returns its own error. WEFT_EINVAL: the text names what
 * differs. */
int weft_run_common(const struct weft_trainer *trainer, struct weft_err *err);

/* Gives all ranks rank 0's text of *n_inout bytes, at least one, in place of
 * their own, which is freed; the caller frees it. what: for errors. Collective.
 * Errors: WEFT_ENOMEM, the same on all ranks. */
int weft_run_share_text(char **text_inout, size_t *n_inout, const char *what,
                        struct weft_err *err);

#endif
