/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoints of a run directory (run/run_dir.h).
 *
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

/* Iterations of a run directory's checkpoints, newest first. Caller frees. */
int weft_checkpoint_list(const char *run_dir, int32_t **out, int32_t *n_out,
                         struct weft_err *err);
/* run_dir/checkpoints/iteration-000010. Caller frees; NULL: no memory. */
char *weft_checkpoint_path(const char *run_dir, int32_t iteration);

int weft_checkpoint_write(struct weft_trainer *t, struct weft_err *err);
/* State and weights from the checkpoint of t->iteration; its manifest and
 * files are checked before. */
int weft_checkpoint_read(struct weft_trainer *t, const char *folder,
                         struct weft_err *err);

#endif
