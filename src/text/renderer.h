/* SPDX-License-Identifier: Apache-2.0 */
/* Turns rows of data into texts and token ids, with a chat template or as
 * plain text. */
#ifndef WEFT_TEXT_RENDERER_H
#define WEFT_TEXT_RENDERER_H

#include "text/chat.h"
#include "text/dataset.h"
#include "text/tokenizer.h"

struct weft_renderer_options {
    /* "none": plain text; "auto": the folder's template if it has one, else
     * plain text; or a value that weft_chat_open() accepts */
    const char *template;
    const char *key;    /* key that sets the template, for messages */
    const char *folder; /* of the model */
    const char *system; /* system message that is put first; NULL: none */
    const char *date;   /* YYYY-MM-DD, for templates that write one */
};

/* All pointers except chat are borrowed. */
struct weft_renderer {
    struct weft_chat *chat; /* NULL: plain text */
    const char *key, *folder, *system;
    bool automatic; /* the template is "auto" */
};

/* A row's tokens; free `token` and `said` with weft_free(). */
struct weft_rendered {
    int32_t *token; /* (n) */
    int32_t n;
    bool *said; /* (n) whether the assistant says it; NULL: nobody asks */
    int32_t n_prompt; /* how many are the prompt; the response follows */
    bool templated;   /* by a chat template, which writes the ends of turns */
    bool cut;         /* the whole text lacks the prompt's last tokens */
};

/* Release with weft_renderer_release(). Errors: WEFT_EINVAL (a system message
 * without a template, a wrong date) and those of weft_chat_open(). */
int weft_renderer_init(const struct weft_renderer_options *options,
                       struct weft_renderer *out, struct weft_err *err);
void weft_renderer_release(struct weft_renderer *renderer);

/* The prompt's text, including what opens the assistant's turn. The caller
 * releases it. Errors, which do not name the row: WEFT_EINVAL (messages
 * without a template, messages that the template refuses),
 * WEFT_EUNSUPPORTED. */
int weft_renderer_prompt(const struct weft_renderer *renderer,
                         const struct weft_row *row,
                         struct weft_str *text_out, struct weft_err *err);

/* The ids of the prompt alone; n_prompt is n. */
int weft_renderer_encode_prompt(const struct weft_renderer *renderer,
                                const struct weft_tokenizer *tokenizer,
                                const struct weft_row *row,
                                struct weft_rendered *out,
                                struct weft_err *err);

/* The ids of prompt and response. With a template they are the ids of the
 * whole conversation, as in TRL. The response is what follows the prompt of
 * weft_renderer_encode_prompt(), so it includes what the template writes
 * before and after the answer. If the whole conversation does not begin with
 * that prompt, the prompt is their common beginning, and `cut` is set. */
int weft_renderer_encode_pair(const struct weft_renderer *renderer,
                              const struct weft_tokenizer *tokenizer,
                              const struct weft_row *row,
                              struct weft_rendered *out,
                              struct weft_err *err);

/* The ids of prompt and response by a template that marks what the assistant
 * says ({% generation %}), with these marks in said: an id is the assistant's
 * if a mark begins or ends in it, or it is between, as Transformers'
 * return_assistant_tokens_mask has it. n_prompt is the number of ids before the
 * first of them. Of a row whose response is not the last of the prompt's own
 * messages, the prompt's are left out, as in TRL. More errors: WEFT_EINVAL (no
 * template, one without marks, nothing of the row is marked). */
int weft_renderer_encode_turns(const struct weft_renderer *renderer,
                               const struct weft_tokenizer *tokenizer,
                               const struct weft_row *row,
                               struct weft_rendered *out,
                               struct weft_err *err);

#endif
