/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "text/tokenizer_impl.h"
#include "text/unicode/unicode.h"

#include <string.h>

/* ---- Encoding --------------------------------------------------------- */

/* Offsets whose ids are looked for. */
struct places {
    size_t next;      /* those before `next` are found */
    size_t limit;     /* those from `limit` on are behind this part */
    size_t *at;       /* offsets in the text, then indices of ids */
    const char *text; /* the part: its first byte, ... */
    size_t offset;    /* ... and that byte's offset */
};

struct encoding {
    const struct weft_tokenizer *tok;
    bool special; /* whether to find special tokens too */
    struct weft_tok_ids ids;
    struct weft_tok_word word;
    struct weft_pre_scratch *scratch; /* created with the first piece */
    struct places places;
    struct weft_err *err;
};

/* The places up to `end`, which is in the part, are in id number `id`. */
static void found(struct encoding *e, const char *end, size_t id)
{
    struct places *p = &e->places;
    while (p->next < p->limit
           && p->at[p->next] < p->offset + (size_t) (end - p->text))
        p->at[p->next++] = id;
}

static int piece(void *ctx, const char *text, size_t n, struct weft_err *err)
{
    struct encoding *e = ctx;
    const struct weft_tok_ids *ids = &e->ids;
    size_t id = ids->n;
    int rc = weft_tok_merge_piece(e->tok, text, n, &e->word, &e->ids, err);
    if (rc || e->places.next == e->places.limit)
        return rc;
    for (const char *at = text; id < ids->n; id++) {
        size_t left = n - (size_t) (at - text);
        size_t length = e->tok->token[ids->id[id]].n_bytes;
        at += id + 1 == ids->n || length > left ? left : length;
        found(e, at, id);
    }
    return 0;
}

static int encode_plain(struct encoding *e, const char *text, size_t n)
{
    if (!e->scratch) {
        e->scratch = weft_pre_scratch_create();
        if (!e->scratch)
            return weft_err_nomem(e->err, "a tokenizer", 0);
    }
    return weft_pretokenizer_run(e->tok->pre, text, n, e->scratch, piece, e,
                                 e->err);
}

/* The character that ends before text + at. */
static uint32_t character_before(const char *text, size_t at)
{
    uint32_t c = 0;
    size_t start = at - 1;
    while (start > 0 && (text[start] & 0xc0) == 0x80)
        start--;
    (void) weft_utf8_next(text + start, at - start, &c);
    return c;
}

/* Whether there is no letter on either side, as a token with single_word
 * requires. */
static bool is_single(const char *text, size_t n, size_t start, size_t end)
{
    uint32_t c = 0;
    if (start > 0 && weft_unicode_is_word(character_before(text, start)))
        return false;
    if (end == n)
        return true;
    (void) weft_utf8_next(text + end, n - end, &c);
    return !weft_unicode_is_word(c);
}

static size_t strip_left(const char *text, size_t start, size_t least)
{
    while (start > least) {
        char symbol[4];
        uint32_t c = character_before(text, start);
        if (!weft_unicode_is_space(c))
            break;
        start -= (size_t) weft_utf8_put(c, symbol);
    }
    return start;
}

static size_t strip_right(const char *text, size_t n, size_t end)
{
    while (end < n) {
        uint32_t c = 0;
        int length = weft_utf8_next(text + end, n - end, &c);
        if (!weft_unicode_is_space(c))
            break;
        end += (size_t) length;
    }
    return end;
}

typedef int (*part_fn)(struct encoding *e, const char *text, size_t n);

/* Cuts the text at added tokens, leftmost and longest first, and gives the
 * text between them to fn. */
static int cut(struct encoding *e, const struct weft_tok_trie *trie,
               const char *text, size_t n, part_fn fn)
{
    size_t done = 0, length = 0;
    for (size_t at = 0; at < n;) {
        int32_t i = trie->first[(unsigned char) text[at]]
                      ? weft_tok_trie_longest(trie, text + at, n - at,
                                              &length)
                      : -1;
        if (i < 0) {
            at++;
            continue;
        }
        const struct weft_tok_added *t = &e->tok->added[i];
        size_t start = at, end = at + length;
        at = end; /* a match that is discarded below is skipped too */
        if ((t->special && !e->special)
            || (t->single_word && !is_single(text, n, start, end)))
            continue;
        if (t->lstrip) /* it may not take spaces that an rstrip has taken */
            start = done > start ? done : strip_left(text, start, done);
        if (t->rstrip)
            end = strip_right(text, n, end);
        if (start >= end)
            continue; /* an rstrip took the token itself, which is a space */
        int rc = done < start ? fn(e, text + done, start - done) : 0;
        if (!rc)
            rc = weft_tok_ids_push(&e->ids, t->id, e->err);
        if (rc)
            return rc;
        found(e, text + end, e->ids.n - 1);
        done = end;
    }
    return done < n ? fn(e, text + done, n - done) : 0;
}

/* Sets the places in n bytes of the part to what they are after NFC, whose text
 * becomes the part; the caller puts the part back that is returned. */
static int enter_normal(struct encoding *e, const char *text, size_t n,
                        const char *normal, struct places *before)
{
    struct places *p = &e->places;
    size_t start = p->offset + (size_t) (text - p->text), i;
    *before = *p;
    for (i = p->next; i < p->limit && p->at[i] < start + n; i++) {
        char *front = NULL;
        size_t n_front = 0;
        int rc = weft_unicode_nfc(text, p->at[i] - start, &front, &n_front,
                                  e->err);
        weft_free(front);
        if (rc)
            return rc;
        p->at[i] = start + n_front;
    }
    p->limit = i;
    p->text = normal;
    p->offset = start;
    return 0;
}

