/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of the files that a run reads: model folders, tokenizer, data, and
 * files named in the commands of reward programs. Every rank reads its own
 * files from end to end once, in a thread, while the weights are loaded. Ranks
 * compare the checksums, checkpoints keep them, and a run that resumes
 * compares them again. Weights that a resumed run takes from its checkpoint
 * are not read.
 */
#ifndef WEFT_JOB_INPUTS_H
#define WEFT_JOB_INPUTS_H

#include "config/config.h"
#include "record/manifest.h"

struct weft_inputs;

/* Lists the files and starts the thread that reads them. resumes: weights of
 * trained models come from a checkpoint. Free with weft_inputs_free(). Errors:
 * a model's weights cannot be found or listed. */
int weft_inputs_start(const struct weft_config *config, bool resumes,
                      struct weft_inputs **out, struct weft_err *err);
/* Waits until all files are read. Errors: those of base/file_hash.h. */
int weft_inputs_finish(struct weft_inputs *inputs, struct weft_err *err);
void weft_inputs_free(struct weft_inputs *inputs); /* NULL is allowed */

/* Compares the checksums with rank 0's. Collective; each rank returns its own
 * error. Files of reward programs, which only rank 0 runs, are not
 * compared. */
int weft_inputs_common(const struct weft_inputs *inputs,
                       struct weft_err *err);
/* Compares the checksums with those in a checkpoint. accept: a changed file is
 * logged instead of being an error. Checksums of files that are not read now
 * are kept for the next checkpoint. */
int weft_inputs_compare(struct weft_inputs *inputs,
                        const struct weft_manifest *manifest, bool accept,
                        struct weft_err *err);
/* Adds the files and their checksums to a manifest. */
int weft_inputs_add(const struct weft_inputs *inputs,
                    struct weft_manifest *manifest, struct weft_err *err);

#endif
