/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a run as token ids. */
#ifndef WEFT_RUN_PROMPTS_H
#define WEFT_RUN_PROMPTS_H

#include "run/trainer.h"

/* Opens data.path, renders and tokenises every row (prompts; for SFT prompt
 * and response), applies data.max_prompt_tokens, and collects the ids that
 * end a response. Needs t->tokenizer and the actor's architecture. Errors
 * name file, line and key. */
int weft_prompts_load(struct weft_trainer *t, struct weft_err *err);
void weft_prompts_release(struct weft_trainer *t);

/* The rendered text of a row's prompt. Caller frees. */
int weft_prompts_render(const struct weft_trainer *t, size_t row,
                        char **text_out, struct weft_err *err);

#endif