/* Back in the part around; places that no id has held are in the next. */
static void leave_normal(struct encoding *e, const struct places *before)
{
    size_t next = e->places.next;
    for (; next < e->places.limit; next++)
        e->places.at[next] = e->ids.n;
    e->places = *before;
    e->places.next = next;
}

/* Encodes text in which the tokens that are found before normalisation have
 * been cut out. */
static int encode_raw(struct encoding *e, const char *text, size_t n)
{
    const struct weft_tokenizer *tok = e->tok;
    if (!tok->nfc || weft_unicode_nfc_quick(text, n))
        return cut(e, &tok->normal, text, n, encode_plain);
    char *normal = NULL;
    size_t n_normal = 0;
    struct places before;
    int rc = weft_unicode_nfc(text, n, &normal, &n_normal, e->err);
    if (!rc)
        rc = enter_normal(e, text, n, normal, &before);
    if (!rc)
        rc = cut(e, &tok->normal, normal, n_normal, encode_plain);
    if (!rc)
        leave_normal(e, &before);
    weft_free(normal);
    return rc;
}

static int push_all(struct encoding *e, const int32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = weft_tok_ids_push(&e->ids, id[i], e->err);
        if (rc)
            return rc;
    }
    return 0;
}

int weft_tokenizer_encode(const struct weft_tokenizer *tok, const char *text,
                          size_t n_bytes, unsigned flags, int32_t **ids_out,
                          size_t *n_out, struct weft_err *err)
{
    return weft_tokenizer_encode_at(tok, text, n_bytes, flags, 0, NULL,
                                    ids_out, n_out, NULL, err);
}

int weft_tokenizer_encode_at(const struct weft_tokenizer *tok,
                             const char *text, size_t n_bytes, unsigned flags,
                             size_t n_at, const size_t *at, int32_t **ids_out,
                             size_t *n_out, size_t *index_out,
                             struct weft_err *err)
{
    struct encoding e = {.tok = tok,
                         .special = flags & WEFT_TOK_SPECIAL,
                         .places = {.limit = n_at, .at = index_out},
                         .err = err};
    if (n_at > 0)
        memcpy(index_out, at, n_at * sizeof *at);
    char *repaired = NULL;
    bool wrap = flags & WEFT_TOK_ADD_BOS;
    int rc = 0;
    e.ids.capacity = n_bytes / 4 + 16;
    e.ids.id = weft_alloc(e.ids.capacity, sizeof *e.ids.id);
    if (!e.ids.id)
        return weft_err_nomem(err, "token ids",
                              e.ids.capacity * sizeof *e.ids.id);
    if (!weft_utf8_valid(text, n_bytes)) {
        rc = weft_utf8_repair(text, n_bytes, &repaired, &n_bytes, err);
        text = repaired;
    }
    e.places.text = text;
    if (!rc && wrap)
        rc = push_all(&e, tok->prefix, tok->n_prefix);
    if (!rc)
        rc = cut(&e, &tok->raw, text, n_bytes, encode_raw);
    for (size_t i = e.places.next; i < n_at; i++)
        index_out[i] = e.ids.n;
    if (!rc && wrap)
        rc = push_all(&e, tok->suffix, tok->n_suffix);
    weft_free(repaired);
    weft_tok_word_release(&e.word);
    weft_pre_scratch_free(e.scratch);
    if (rc) {
        weft_free(e.ids.id);
        return rc;
    }
    *ids_out = e.ids.id;
    *n_out = e.ids.n;
    return 0;
}

/* ---- Decoding --------------------------------------------------------- */

int weft_tokenizer_decode(const struct weft_tokenizer *tok,
                          const int32_t *ids, size_t n, bool skip_special,
                          char **text_out, size_t *n_out,
                          struct weft_err *err)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "token %zu has the id %d, which is negative",
                                i, ids[i]);
        if (ids[i] < tok->n_tokens
            && !(skip_special && tok->token[ids[i]].special))
            total += tok->token[ids[i]].n_bytes;
    }
    char *text = weft_alloc(total + 1, 1);
    if (!text)
        return weft_err_nomem(err, "a text", total + 1);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= tok->n_tokens)
            continue;
        const struct weft_tok_token *t = &tok->token[ids[i]];
        if (t->n_bytes == 0 || (skip_special && t->special))
            continue;
        memcpy(text + at, t->bytes, t->n_bytes);
        at += t->n_bytes;
    }
    if (weft_utf8_valid(text, total)) {
        *text_out = text;
        *n_out = total;
        return 0;
    }
    int rc = weft_utf8_repair(text, total, text_out, n_out, err);
    weft_free(text);
    return rc;
}

/* ---- Asking ----------------------------------------------------------- */

int32_t weft_tokenizer_size(const struct weft_tokenizer *tok)
{
    return tok->n_tokens;
}

int32_t weft_tokenizer_find(const struct weft_tokenizer *tok,
                            const char *content)
{
    size_t n = strlen(content);
    int32_t id = weft_tok_map_get(&tok->added_map, content, n);
    return id >= 0 ? id : weft_tok_map_get(&tok->vocab, content, n);
}

const char *weft_tokenizer_content(const struct weft_tokenizer *tok,
                                   int32_t id)
{
    return id >= 0 && id < tok->n_tokens ? tok->token[id].content : NULL;
}

const char *weft_tokenizer_bytes(const struct weft_tokenizer *tok, int32_t id,
                                 size_t *n_out)
{
    *n_out = tok->token[id].n_bytes;
    return tok->token[id].bytes;
}

bool weft_tokenizer_is_special(const struct weft_tokenizer *tok, int32_t id)
{
    return id >= 0 && id < tok->n_tokens && tok->token[id].special;
}
