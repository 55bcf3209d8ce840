/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: from messages to the text a model was trained on.
 *
 * The Jinja programs of model folders are not run. Their family is
 * recognised by the markers in them, and rendered here; a template of no
 * known family is an error, never a guess:
 *
 *     chatml   <|im_start|>role\n content <|im_end|>\n       (Qwen, SmolLM)
 *     llama3   <|start_header_id|>role<|end_header_id|>\n\n content <|eot_id|>
 *     mistral  [INST] content[/INST]                         (v1, v3, tekken)
 *     a pattern of the user's with {role} and {content}
 *
 * What a recognised template says beyond its family is honoured: the default
 * system message of Qwen2 and Qwen2.5, bos_token in front, the date lines of
 * Llama 3.1 and later ("Today Date: 26 Jul 2024", the templates' own default,
 * so that texts do not change with the calendar), and how Qwen3 leaves the
 * thinking of earlier turns out. Tools are not rendered.
 */
#ifndef WEFT_MODEL_CHAT_H
#define WEFT_MODEL_CHAT_H

#include "base/err.h"

struct weft_message {
    char *role; /* "system", "user", "assistant", "tool" */
    char *content;
};

struct weft_chat;

/* name: "chatml", "llama3", "mistral"; "auto": what `folder` holds
 * (chat_template.jinja, or chat_template in tokenizer_config.json); or a
 * pattern that contains {content}. folder may be NULL unless "auto". Free
 * with weft_chat_free(). Errors: WEFT_EINVAL (neither a name nor a pattern),
 * WEFT_ENOTFOUND (the folder has no template), WEFT_EUNSUPPORTED (a template
 * of an unknown family). */
int weft_chat_open(const char *name, const char *folder,
                   struct weft_chat **out, struct weft_err *err);
/* The family of a Jinja text; bos, eos: the texts of those tokens (NULL:
 * none). `name` stands in messages. */
int weft_chat_detect(const char *jinja, const char *bos, const char *eos,
                     const char *name, struct weft_chat **out,
                     struct weft_err *err);
void weft_chat_free(struct weft_chat *chat); /* NULL is allowed */

/* "chatml", "llama3", "mistral", "pattern". */
const char *weft_chat_family(const struct weft_chat *chat);

/* The text of n messages; add_generation_prompt opens the assistant's turn at
 * the end. It holds special tokens by name (also the beginning-of-text
 * token): encode it with WEFT_TOK_SPECIAL and without WEFT_TOK_ADD_BOS.
 * Caller frees. Errors: WEFT_EINVAL (no messages, roles the family cannot
 * render, user and assistant not alternating where they must). */
int weft_chat_render(const struct weft_chat *chat,
                     const struct weft_message *message, size_t n,
                     bool add_generation_prompt, char **text_out,
                     struct weft_err *err);

/* What ends the assistant's turn after its text: "<|im_end|>", "<|eot_id|>",
 * "</s>"; "" for a pattern with nothing after {content}. Borrowed. */
const char *weft_chat_turn_end(const struct weft_chat *chat);

#endif
