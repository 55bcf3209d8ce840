/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tokenizer.json into the tables of a tokenizer. */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer_load.h"
#include "text/unicode/unicode.h"

#include <stdio.h>
#include <string.h>

const char *weft_tok_subject(const struct weft_tok_loading *l,
                             char out[WEFT_TOK_SUBJECT], const char *fmt, ...)
{
    char where[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    snprintf(out, WEFT_TOK_SUBJECT, "%.300s: %s", l->name, where);
    return out;
}

const char *weft_tok_type(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return type ? type : "";
}

/* ---- Parts that are known or refused ---------------------------------- */

static int read_normalizer(struct weft_tok_loading *l, const json_t *value)
{
    const char *type = weft_tok_type(value);
    if (!value || json_is_null(value))
        return 0;
    if (strcmp(type, "NFC") == 0) {
        l->tok->nfc = true;
        return 0;
    }
    if (strcmp(type, "Sequence") == 0) {
        const json_t *item;
        size_t i;
        json_array_foreach(json_object_get(value, "normalizers"), i, item)
        {
            if (strcmp(weft_tok_type(item), "Sequence") == 0)
                break; /* nobody nests them */
            int rc = read_normalizer(l, item);
            if (rc)
                return rc;
        }
        if (i == json_array_size(json_object_get(value, "normalizers")))
            return 0;
    }
    return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                        "%s: normalizer '%.40s' is not supported; Weft reads "
                        "byte-level BPE, whose normalizer is NFC or null",
                        l->name, type);
}

static int read_decoder(struct weft_tok_loading *l, const json_t *value)
{
    const json_t *list = json_object_get(value, "decoders");
    if (strcmp(weft_tok_type(value), "Sequence") == 0
        && json_array_size(list) == 1)
        value = json_array_get(list, 0);
    if (strcmp(weft_tok_type(value), "ByteLevel") == 0)
        return 0;
    return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                        "%s: decoder '%.40s' is not supported; Weft reads "
                        "byte-level BPE, whose decoder is ByteLevel",
                        l->name,
                        *weft_tok_type(value) ? weft_tok_type(value)
                                              : weft_json_type(value));
}

/* Refuses models other than BPE by name. */
static int check_kind(struct weft_tok_loading *l, const json_t *model)
{
    static const struct {
        const char *type, *like;
    } others[] = {{"Unigram", "a SentencePiece tokenizer"},
                  {"WordPiece", "as BERT's"},
                  {"WordLevel", "a list of words"}};
    const char *type = weft_tok_type(model);
    for (size_t i = 0; i < WEFT_COUNT(others); i++)
        if (strcmp(type, others[i].type) == 0)
            return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                                "%s: a %s tokenizer (%s) is not supported; "
                                "Weft reads byte-level BPE",
                                l->name, type, others[i].like);
    /* GPT-2's own file has no type, so an absent one is allowed. */
    if (*type && strcmp(type, "BPE") != 0)
        return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                            "%s: model.type '%.40s' is not supported; Weft "
                            "reads byte-level BPE",
                            l->name, type);
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                            "%s: BPE with byte_fallback (a SentencePiece-like"
                            " tokenizer, as of Llama-2) is not supported; "
                            "Weft reads byte-level BPE",
                            l->name);
    return 0;
}

static int check_options(struct weft_tok_loading *l, const json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    char s[WEFT_TOK_SUBJECT];
    const char *affix = NULL;
    double dropout = 0;
    weft_tok_subject(l, s, "model");
    for (size_t i = 0; i < WEFT_COUNT(affixes); i++) {
        int rc = weft_json_string_or(model, s, affixes[i], "", &affix,
                                     l->err);
        if (rc)
            return rc;
        if (*affix)
            return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                                "%s: '%s' is not supported; byte-level BPE "
                                "has none",
                                s, affixes[i]);
    }
    int rc = weft_json_double_or(model, s, "dropout", 0, &dropout, l->err);
    if (!rc && (dropout < 0 || dropout > 0))
        rc = weft_err_set(l->err, WEFT_EUNSUPPORTED,
                          "%s: 'dropout' is %g; tokens would be random, set "
                          "it to null",
                          s, dropout);
    if (!rc)
        rc = weft_json_bool_or(model, s, "fuse_unk", false, &l->tok->fuse_unk,
                               l->err);
    if (!rc)
        rc = weft_json_bool_or(model, s, "ignore_merges", false,
                               &l->tok->ignore_merges, l->err);
    return rc;
}

