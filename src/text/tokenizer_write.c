/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer_impl.h"
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

static int check_special(const char *const *special, size_t n,
                         struct weft_err *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(special[i]);
        if (length < 2)
            return weft_err_set(err, WEFT_EINVAL,
                                "special token '%s' is too short; it needs "
                                "two characters or more, such as "
                                "'<|endoftext|>'",
                                special[i]);
        /* Two bytes of UTF-8 may be the symbol of one byte. */
        uint32_t c = 0;
        int first = weft_utf8_next(special[i], length, &c);
        if (!weft_utf8_valid(special[i], length)
            || ((size_t) first == length && weft_tok_symbol_byte(c) >= 0))
            return weft_err_set(err, WEFT_EINVAL,
                                "special token '%s' cannot be one: it is not "
                                "UTF-8, or the symbol of a byte",
                                special[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(special[i], special[k]) == 0)
                return weft_err_set(err, WEFT_EINVAL,
                                    "special token '%s' is given twice",
                                    special[i]);
    }
    return 0;
}

/* {"<symbol of byte 0>": 0, ...} */
static json_t *byte_vocab(void)
{
    json_t *vocab = json_object();
    for (int b = 0; vocab && b < 256; b++) {
        char symbol[4 + 1];
        int n = weft_utf8_put(weft_tok_byte_symbol((unsigned char) b),
                              symbol);
        symbol[n] = 0;
        if (json_object_set_new(vocab, symbol, json_integer(b))) {
            json_decref(vocab);
            vocab = NULL;
        }
    }
    return vocab;
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel",
                     "add_prefix_space", 0, "trim_offsets", 0, "use_regex",
                     0);
}

static json_t *added_tokens(const char *const *special, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        json_t *token = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                  (int) (256 + i), "content", special[i],
                                  "single_word", 0, "lstrip", 0, "rstrip", 0,
                                  "normalized", 0, "special", 1);
        if (json_array_append_new(list, token)) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

int weft_tokenizer_write_bytes(const char *path, const char *const *special,
                               size_t n, struct weft_err *err)
{
    int rc = check_special(special, n, err);
    if (rc)
        return rc;
    json_t *model = json_pack(
        "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE",
        "dropout", "unk_token", "continuing_subword_prefix",
        "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", 0, "vocab", byte_vocab(), "merges");
    json_t *root = json_pack(
        "{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0",
        "truncation", "padding", "added_tokens", added_tokens(special, n),
        "normalizer", "pre_tokenizer", byte_level(), "post_processor",
        "decoder", byte_level(), "model", model);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text)
        return weft_err_nomem(err, "a tokenizer", 0);
    rc = weft_file_write(path, text, strlen(text), err);
    free(text);
    return rc;
}
