/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer is put into a model folder. */
#include "text/tokenizer.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

/* The byte tokenizer's special tokens; the first ends a text. */
static const char *const byte_specials[] = {"<|endoftext|>", "<|im_start|>",
                                            "<|im_end|>"};
static const char byte_config[] =
    "{\n"
    "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
    "  \"eos_token\": \"<|endoftext|>\",\n"
    "  \"pad_token\": \"<|endoftext|>\",\n"
    "  \"clean_up_tokenization_spaces\": false\n"
    "}\n";

/* The files of a tokenizer in a Hugging Face folder; only the first is
 * required. */
static const char *const tokenizer_files[] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",   "vocab.json",
    "merges.txt"};

static int write_byte_tokenizer(const char *dir, struct weft_err *err)
{
    char *json = weft_path_join(dir, tokenizer_files[0]);
    char *config = weft_path_join(dir, tokenizer_files[1]);
    int rc = json && config ? 0 : weft_err_nomem(err, dir, strlen(dir));
    if (!rc)
        rc = weft_tokenizer_write_bytes(json, byte_specials,
                                        WEFT_COUNT(byte_specials), err);
    if (!rc)
        rc = weft_file_write(config, byte_config, sizeof byte_config - 1,
                             err);
    weft_free(json);
    weft_free(config);
    return rc;
}

static int copy_tokenizer(const char *from, const char *dir,
                          struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < WEFT_COUNT(tokenizer_files) && !rc; i++) {
        char *a = weft_path_join(from, tokenizer_files[i]);
        char *b = weft_path_join(dir, tokenizer_files[i]);
        if (!a || !b)
            rc = weft_err_nomem(err, dir, strlen(dir));
        else if (weft_file_exists(a))
            rc = weft_file_copy(a, b, err);
        else if (i == 0)
            rc = weft_err_set(err, WEFT_ENOTFOUND,
                              "no tokenizer in '%s': it has no "
                              "tokenizer.json",
                              from);
        weft_free(a);
        weft_free(b);
    }
    return rc;
}

/* The id of a key such as "eos_token", which holds a text, or a map with its
 * content. -1: none. */
static int32_t special_id(const struct weft_tokenizer *tok,
                          const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);
    if (json_is_object(v))
        v = json_object_get(v, "content");
    return json_is_string(v) ? weft_tokenizer_find(tok, json_string_value(v))
                             : -1;
}

static int read_ids(const char *dir, struct weft_tokenizer_ids *out,
                    struct weft_err *err)
{
    struct weft_tokenizer *tok = NULL;
    char *path = weft_path_join(dir, tokenizer_files[1]), *text = NULL;
    size_t n;
    json_t *config = NULL;
    int rc = path ? weft_tokenizer_open(dir, &tok, err)
                  : weft_err_nomem(err, dir, strlen(dir));
    if (!rc && weft_file_exists(path)) {
        json_error_t e;
        rc = weft_file_read(path, (size_t) 16 << 20, &text, &n, err);
        config = rc ? NULL : json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
        if (!rc && !config)
            rc = weft_err_set(err, WEFT_EFORMAT, "'%s': line %d: %s", path,
                              e.line, e.text);
    }
    if (!rc)
        *out = (struct weft_tokenizer_ids){
            .size = weft_tokenizer_size(tok),
            .bos = special_id(tok, config, "bos_token"),
            .eos = special_id(tok, config, "eos_token"),
            .pad = special_id(tok, config, "pad_token")};
    json_decref(config);
    weft_free(text);
    weft_free(path);
    weft_tokenizer_free(tok);
    return rc;
}

int weft_tokenizer_place(const char *which, const char *dir,
                         struct weft_tokenizer_ids *out, struct weft_err *err)
{
    int rc = strcmp(which, "bytes") == 0 ? write_byte_tokenizer(dir, err)
                                         : copy_tokenizer(which, dir, err);
    return rc ? rc : read_ids(dir, out, err);
}
