/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json, and texts. An input is a tokenizer, and behind a zero byte
 * a text for it; or, when it begins with 'T', a text for a tokenizer that has
 * some of everything.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static const char SOME[] =
    "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":"
    "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
    "\"Regex\":\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
    "\\\\p{N}{1,3}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]"
    "+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}]}"
    ",\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
    "\"ignore_merges\":true,\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,"
    "\"b\":2,\"ab\":3,\"aba\":4,\"\xc4\xa0\":5,\"\xc4\xa0\x61\":6,\"\xc3\xa3"
    "\":7},\"merges\":[\"a b\",\"ab a\",\"\xc4\xa0 a\"]},\"added_tokens\":[{"
    "\"id\":8,\"content\":\"<l>\",\"lstrip\":true,\"special\":true},{\"id\":"
    "9,\"content\":\"<r>\",\"rstrip\":true},{\"id\":10,\"content\":\"e\\u0301"
    "\",\"single_word\":true},{\"id\":11,\"content\":\" \",\"normalized\":"
    "false}]}";

/* Not NULL, so that nothing below is surprised. */
static struct weft_tokenizer *some(void)
{
    static struct weft_tokenizer *tok;
    struct weft_err err = {0};
    if (!tok
        && weft_tokenizer_parse(SOME, sizeof SOME - 1, "some", &tok, &err))
        abort();
    return tok;
}

static void use(const struct weft_tokenizer *tok, const char *text, size_t n)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        struct weft_err err = {0};
        int32_t *ids = NULL;
        size_t n_ids = 0, n_back = 0;
        char *back = NULL;
        if (weft_tokenizer_encode(tok, text, n, flags, &ids, &n_ids, &err))
            continue;
        if (weft_tokenizer_decode(tok, ids, n_ids, flags & 1, &back, &n_back,
                                  &err)
            == 0)
            weft_free(back);
        weft_free(ids);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    const char *text = (const char *) data;
    struct weft_tokenizer *tok = NULL;
    struct weft_err err = {0};
    weft_log_set_level(WEFT_LOG_ERROR);
    if (n > 0 && text[0] == 'T') {
        use(some(), text + 1, n - 1);
        return 0;
    }
    const char *end = n ? memchr(text, 0, n) : NULL;
    size_t n_json = end ? (size_t) (end - text) : n;
    if (weft_tokenizer_parse(text, n_json, "fuzz", &tok, &err) == 0) {
        if (end)
            use(tok, end + 1, n - n_json - 1);
        else
            use(tok, text, n);
        weft_tokenizer_free(tok);
    } else if (!err.text[0]) {
        abort(); /* an error without a sentence */
    }
    return 0;
}
