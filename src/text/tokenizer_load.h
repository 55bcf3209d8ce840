/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that load a tokenizer; no other file includes it. */
#ifndef WEFT_TEXT_TOKENIZER_LOAD_H
#define WEFT_TEXT_TOKENIZER_LOAD_H

#include <jansson.h>

#include "text/tokenizer_impl.h"

enum { WEFT_TOK_SUBJECT = 512 };

struct weft_tok_loading {
    struct weft_tokenizer *tok;
    const char *name; /* of the file */
    size_t n_vocab;   /* entries of model.vocab */
    struct weft_err *err;
};

/* Writes a subject such as "tokenizer.json: model.merges[7]" into out; returns
 * out. */
const char *weft_tok_subject(const struct weft_tok_loading *l,
                             char out[WEFT_TOK_SUBJECT], const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* The value of "type", or "". */
const char *weft_tok_type(const json_t *value);

/* Makes room for ids below n. */
int weft_tok_grow_tokens(struct weft_tok_loading *l, int32_t n);
/* Sets how an id is spelled, and what it decodes to. */
int weft_tok_set_token(struct weft_tok_loading *l, int32_t id,
                       const char *text, size_t n);
/* What a token decodes to: its symbols' bytes, or its own text when one of
 * its characters is no byte symbol. */
int weft_tok_set_bytes(struct weft_tok_loading *l, struct weft_tok_token *t,
                       const char *text, size_t n);

/* Reads the file's "added_tokens"; call it after the vocabulary is read. */
int weft_tok_read_added(struct weft_tok_loading *l, const json_t *root);
/* Reads "post_processor"; depth is 0 at the top and counts nested ones. */
int weft_tok_read_post(struct weft_tok_loading *l, const json_t *value,
                       int depth);

#endif
