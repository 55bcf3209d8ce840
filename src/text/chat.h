/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates make the text that a model was trained on from messages. A
 * template is a Jinja program (jinja.h), which a model folder has or which is
 * built in; the text is what `apply_chat_template` of Transformers gives for
 * the same messages. Besides the messages a template gets
 * add_generation_prompt, the folder's special tokens (bos_token, eos_token,
 * ...), `tools` and `documents` (none unless given), and strftime_now() of one
 * fixed day, so that texts do not change with the calendar.
 */
#ifndef WEFT_TEXT_CHAT_H
#define WEFT_TEXT_CHAT_H

#include <jansson.h>

#include "base/str.h"
#include "text/jinja/jinja.h"

struct weft_chat;

/* name: "folder", the template that `folder` holds (chat_template.jinja, or
 * chat_template in tokenizer_config.json; of several the one named
 * "default"); "chatml", "llama3", "mistral", built in; or a pattern that
 * contains {content}. folder may be NULL unless it is asked for. Free with
 * weft_chat_free(). Errors: WEFT_EINVAL (none of these), WEFT_ENOTFOUND (the
 * folder has no template), and those of weft_jinja_parse(). */
int weft_chat_open(const char *name, const char *folder,
                   const struct weft_date *date, struct weft_chat **out,
                   struct weft_err *err);
void weft_chat_free(struct weft_chat *chat); /* NULL is allowed */

/* True when the name is one that weft_chat_open() takes. */
bool weft_chat_is_name(const char *name);

/* The text of a list of messages ({"role", "content", ...}); variables, an
 * object or NULL, are given to the template ("tools", "enable_thinking");
 * add_generation_prompt opens the assistant's turn at the end. The text holds
 * special tokens by name, also the beginning-of-text token: encode it with
 * WEFT_TOK_SPECIAL and without WEFT_TOK_ADD_BOS. The caller releases it.
 * Errors: those of weft_jinja_render(). */
int weft_chat_render(const struct weft_chat *chat, const json_t *messages,
                     const json_t *variables, bool add_generation_prompt,
                     struct weft_str *text_out, struct weft_err *err);

/* The same, with the assistant's parts; marks_out as weft_jinja_render().
 */
int weft_chat_render_marked(const struct weft_chat *chat,
                            const json_t *messages, const json_t *variables,
                            bool add_generation_prompt,
                            struct weft_str *text_out,
                            struct weft_jinja_marks *marks_out,
                            struct weft_err *err);
/* Whether the template marks what the assistant says, as those built in do and
 * patterns; and where it is from: a file, a name. Borrowed. */
bool weft_chat_has_marks(const struct weft_chat *chat);
const char *weft_chat_source(const struct weft_chat *chat);

/* What the template writes behind the assistant's answer, such as
 * "<|im_end|>\n", "<|eot_id|>" or "</s>"; "" when that cannot be found out.
 * Borrowed. */
const char *weft_chat_turn_end(const struct weft_chat *chat);

#endif
