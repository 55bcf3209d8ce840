/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks of a run must have in common: every rank reads its own files,
 * and ranks that read different ones would not insert the same tasks. */
#ifndef WEFT_RUN_COMMON_H
#define WEFT_RUN_COMMON_H

#include "run/text.h"
#include "run/trainer.h"

/* Compares configuration (but for paths, which may be a node's own), plan,
 * models and data, which have been read, with rank 0's. Collective; errors
 * are the rank's own. WEFT_EINVAL: names what differs. */
int weft_run_common(const struct weft_trainer *trainer, struct weft_err *err);
/* The same of lines of text; rc: whether this rank has them. */
int weft_run_same(const struct weft_text *mine, int rc, struct weft_err *err);

#endif
