/* SPDX-License-Identifier: Apache-2.0 */
/* Loading added tokens, and what a post-processor puts around a text. */
#include "text/tokenizer_load.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"
#include "text/unicode/unicode.h"

#include <string.h>

/* ---- Added tokens ----------------------------------------------------- */

struct added_json {
    struct weft_tok_added token; /* content as in the file */
    int64_t id;
};

static int parse_added(struct weft_tok_loading *l, const json_t *item,
                       size_t i, struct added_json *out)
{
    struct weft_tok_added *t = &out->token;
    char s[WEFT_TOK_SUBJECT];
    weft_tok_subject(l, s, "added_tokens[%zu]", i);
    memset(out, 0, sizeof *out);
    if (!json_is_object(item))
        return weft_err_set(l->err, WEFT_EFORMAT,
                            "%s: must be an object, not %s", s,
                            weft_json_type(item));
    int rc = weft_json_string(item, s, "content", &t->content, l->err);
    if (!rc)
        rc = weft_json_int(item, s, "id", 0, WEFT_TOK_MAX_ID - 1, &out->id,
                           l->err);
    if (!rc)
        rc = weft_json_bool_or(item, s, "special", false, &t->special,
                               l->err);
    if (!rc)
        rc = weft_json_bool_or(item, s, "normalized", !t->special,
                               &t->normalized, l->err);
    if (!rc)
        rc = weft_json_bool_or(item, s, "single_word", false, &t->single_word,
                               l->err);
    if (!rc)
        rc = weft_json_bool_or(item, s, "lstrip", false, &t->lstrip, l->err);
    if (!rc)
        rc = weft_json_bool_or(item, s, "rstrip", false, &t->rstrip, l->err);
    if (!rc)
        t->n = (uint32_t) strlen(t->content);
    return rc;
}

/* The id that the library gives an added token: that of the vocabulary's entry
 * with its text, else the next free one. The file's own id
 * is ignored. */
static int32_t added_id(struct weft_tok_loading *l,
                        const struct weft_tok_added *t, int32_t *next)
{
    int32_t id = weft_tok_map_get(&l->tok->added_map, t->content, t->n);
    if (id < 0)
        id = weft_tok_map_get(&l->tok->vocab, t->content, t->n);
    return id >= 0 ? id : (*next)++;
}

static struct weft_tok_added *added_of_id(struct weft_tokenizer *tok,
                                          int32_t id)
{
    for (size_t i = tok->n_added; i-- > 0;)
        if (tok->added[i].id == id)
            return &tok->added[i];
    return NULL;
}

static int add_token(struct weft_tok_loading *l, struct added_json *a,
                     int32_t *next)
{
    struct weft_tokenizer *tok = l->tok;
    struct weft_tok_added t = a->token;
    bool known = weft_tok_map_get(&tok->added_map, t.content, t.n) >= 0;
    t.id = added_id(l, &t, next);
    if (t.id != a->id)
        weft_warn("%s: added token '%.100s' says id %lld but gets %d, as in "
                  "the tokenizers library",
                  l->name, t.content, (long long) a->id, t.id);
    int rc = weft_tok_grow_tokens(l, t.id + 1);
    if (!rc)
        rc = weft_tok_set_token(l, t.id, t.content, t.n);
    if (rc)
        return rc;
    t.content = tok->token[t.id].content;
    weft_tok_map_put(&tok->added_map, t.content, t.n, t.id);
    if (t.normalized && tok->nfc && !weft_unicode_nfc_quick(t.content, t.n)) {
        char *normal = NULL;
        size_t n = 0;
        rc = weft_unicode_nfc(t.content, t.n, &normal, &n, l->err);
        if (!rc && n > UINT32_MAX)
            rc = weft_err_nomem(l->err, "added tokens", n);
        if (!rc) {
            t.content = weft_tok_keep(&tok->chunk, normal, n, l->err);
            t.n = (uint32_t) n;
            rc = t.content
                   ? weft_tok_set_bytes(l, &tok->token[t.id], t.content, t.n)
                   : WEFT_ENOMEM;
        }
        weft_free(normal);
    }
    if (rc)
        return rc;
    /* A later entry of the same id replaces the first. */
    struct weft_tok_added *place = known ? added_of_id(tok, t.id) : NULL;
    bool special = t.special || (place && place->special);
    if (!place)
        place = &tok->added[tok->n_added++];
    *place = t;
    place->special = special;
    tok->token[t.id].special = special;
    return 0;
}

static int build_tries(struct weft_tok_loading *l)
{
    struct weft_tokenizer *tok = l->tok;
    for (size_t i = 0; i < tok->n_added; i++) {
        const struct weft_tok_added *t = &tok->added[i];
        int rc = weft_tok_trie_put(t->normalized ? &tok->normal : &tok->raw,
                                   t->content, t->n, (int32_t) i, l->err);
        if (rc) {
            weft_err_prefix(l->err, "%s", l->name);
            return rc;
        }
    }
    return 0;
}

