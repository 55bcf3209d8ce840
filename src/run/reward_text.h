/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reward models with a tokenizer of their own. A sample's text is encoded anew
 * for them: the conversation with the response by the reward model's chat
 * template, if the policy's prompts are rendered by a template and the reward
 * model has one; else the prompt's text and the response's behind it.
 */
#ifndef WEFT_RUN_REWARD_TEXT_H
#define WEFT_RUN_REWARD_TEXT_H

#include "run/trainer.h"

/* Opens tokenizers and templates of those rewards. Needs architectures.
 * Errors: those of the folder's files; a tokenizer with more tokens than the
 * model, more tokens than the model's positions. */
int weft_reward_text_open(struct weft_trainer *t, struct weft_err *err);
void weft_reward_text_close(struct weft_trainer *t);

/* The most tokens that a reward's model reads of a sample; 0: it has no
 * tokenizer of its own. */
int32_t weft_reward_text_limit(const struct weft_trainer *t, int32_t reward);

/* Encodes a sample's text; of one that is too long the beginning is left out.
 * prompt: as the policy's template renders it. token_out is freed with
 * weft_free(); n_out is 1 or more. */
int weft_reward_text_encode(struct weft_trainer *t, int32_t reward,
                            const struct weft_row *row,
                            struct weft_str prompt, struct weft_str response,
                            int32_t **token_out, int32_t *n_out,
                            struct weft_err *err);

#endif