/* ---- Vocabulary ------------------------------------------------------- */

int weft_tok_grow_tokens(struct weft_tok_loading *l, int32_t n)
{
    struct weft_tokenizer *tok = l->tok;
    if (n <= tok->n_tokens)
        return 0;
    struct weft_tok_token *more = weft_realloc(tok->token, (size_t) n,
                                               sizeof *more);
    if (!more)
        return weft_err_nomem(l->err, "a vocabulary",
                              (size_t) n * sizeof *more);
    memset(more + tok->n_tokens, 0,
           (size_t) (n - tok->n_tokens) * sizeof *more);
    tok->token = more;
    tok->n_tokens = n;
    return 0;
}

/* What a token decodes to: its symbols' bytes, or its own text when one of
 * its characters is no byte symbol. */
int weft_tok_set_bytes(struct weft_tok_loading *l, struct weft_tok_token *t,
                       const char *text, size_t n)
{
    char *copy = weft_tok_keep(&l->tok->chunk, text, n, l->err);
    if (!copy)
        return WEFT_ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int length = weft_utf8_next(text + i, n - i, &c);
        int byte = length > 0 ? weft_tok_symbol_byte(c) : -1;
        if (byte < 0) {
            memcpy(copy, text, n);
            at = n;
            break;
        }
        copy[at++] = (char) byte;
        i += (size_t) length;
    }
    copy[at] = 0;
    t->bytes = copy;
    t->n_bytes = (uint32_t) at;
    return 0;
}

int weft_tok_set_token(struct weft_tok_loading *l, int32_t id,
                       const char *text, size_t n)
{
    struct weft_tok_token *t = &l->tok->token[id];
    t->content = weft_tok_keep(&l->tok->chunk, text, n, l->err);
    if (!t->content)
        return WEFT_ENOMEM;
    t->n_content = (uint32_t) n;
    return weft_tok_set_bytes(l, t, text, n);
}

static int check_id(struct weft_tok_loading *l, const char *key,
                    const json_t *value)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0)
        return weft_err_set(l->err, WEFT_EFORMAT,
                            "%s: model.vocab: the id of '%.100s' must be an "
                            "integer from 0 on, not %s",
                            l->name, key,
                            json_is_integer(value) ? "negative"
                                                   : weft_json_type(value));
    if (id >= WEFT_TOK_MAX_ID)
        return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                            "%s: model.vocab: the id %lld of '%.100s' is too "
                            "large; Weft takes ids below %d",
                            l->name, (long long) id, key, WEFT_TOK_MAX_ID);
    return 0;
}

static int read_vocab(struct weft_tok_loading *l, const json_t *model)
{
    struct weft_tokenizer *tok = l->tok;
    char s[WEFT_TOK_SUBJECT];
    json_t *vocab = NULL, *value;
    const char *key;
    int32_t size = 0;
    int rc = weft_json_object(model, weft_tok_subject(l, s, "model"), "vocab",
                              &vocab, l->err);
    if (rc)
        return rc;
    json_object_foreach(vocab, key, value)
    {
        rc = check_id(l, key, value);
        if (rc)
            return rc;
        if ((int32_t) json_integer_value(value) >= size)
            size = (int32_t) json_integer_value(value) + 1;
    }
    l->n_vocab = json_object_size(vocab);
    rc = weft_tok_map_init(&tok->vocab, l->n_vocab, l->err);
    if (!rc)
        rc = weft_tok_grow_tokens(l, size);
    if (rc)
        return rc;
    json_object_foreach(vocab, key, value)
    {
        int32_t id = (int32_t) json_integer_value(value);
        size_t n = strlen(key);
        if (tok->token[id].content)
            return weft_err_set(l->err, WEFT_EFORMAT,
                                "%s: model.vocab: '%.100s' and '%.100s' both "
                                "have id %d",
                                l->name, tok->token[id].content, key, id);
        rc = weft_tok_set_token(l, id, key, n);
        if (rc)
            return rc;
        weft_tok_map_put(&tok->vocab, tok->token[id].content, n, id);
        if (n > tok->longest)
            tok->longest = n;
    }
    for (int b = 0; b < 256; b++) {
        char symbol[4];
        int n = weft_utf8_put(weft_tok_byte_symbol((unsigned char) b),
                              symbol);
        tok->byte_id[b] = weft_tok_map_get(&tok->vocab, symbol, (size_t) n);
    }
    return 0;
}

