/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-level BPE tokenizers as Hugging Face's `tokenizer.json` describes
 * them; ids and texts agree with the `tokenizers` library.
 *
 *     text -> added tokens -> NFC -> pre-tokenizer -> merges -> ids
 *
 * A tokenizer is never changed after it was opened: any number of threads may
 * use one. Tokenizers of other kinds (SentencePiece-like, Unigram, WordPiece)
 * are refused by name.
 */
#ifndef WEFT_TEXT_TOKENIZER_H
#define WEFT_TEXT_TOKENIZER_H

#include "base/err.h"

struct weft_tokenizer;

enum weft_tok_flags {
    /* Special tokens spelled in the text become their ids. Without it they are
     * text; added tokens that are not special are always found. */
    WEFT_TOK_SPECIAL = 1,
    /* Add what the file's post_processor adds (Llama-3: the
     * beginning-of-text token; GPT-2, Qwen: nothing). */
    WEFT_TOK_ADD_BOS = 2
};

/* Reads <dir>/tokenizer.json, or the file itself. Close with
 * weft_tokenizer_free(). Errors: WEFT_ENOTFOUND, WEFT_EFORMAT (the sentence
 * names file and key), WEFT_EUNSUPPORTED (another kind of tokenizer). */
int weft_tokenizer_open(const char *dir_or_file, struct weft_tokenizer **out,
                        struct weft_err *err);
/* The same from n bytes of JSON; `name` names them in messages. */
int weft_tokenizer_parse(const char *json, size_t n, const char *name,
                         struct weft_tokenizer **out, struct weft_err *err);
void weft_tokenizer_free(struct weft_tokenizer *tok); /* NULL is allowed */

/* Encodes n_bytes of text into token ids; each maximal part that is not UTF-8
 * counts as U+FFFD. flags: weft_tok_flags. The caller frees ids_out with
 * weft_free(); it is not NULL even for no ids. Errors: WEFT_ENOMEM, and
 * WEFT_EUNSUPPORTED when the file's pattern gives up on the text. */
int weft_tokenizer_encode(const struct weft_tokenizer *tok, const char *text,
                          size_t n_bytes, unsigned flags, int32_t **ids_out,
                          size_t *n_out, struct weft_err *err);

/* The same, and which ids hold some bytes of the text: at (n_at) are ascending
 * offsets below n_bytes, index_out[i] is the index of the id that holds the
 * byte at[i], or the next id's where no id holds it, or *n_out. Where NFC
 * changes the text, a byte is found by what is in front of it. */
int weft_tokenizer_encode_at(const struct weft_tokenizer *tok,
                             const char *text, size_t n_bytes, unsigned flags,
                             size_t n_at, const size_t *at, int32_t **ids_out,
                             size_t *n_out, size_t *index_out,
                             struct weft_err *err);

/* Decodes n ids into zero-terminated text; bytes that do not form UTF-8 become
 * U+FFFD. Ids without a token, as padded embeddings have them, give nothing,
 * as in the library. skip_special leaves special tokens out. The caller frees
 * text_out with weft_free(). Errors: WEFT_EINVAL (negative id). */
int weft_tokenizer_decode(const struct weft_tokenizer *tok,
                          const int32_t *ids, size_t n, bool skip_special,
                          char **text_out, size_t *n_out,
                          struct weft_err *err);

/* One more than the largest id. */
int32_t weft_tokenizer_size(const struct weft_tokenizer *tok);

/* The id of a token as the file spells it ("<|endoftext|>"), or -1. */
int32_t weft_tokenizer_find(const struct weft_tokenizer *tok,
                            const char *content);

/* The file's spelling of an id, or NULL when it has no token. Borrowed. */
const char *weft_tokenizer_content(const struct weft_tokenizer *tok,
                                   int32_t id);

/* What an id decodes to: *n_out bytes, which need not be UTF-8. Borrowed. */
const char *weft_tokenizer_bytes(const struct weft_tokenizer *tok, int32_t id,
                                 size_t *n_out);

/* True for an added token marked special. */
bool weft_tokenizer_is_special(const struct weft_tokenizer *tok, int32_t id);

/* Writes a tokenizer.json of 256 one-byte tokens (id = byte), without merges,
 * and n special tokens from id 256 on; no pattern splits the text. Hugging
 * Face's library can read it. Errors: WEFT_EINVAL (an empty, duplicate, or
 * one-byte special token), and those of weft_file_write(). */
int weft_tokenizer_write_bytes(const char *path, const char *const *special,
                               size_t n, struct weft_err *err);

/* What a model's configuration says of its tokenizer; an id is -1 for none. */
struct weft_tokenizer_ids {
    int32_t size; /* weft_tokenizer_size() */
    int32_t bos, eos, pad;
};

/* Puts a tokenizer into a model folder: `which` is "bytes" for a byte-level
 * one, or a folder whose tokenizer is copied. Errors: WEFT_ENOTFOUND,
 * WEFT_EFORMAT, those of writing files. */
int weft_tokenizer_place(const char *which, const char *dir,
                         struct weft_tokenizer_ids *out,
                         struct weft_err *err);

#endif
