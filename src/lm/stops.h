/* SPDX-License-Identifier: Apache-2.0 */
/* What ends responses: tokens by themselves, and texts, whatever tokens a
 * response spells them with. */
#ifndef WEFT_LM_STOPS_H
#define WEFT_LM_STOPS_H

#include "codelets/generation.h"
#include "text/tokenizer.h"

struct weft_stops {
    int32_t n_ids;
    int32_t id[WEFT_MAX_ENDS];
    struct weft_stop_texts text;
};

/* Adds an id, unless it is there. There is room for those of a model, the end of
 * a template's turn, and as many special tokens as texts. */
void weft_stops_add_id(struct weft_stops *stops, int32_t id);
/* Adds a text (borrowed): a special token of the tokenizer, which ends a
 * response itself, or any other text. Clear with weft_stops_release(), also
 * after an error: special tokens and text together, a text that no tokens of
 * `folder` one after another have in their bytes, too many. `key` names the
 * text in messages. */
int weft_stops_add_text(struct weft_stops *stops,
                        const struct weft_tokenizer *tokenizer,
                        const char *folder, const char *key, const char *text,
                        struct weft_err *err);
void weft_stops_release(struct weft_stops *stops);

/* Writes them to `args`, which borrows the texts. */
void weft_stops_set(const struct weft_stops *stops,
                    struct weft_gen_args *args);

#endif
