/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers: cut a text into pieces, each of which is tokenised alone. */
#ifndef WEFT_TEXT_PRETOKENIZE_H
#define WEFT_TEXT_PRETOKENIZE_H

#include <jansson.h>

#include "base/err.h"

struct weft_pretokenizer;

/* Reads the "pre_tokenizer" value of a tokenizer.json (NULL: missing).
 * `subject` begins the text of errors. Free with weft_pretokenizer_free().
 * Errors: WEFT_EUNSUPPORTED (a kind Weft does not have, named),
 * WEFT_EFORMAT, WEFT_ENOMEM. */
int weft_pretokenizer_read(const json_t *value, const char *subject,
                           struct weft_pretokenizer **out,
                           struct weft_err *err);
void weft_pretokenizer_free(struct weft_pretokenizer *pre); /* NULL is fine */

/* Called for each piece in order; the bytes are borrowed for the call.
 * A code other than 0 stops the run and is returned. */
typedef int (*weft_piece_fn)(void *ctx, const char *text, size_t n,
                             struct weft_err *err);

/* Memory for matching; one per thread. */
struct weft_pre_scratch;
/* NULL when memory is out. */
struct weft_pre_scratch *weft_pre_scratch_create(void);
void weft_pre_scratch_free(struct weft_pre_scratch *scratch);

/* Cuts n > 0 bytes of UTF-8 into pieces, none empty. Errors: what fn
 * returns; WEFT_EUNSUPPORTED when a pattern gives up on the text;
 * WEFT_ENOMEM. */
int weft_pretokenizer_run(const struct weft_pretokenizer *pre,
                          const char *text, size_t n,
                          struct weft_pre_scratch *scratch, weft_piece_fn fn,
                          void *ctx, struct weft_err *err);

#endif
