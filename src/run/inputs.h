/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a run reads, and what was in them: model folders, tokenizer,
 * data, and files named in the commands of reward programs. Every rank reads
 * its own from end to end once, in a thread beside the loading of the weights;
 * ranks compare what they found, a checkpoint keeps it, and a run that resumes
 * compares again. Weights that a resumed run takes from its checkpoint are not
 * read.
 */
#ifndef WEFT_RUN_INPUTS_H
#define WEFT_RUN_INPUTS_H

#include "run/config.h"
#include "run/manifest.h"

struct weft_inputs;

/* Lists the files and begins to read them. resumes: trained models come from a
 * checkpoint. Free with weft_inputs_free(). Errors: of the weights' files. */
int weft_inputs_start(const struct weft_config *config, bool resumes,
                      struct weft_inputs **out, struct weft_err *err);
/* Waits until they are read. Errors: of base/file_hash.h. */
int weft_inputs_finish(struct weft_inputs *inputs, struct weft_err *err);
void weft_inputs_free(struct weft_inputs *inputs); /* NULL is allowed */

/* Compares with rank 0's; collective, errors are the rank's own. Reward
 * programs run beside rank 0 alone and are not compared. */
int weft_inputs_common(const struct weft_inputs *inputs,
                       struct weft_err *err);
/* Compares with what a checkpoint's run has read. accept: a change is said in
 * a line of the log and goes on. What was not read now is kept, to be in the
 * next checkpoint. */
int weft_inputs_compare(struct weft_inputs *inputs,
                        const struct weft_manifest *manifest, bool accept,
                        struct weft_err *err);
/* Adds them to a manifest. */
int weft_inputs_add(const struct weft_inputs *inputs,
                    struct weft_manifest *manifest, struct weft_err *err);

#endif
