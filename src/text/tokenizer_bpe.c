/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges the bytes of a piece: always the pair of the lowest rank, the
 * leftmost of equals, until no pair is in the table. Pairs wait in a heap; one
 * that an earlier merge has made invalid is dropped when it comes out, so a
 * piece of n bytes takes n log n steps.
 */
#include "text/tokenizer_impl.h"

#include "base/alloc.h"
#include "text/unicode/unicode.h"

#include <string.h>

int weft_tok_ids_push(struct weft_tok_ids *ids, int32_t id,
                      struct weft_err *err)
{
    if (ids->n == ids->capacity) {
        size_t capacity = 2 * ids->capacity + 32;
        int32_t *more = weft_realloc(ids->id, capacity, sizeof *more);
        if (!more)
            return weft_err_nomem(err, "token ids", capacity * sizeof *more);
        ids->id = more;
        ids->capacity = capacity;
    }
    ids->id[ids->n++] = id;
    return 0;
}

void weft_tok_word_release(struct weft_tok_word *word)
{
    weft_free(word->symbol);
    weft_free(word->heap);
    weft_free(word->spelled);
    memset(word, 0, sizeof *word);
}

/* ---- The heap --------------------------------------------------------- */

static bool before(const struct weft_tok_pair *a,
                   const struct weft_tok_pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int heap_push(struct weft_tok_word *w, struct weft_tok_pair pair,
                     struct weft_err *err)
{
    if (w->n_heap == w->heap_capacity) {
        size_t capacity = 2 * w->heap_capacity + 64;
        struct weft_tok_pair *more = weft_realloc(w->heap, capacity,
                                                  sizeof *more);
        if (!more)
            return weft_err_nomem(err, "merging", capacity * sizeof *more);
        w->heap = more;
        w->heap_capacity = capacity;
    }
    size_t i = w->n_heap++;
    for (; i > 0 && before(&pair, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = pair;
    return 0;
}

static struct weft_tok_pair heap_pop(struct weft_tok_word *w)
{
    struct weft_tok_pair top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, n = w->n_heap;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

/* ---- A piece ---------------------------------------------------------- */

static int reserve(struct weft_tok_word *w, size_t n, struct weft_err *err)
{
    if (n <= w->capacity)
        return 0;
    struct weft_tok_symbol *more = weft_realloc(w->symbol, n, sizeof *more);
    if (!more)
        return weft_err_nomem(err, "merging", n * sizeof *more);
    w->symbol = more;
    w->capacity = n;
    return 0;
}

/* The piece's id when it is a token as a whole, or -1. */
static int whole(const struct weft_tokenizer *tok, const char *text, size_t n,
                 struct weft_tok_word *w, int32_t *id, struct weft_err *err)
{
    *id = -1;
    if (n > tok->longest)
        return 0;
    if (2 * n > w->spelled_capacity) {
        char *more = weft_realloc(w->spelled, 2 * n, 1);
        if (!more)
            return weft_err_nomem(err, "merging", 2 * n);
        w->spelled = more;
        w->spelled_capacity = 2 * n;
    }
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t) weft_utf8_put(
            weft_tok_byte_symbol((unsigned char) text[i]), w->spelled + at);
    *id = weft_tok_map_get(&tok->vocab, w->spelled, at);
    return 0;
}

/* Turns bytes into symbols: a byte without a token becomes the unknown token,
 * or nothing when there is none. Returns the number of symbols. */
static int32_t spell(const struct weft_tokenizer *tok, const char *text,
                     size_t n, struct weft_tok_symbol *symbol)
{
    int32_t count = 0;
    bool unknown = false; /* whether the last symbol is the unknown token */
    for (size_t i = 0; i < n; i++) {
        int32_t id = tok->byte_id[(unsigned char) text[i]];
        if (id < 0) {
            if (tok->unk_id < 0 || (unknown && tok->fuse_unk))
                continue;
            id = tok->unk_id;
            unknown = true;
        } else {
            unknown = false;
        }
        symbol[count] = (struct weft_tok_symbol){id, count - 1, count + 1};
        count++;
    }
    if (count > 0)
        symbol[count - 1].next = -1;
    return count;
}

static int push_pair(const struct weft_tokenizer *tok,
                     struct weft_tok_word *w, int32_t at,
                     struct weft_err *err)
{
    int32_t next = at < 0 ? -1 : w->symbol[at].next;
    if (next < 0)
        return 0;
    const struct weft_tok_merge *m = weft_tok_merges_get(
        &tok->merges, w->symbol[at].id, w->symbol[next].id);
    if (!m)
        return 0;
    return heap_push(w, (struct weft_tok_pair){m->rank, at, m->id}, err);
}

static int merge_all(const struct weft_tokenizer *tok,
                     struct weft_tok_word *w, int32_t count,
                     struct weft_err *err)
{
    struct weft_tok_symbol *s = w->symbol;
    int rc = 0;
    w->n_heap = 0;
    for (int32_t i = 0; i < count && !rc; i++)
        rc = push_pair(tok, w, i, err);
    while (!rc && w->n_heap > 0) {
        struct weft_tok_pair top = heap_pop(w);
        int32_t next = s[top.at].next;
        if (s[top.at].id < 0 || next < 0)
            continue;
        const struct weft_tok_merge *m = weft_tok_merges_get(
            &tok->merges, s[top.at].id, s[next].id);
        if (!m || m->id != top.id)
            continue;
        s[top.at].id = top.id;
        s[top.at].next = s[next].next;
        s[next].id = -1;
        if (s[top.at].next >= 0)
            s[s[top.at].next].previous = top.at;
        rc = push_pair(tok, w, s[top.at].previous, err);
        if (!rc)
            rc = push_pair(tok, w, top.at, err);
    }
    return rc;
}

int weft_tok_merge_piece(const struct weft_tokenizer *tok, const char *text,
                         size_t n, struct weft_tok_word *word,
                         struct weft_tok_ids *ids, struct weft_err *err)
{
    if (n > INT32_MAX)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "a piece of text of %zu bytes is too long to "
                            "tokenize",
                            n);
    if (tok->ignore_merges) {
        int32_t id;
        int rc = whole(tok, text, n, word, &id, err);
        if (rc || id >= 0)
            return rc ? rc : weft_tok_ids_push(ids, id, err);
    }
    int rc = reserve(word, n, err);
    if (rc)
        return rc;
    int32_t count = spell(tok, text, n, word->symbol);
    rc = merge_all(tok, word, count, err);
    for (int32_t i = 0; i < count && !rc; i++)
        if (word->symbol[i].id >= 0)
            rc = weft_tok_ids_push(ids, word->symbol[i].id, err);
    return rc;
}