int weft_tok_read_added(struct weft_tok_loading *l, const json_t *root)
{
    struct weft_tokenizer *tok = l->tok;
    json_t *list = NULL, *item;
    size_t i;
    int rc = weft_json_array_or(root, l->name, "added_tokens", &list, l->err);
    if (!rc)
        rc = weft_tok_map_init(&tok->added_map, json_array_size(list),
                               l->err);
    if (rc)
        return rc;
    tok->added = weft_alloc(json_array_size(list), sizeof *tok->added);
    if (!tok->added)
        return weft_err_nomem(l->err, "added tokens",
                              json_array_size(list) * sizeof *tok->added);
    int32_t next = (int32_t) l->n_vocab;
    json_array_foreach(list, i, item)
    {
        struct added_json a;
        rc = parse_added(l, item, i, &a);
        if (!rc && a.token.n > 0)
            rc = add_token(l, &a, &next);
        if (rc)
            return rc;
    }
    return build_tries(l);
}

/* ---- Post-processor --------------------------------------------------- */

/* Puts n ids in front of, or behind, those that the list has. */
static int wrap(struct weft_tok_loading *l, int32_t **list, size_t *count,
                const int32_t *id, size_t n, bool front)
{
    if (n == 0)
        return 0;
    int32_t *more = weft_realloc(*list, *count + n, sizeof *more);
    if (!more)
        return weft_err_nomem(l->err, "a post-processor",
                              (*count + n) * sizeof *more);
    if (front)
        memmove(more + n, more, *count * sizeof *more);
    memcpy(front ? more : more + *count, id, n * sizeof *more);
    *list = more;
    *count += n;
    return 0;
}

/* Reads the ids of a special token of a template. */
static int template_ids(struct weft_tok_loading *l, const json_t *value,
                        const char *name, struct weft_tok_ids *out)
{
    const json_t *tokens = json_object_get(value, "special_tokens");
    const json_t *ids = json_object_get(json_object_get(tokens, name), "ids");
    const json_t *item;
    size_t i;
    if (!json_is_array(ids))
        return weft_err_set(l->err, WEFT_EFORMAT,
                            "%s: post_processor: special token '%.100s' of "
                            "the template has no ids",
                            l->name, name);
    json_array_foreach(ids, i, item)
    {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= WEFT_TOK_MAX_ID)
            return weft_err_set(l->err, WEFT_EFORMAT,
                                "%s: post_processor: special token '%.100s' "
                                "has an id that is none",
                                l->name, name);
        int rc = weft_tok_ids_push(out, (int32_t) id, l->err);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_template(struct weft_tok_loading *l, const json_t *value)
{
    struct weft_tok_ids part[2] = {{0}, {0}}; /* before and after the text */
    json_t *single = NULL, *piece;
    char s[WEFT_TOK_SUBJECT];
    size_t i;
    int texts = 0;
    int rc = weft_json_array(value, weft_tok_subject(l, s, "post_processor"),
                             "single", &single, l->err);
    if (rc)
        return rc;
    json_array_foreach(single, i, piece)
    {
        const char *special = json_string_value(
            json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        const char *text = json_string_value(
            json_object_get(json_object_get(piece, "Sequence"), "id"));
        if (special)
            rc = template_ids(l, value, special, &part[texts > 0]);
        else if (text && strcmp(text, "A") == 0 && texts++ == 0)
            continue;
        else
            rc = weft_err_set(l->err, WEFT_EUNSUPPORTED,
                              "%s: 'single' must be special tokens around one"
                              " text",
                              s);
        if (rc)
            goto out;
    }
    if (texts != 1) {
        rc = weft_err_set(l->err, WEFT_EFORMAT,
                          "%s: 'single' does not hold the text", s);
        goto out;
    }
    rc = wrap(l, &l->tok->prefix, &l->tok->n_prefix, part[0].id, part[0].n,
              true);
    if (!rc)
        rc = wrap(l, &l->tok->suffix, &l->tok->n_suffix, part[1].id,
                  part[1].n, false);
out:
    weft_free(part[0].id);
    weft_free(part[1].id);
    return rc;
}

int weft_tok_read_post(struct weft_tok_loading *l, const json_t *value,
                       int depth)
{
    const char *type = weft_tok_type(value);
    if (!value || json_is_null(value) || strcmp(type, "ByteLevel") == 0)
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(l, value);
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const json_t *item;
        size_t i;
        json_array_foreach(json_object_get(value, "processors"), i, item)
        {
            int rc = weft_tok_read_post(l, item, 1);
            if (rc)
                return rc;
        }
        return 0;
    }
    return weft_err_set(l->err, WEFT_EUNSUPPORTED,
                        "%s: post_processor '%.40s' is not supported; Weft "
                        "knows TemplateProcessing and ByteLevel",
                        l->name, type);
}
