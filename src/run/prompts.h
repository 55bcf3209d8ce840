/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the data of a run. */
#ifndef WEFT_RUN_PROMPTS_H
#define WEFT_RUN_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct weft_trainer;

/* Opens data.path, renders and tokenises every row (prompts; prompts and
 * responses; pairs), applies data.long_prompts, and collects the ids that end a
 * response. Needs t->tokenizer and the actor's architecture. Errors name file,
 * line and key. */
int weft_prompts_load(struct weft_trainer *t, struct weft_err *err);
void weft_prompts_release(struct weft_trainer *t);

/* Tokenises row i of the data as the algorithm wants rows: up to two texts
 * into out, how many into n_out; 0: the row is skipped. */
struct weft_run_prompt;
int weft_prompts_row(struct weft_trainer *t, size_t i,
                     struct weft_run_prompt *out, int32_t *n_out,
                     struct weft_err *err);

#endif
