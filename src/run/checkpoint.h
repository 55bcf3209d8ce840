/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run directory and its checkpoints.
 *
 *     run_dir/config.yaml                   the effective configuration
 *     run_dir/metrics.jsonl  samples/  trace/
 *     run_dir/checkpoints/iteration-000010/
 *         manifest.json                     state, and a checksum per file
 *         actor/   a Hugging Face folder: weights and tokenizer alone
 *         critic/  the same (PPO)
 *         optimizer/actor/  optimizer/critic/
 *                  Adam's moments, and f32 masters unless the weights are
 *
 * A checkpoint is written beside its place and renamed, so a folder of that
 * name is whole; tensors have global names, so it loads on any layout.
 */
#ifndef WEFT_RUN_CHECKPOINT_H
#define WEFT_RUN_CHECKPOINT_H

#include "run/trainer.h"

/* Finds out whether run_dir holds a run: then checks that the configuration
 * fits it, and returns its newest checkpoint's folder (NULL: none yet; the
 * caller frees), with its iteration in t->iteration. Creates nothing. Errors: a folder that is no run and not
 * empty, another configuration. */
int weft_run_dir_open(struct weft_trainer *t, char **checkpoint_out,
                      struct weft_err *err);
/* Creates the run directory and takes its lock, which the process holds until
 * it ends: two runs in one directory would mix. Errors: it is taken. */
int weft_run_dir_lock(struct weft_trainer *t, struct weft_err *err);
/* Creates the run directory's files where missing, opens the metrics (cut
 * back to the iteration resumed from). */
int weft_run_dir_begin(struct weft_trainer *t, struct weft_err *err);

int weft_checkpoint_write(struct weft_trainer *t, struct weft_err *err);
/* State and weights from a checkpoint; verifies every checksum. */
int weft_checkpoint_read(struct weft_trainer *t, const char *folder,
                         struct weft_err *err);

#endif
