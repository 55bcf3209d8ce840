/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the data of a run. */
#ifndef WEFT_RUN_PROMPTS_H
#define WEFT_RUN_PROMPTS_H

#include "base/err.h"

struct weft_trainer;

/* Opens data.path, renders and tokenises every row (prompts; for SFT prompt
 * and response), applies data.long_prompts, and collects the ids that end a
 * response. Needs t->tokenizer and the actor's architecture. Errors name file,
 * line and key. */
int weft_prompts_load(struct weft_trainer *t, struct weft_err *err);
void weft_prompts_release(struct weft_trainer *t);

#endif