static int read_unknown(struct weft_tok_loading *l, const json_t *model)
{
    char s[WEFT_TOK_SUBJECT];
    const char *unk = NULL;
    int rc = weft_json_string_or(model, weft_tok_subject(l, s, "model"),
                                 "unk_token", NULL, &unk, l->err);
    l->tok->unk_id = -1;
    if (rc || !unk)
        return rc;
    l->tok->unk_id = weft_tok_map_get(&l->tok->vocab, unk, strlen(unk));
    if (l->tok->unk_id >= 0)
        return 0;
    /* A missing unknown token matters only if some byte has no token. */
    for (int b = 0; b < 256; b++)
        if (l->tok->byte_id[b] < 0)
            return weft_err_set(l->err, WEFT_EFORMAT,
                                "%s: unk_token '%.100s' is not in model.vocab"
                                ", nor is the symbol of byte %d",
                                s, unk, b);
    return 0;
}

/* ---- Merges ----------------------------------------------------------- */

/* Reads both halves of a merge, "a b" or ["a", "b"]. */
static int merge_halves(struct weft_tok_loading *l, const json_t *item,
                        size_t i, const char *half[2], size_t n[2])
{
    const char *text = json_string_value(item);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (space && !strchr(space + 1, ' ')) {
        half[0] = text;
        n[0] = (size_t) (space - text);
        half[1] = space + 1;
        n[1] = strlen(space + 1);
        return 0;
    }
    if (json_array_size(item) == 2) {
        for (size_t k = 0; k < 2; k++) {
            half[k] = json_string_value(json_array_get(item, k));
            n[k] = half[k] ? strlen(half[k]) : 0;
        }
        if (half[0] && half[1])
            return 0;
    }
    return weft_err_set(l->err, WEFT_EFORMAT,
                        "%s: model.merges[%zu] must be \"left right\" or "
                        "[\"left\", \"right\"]",
                        l->name, i);
}

