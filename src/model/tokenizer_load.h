/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that load a tokenizer share; nobody else includes it. */
#ifndef WEFT_MODEL_TOKENIZER_LOAD_H
#define WEFT_MODEL_TOKENIZER_LOAD_H

#include <jansson.h>

#include "model/tokenizer_impl.h"

enum { WEFT_TOK_SUBJECT = 512 };

struct weft_tok_loading {
    struct weft_tokenizer *tok;
    const char *name; /* of the file */
    size_t n_vocab;   /* entries of model.vocab */
    struct weft_err *err;
};

/* "tokenizer.json: model.merges[7]" into out; returns out. */
const char *weft_tok_subject(const struct weft_tok_loading *l,
                             char out[WEFT_TOK_SUBJECT], const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* The value of "type", or "". */
const char *weft_tok_type(const json_t *value);

/* Makes room for ids below n. */
int weft_tok_grow_tokens(struct weft_tok_loading *l, int32_t n);
/* What id is spelled like, and decodes to. */
int weft_tok_set_token(struct weft_tok_loading *l, int32_t id,
                       const char *text, size_t n);
/* What a token decodes to: its symbols' bytes, or its own text when one of
 * its characters is no byte symbol. */
int weft_tok_set_bytes(struct weft_tok_loading *l, struct weft_tok_token *t,
                       const char *text, size_t n);

/* The file's "added_tokens"; after the vocabulary. */
int weft_tok_read_added(struct weft_tok_loading *l, const json_t *root);
/* "post_processor"; depth 0. */
int weft_tok_read_post(struct weft_tok_loading *l, const json_t *value,
                       int depth);

#endif
