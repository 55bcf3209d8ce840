/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of data as texts and token ids: through a chat template, or plain. */
#ifndef WEFT_RUN_RENDERER_H
#define WEFT_RUN_RENDERER_H

#include "model/chat.h"
#include "model/dataset.h"
#include "model/tokenizer.h"

struct weft_renderer_options {
    /* "none": plain texts; "auto": the folder's template where it has one,
     * else plain; or what weft_chat_open() takes */
    const char *template;
    const char *key;    /* what sets the template, for sentences */
    const char *folder; /* of the model */
    const char *system; /* put first; NULL: none */
    const char *date;   /* YYYY-MM-DD, for templates that write one */
};

/* All pointers are borrowed but chat. */
struct weft_renderer {
    struct weft_chat *chat; /* NULL: plain */
    const char *key, *folder, *system;
    bool automatic; /* "auto" */
};

/* A row's tokens; free with weft_free(). */
struct weft_rendered {
    int32_t *token; /* (n) */
    int32_t n;
    int32_t n_prompt; /* of them; what follows is the response */
    bool templated;   /* by a chat template, which ends its turns itself */
    bool cut;         /* the prompt's last tokens are not in the whole text */
};

/* Release with weft_renderer_release(). Errors: WEFT_EINVAL (a system message
 * without a template, a wrong date) and those of weft_chat_open(). */
int weft_renderer_init(const struct weft_renderer_options *options,
                       struct weft_renderer *out, struct weft_err *err);
void weft_renderer_release(struct weft_renderer *renderer);

/* The prompt's text, with the assistant's turn opened. The caller releases
 * it. Errors: WEFT_EINVAL (messages without a template; what the template
 * refuses), WEFT_EUNSUPPORTED. They name no row. */
int weft_renderer_prompt(const struct weft_renderer *renderer,
                         const struct weft_row *row,
                         struct weft_str *text_out, struct weft_err *err);

/* The ids of the prompt alone; n_prompt is n. */
int weft_renderer_encode_prompt(const struct weft_renderer *renderer,
                                const struct weft_tokenizer *tokenizer,
                                const struct weft_row *row,
                                struct weft_rendered *out,
                                struct weft_err *err);

/* The ids of prompt and response. With a template they are those of the whole
 * conversation, as TRL has them: the response is what follows the prompt with
 * the assistant's turn opened, so it holds what the template writes before
 * and behind the answer. Where the whole does not begin with the prompt, the
 * prompt is what both begin with (cut is set). */
int weft_renderer_encode_pair(const struct weft_renderer *renderer,
                              const struct weft_tokenizer *tokenizer,
                              const struct weft_row *row,
                              struct weft_rendered *out,
                              struct weft_err *err);

#endif