static int read_merge(struct weft_tok_loading *l, const json_t *item,
                      size_t i, uint32_t rank)
{
    const char *half[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    struct weft_tokenizer *tok = l->tok;
    int rc = merge_halves(l, item, i, half, n);
    if (rc)
        return rc;
    int32_t left = weft_tok_map_get(&tok->vocab, half[0], n[0]);
    int32_t right = weft_tok_map_get(&tok->vocab, half[1], n[1]);
    if (left < 0 || right < 0)
        return weft_err_set(l->err, WEFT_EFORMAT,
                            "%s: model.merges[%zu]: '%.100s' is not in "
                            "model.vocab",
                            l->name, i, left < 0 ? half[0] : half[1]);
    /* The sum cannot overflow: each half is a token, so it is not longer than
     * the longest one. */
    if (n[0] + n[1] > tok->longest)
        return weft_err_set(l->err, WEFT_EFORMAT,
                            "%s: model.merges[%zu]: '%.60s' and '%.60s' "
                            "together are not in model.vocab",
                            l->name, i, half[0], half[1]);
    char *both = weft_alloc(n[0] + n[1] + 1, 1);
    if (!both)
        return weft_err_nomem(l->err, "merges", n[0] + n[1] + 1);
    memcpy(both, half[0], n[0]);
    memcpy(both + n[0], half[1], n[1]);
    int32_t id = weft_tok_map_get(&tok->vocab, both, n[0] + n[1]);
    if (id < 0)
        rc = weft_err_set(l->err, WEFT_EFORMAT,
                          "%s: model.merges[%zu]: '%.100s' is not in "
                          "model.vocab",
                          l->name, i, both);
    else
        weft_tok_merges_put(&tok->merges,
                            (struct weft_tok_merge){left, right, rank, id});
    weft_free(both);
    return rc;
}

static int read_merges(struct weft_tok_loading *l, const json_t *model)
{
    char s[WEFT_TOK_SUBJECT];
    json_t *merges = NULL, *item;
    size_t i;
    uint32_t rank = 0;
    int rc = weft_json_array(model, weft_tok_subject(l, s, "model"), "merges",
                             &merges, l->err);
    if (!rc)
        rc = weft_tok_merges_init(&l->tok->merges, json_array_size(merges),
                                  l->err);
    if (rc)
        return rc;
    json_array_foreach(merges, i, item)
    {
        const char *text = json_string_value(item);
        if (text && strncmp(text, "#version", 8) == 0)
            continue; /* old files have the first line of merges.txt here */
        rc = read_merge(l, item, i, rank++);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- All of it -------------------------------------------------------- */

static int load(struct weft_tok_loading *l, const json_t *root)
{
    char s[WEFT_TOK_SUBJECT];
    json_t *model = NULL;
    if (!json_is_object(root))
        return weft_err_set(l->err, WEFT_EFORMAT,
                            "%s: must be an object, not %s", l->name,
                            weft_json_type(root));
    int rc = weft_json_object(root, l->name, "model", &model, l->err);
    if (!rc)
        rc = check_kind(l, model);
    if (!rc)
        rc = read_normalizer(l, json_object_get(root, "normalizer"));
    if (!rc)
        rc = weft_pretokenizer_read(json_object_get(root, "pre_tokenizer"),
                                    weft_tok_subject(l, s, "pre_tokenizer"),
                                    &l->tok->pre, l->err);
    if (!rc)
        rc = read_decoder(l, json_object_get(root, "decoder"));
    if (!rc)
        rc = check_options(l, model);
    if (!rc)
        rc = read_vocab(l, model);
    if (!rc)
        rc = read_unknown(l, model);
    if (!rc)
        rc = read_merges(l, model);
    if (!rc)
        rc = weft_tok_read_added(l, root);
    if (!rc)
        rc = weft_tok_read_post(l, json_object_get(root, "post_processor"),
                                0);
    if (!rc && l->tok->n_tokens == 0)
        rc = weft_err_set(l->err, WEFT_EFORMAT, "%s: has no tokens", l->name);
    return rc;
}

int weft_tokenizer_parse(const char *json, size_t n, const char *name,
                         struct weft_tokenizer **out, struct weft_err *err)
{
    struct weft_tok_loading l = {.name = name, .err = err};
    json_t *root = NULL;
    int rc = weft_json_parse(json, n, name, &root, err);
    if (rc)
        return rc;
    l.tok = weft_alloc(1, sizeof *l.tok);
    rc = l.tok ? load(&l, root)
               : weft_err_nomem(err, "a tokenizer", sizeof *l.tok);
    json_decref(root);
    if (rc) {
        weft_tokenizer_free(l.tok);
        return rc;
    }
    *out = l.tok;
    return 0;
}

int weft_tokenizer_open(const char *dir_or_file, struct weft_tokenizer **out,
                        struct weft_err *err)
{
    char *text = NULL;
    size_t n = 0;
    char *path = weft_dir_exists(dir_or_file)
                   ? weft_path_join(dir_or_file, "tokenizer.json")
                   : weft_strdup(dir_or_file);
    if (!path)
        return weft_err_nomem(err, "a path", strlen(dir_or_file) + 16);
    int rc = weft_file_read(path, (size_t) 1 << 30, &text, &n, err);
    if (!rc)
        rc = weft_tokenizer_parse(text, n, path, out, err);
    weft_free(text);
    weft_free(path);
    return rc;
}

void weft_tokenizer_free(struct weft_tokenizer *tok)
{
    if (!tok)
        return;
    weft_free(tok->token);
    weft_tok_chunks_free(tok->chunk);
    weft_tok_map_release(&tok->vocab);
    weft_tok_map_release(&tok->added_map);
    weft_tok_merges_release(&tok->merges);
    weft_pretokenizer_free(tok->pre);
    weft_free(tok->added);
    weft_tok_trie_release(&tok->raw);
    weft_tok_trie_release(&tok->normal);
    weft_free(tok->prefix);
    weft_free(tok->suffix);
    weft_free(tok);
}
