/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoints of a run directory (run/run_dir.h).
 *
 *     run_dir/checkpoints/iteration-000010/
 *         manifest.json                     state, and a checksum per file
 *         actor/   a Hugging Face folder: weights and tokenizer alone
 *         critic/  the same (PPO)
 *         reference/  the same, once it has moved to the policy
 *         optimizer/actor/  optimizer/critic/
 *                  Adam's moments, and f32 masters unless the weights are f32
 *
 * A checkpoint is written under a temporary name and renamed when it is
 * complete. Tensors have global names, so it can be loaded by a run with any
 * layout.
 */
#ifndef WEFT_RUN_CHECKPOINT_H
#define WEFT_RUN_CHECKPOINT_H

#include "run/trainer.h"

/* The iterations of which the run directory has checkpoints, newest first.
 * Caller frees. */
int weft_checkpoint_list(const char *run_dir, int32_t **out, int32_t *n_out,
                         struct weft_err *err);
/* The path run_dir/checkpoints/iteration-000010. Caller frees; NULL: no
 * memory. */
char *weft_checkpoint_path(const char *run_dir, int32_t iteration);

int weft_checkpoint_write(struct weft_trainer *t, struct weft_err *err);
/* Checks the manifest and files of the checkpoint of t->iteration, then reads
 * state and weights. */
int weft_checkpoint_read(struct weft_trainer *t, const char *folder,
                         struct weft_err *err);

#endif
