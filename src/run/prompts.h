/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of data as texts and token ids. */
#ifndef WEFT_RUN_PROMPTS_H
#define WEFT_RUN_PROMPTS_H

#include "model/chat.h"
#include "model/dataset.h"
#include "model/tokenizer.h"

/* How a row becomes a text: a chat template, or plain prompts. */
struct weft_renderer {
    struct weft_chat *chat; /* NULL: plain */
    const char *system;     /* put first; NULL: none */
};

/* name: "none", or what weft_chat_open() takes. Release with
 * weft_renderer_release(). `system` is borrowed. */
int weft_renderer_init(const char *name, const char *folder,
                       const char *system, struct weft_renderer *out,
                       struct weft_err *err);
void weft_renderer_release(struct weft_renderer *renderer);

/* The prompt's text. Messages need a template. The caller releases it. */
int weft_renderer_prompt(const struct weft_renderer *renderer,
                         const struct weft_row *row,
                         struct weft_str *text_out, struct weft_err *err);
/* Text to ids as this renderer's texts want it (a template says the
 * beginning-of-text token itself). Caller frees. */
int weft_renderer_encode(const struct weft_renderer *renderer,
                         const struct weft_tokenizer *tokenizer,
                         struct weft_str text, int32_t **token_out,
                         int32_t *n_out, struct weft_err *err);

struct weft_trainer;

/* Opens data.path, renders and tokenises every row (prompts; for SFT prompt
 * and response), applies data.max_prompt_tokens, and collects the ids that
 * end a response. Needs t->tokenizer and the actor's architecture. Errors
 * name file, line and key. */
int weft_prompts_load(struct weft_trainer *t, struct weft_err *err);
void weft_prompts_release(struct weft_trainer *t);

#endif
