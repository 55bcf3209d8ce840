/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a tokenizer; only tokenizer*.c include it. */
#ifndef WEFT_TEXT_TOKENIZER_IMPL_H
#define WEFT_TEXT_TOKENIZER_IMPL_H

#include "base/err.h"
#include "text/pretokenize.h"

/* Ids at or beyond this are refused: the largest vocabularies have 2^18. */
enum { WEFT_TOK_MAX_ID = 1 << 22 };

/* ---- Strings to numbers ----------------------------------------------- */

struct weft_tok_entry {
    const char *text; /* NULL: free */
    uint32_t n;
    int32_t id;
};

/* A hash map with open addressing; its strings belong to the tokenizer. */
struct weft_tok_map {
    size_t mask; /* slots - 1 */
    struct weft_tok_entry *slot;
};

/* Room for n entries. */
int weft_tok_map_init(struct weft_tok_map *map, size_t n,
                      struct weft_err *err);
void weft_tok_map_release(struct weft_tok_map *map);
/* Adds an entry, or gives an old one another id. */
void weft_tok_map_put(struct weft_tok_map *map, const char *text, size_t n,
                      int32_t id);
/* The id, or -1. */
int32_t weft_tok_map_get(const struct weft_tok_map *map, const char *text,
                         size_t n);

/* ---- Merges ----------------------------------------------------------- */

struct weft_tok_merge {
    int32_t left, right; /* left -1: free */
    uint32_t rank;       /* lower merges first */
    int32_t id;          /* id of the token that the two become */
};

struct weft_tok_merges {
    size_t mask;
    struct weft_tok_merge *slot;
};

int weft_tok_merges_init(struct weft_tok_merges *merges, size_t n,
                         struct weft_err *err);
void weft_tok_merges_release(struct weft_tok_merges *merges);
void weft_tok_merges_put(struct weft_tok_merges *merges,
                         struct weft_tok_merge merge);
const struct weft_tok_merge *weft_tok_merges_get(
    const struct weft_tok_merges *merges, int32_t left, int32_t right);

/* ---- Added tokens ----------------------------------------------------- */

struct weft_tok_added {
    const char *content; /* the text to find, in normal form if normalized */
    uint32_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
};

/* Finds added tokens: a trie of bytes. Node 0 is the root. */
struct weft_tok_node {
    uint32_t child, next; /* 0: none; next: the sibling */
    int32_t added;        /* index of the token that ends here, or -1 */
    unsigned char byte;
};

struct weft_tok_trie {
    struct weft_tok_node *node;
    size_t n, capacity;
    uint32_t first[256]; /* the root's children */
};

void weft_tok_trie_release(struct weft_tok_trie *trie);
/* Errors: WEFT_ENOMEM; WEFT_EINVAL when the text is there already. */
int weft_tok_trie_put(struct weft_tok_trie *trie, const char *text, size_t n,
                      int32_t added, struct weft_err *err);
/* The longest token at the beginning of the text: its index, or -1. */
int32_t weft_tok_trie_longest(const struct weft_tok_trie *trie,
                              const char *text, size_t n, size_t *n_out);

/* ---- Strings ---------------------------------------------------------- */

struct weft_tok_chunk {
    struct weft_tok_chunk *next;
    size_t n, capacity;
    char text[];
};

/* A zero-terminated copy of n bytes that lives as long as the list. NULL:
 * no memory, and err says so. */
char *weft_tok_keep(struct weft_tok_chunk **list, const char *text, size_t n,
                    struct weft_err *err);
void weft_tok_chunks_free(struct weft_tok_chunk *list);

/* ---- The tokenizer ---------------------------------------------------- */

struct weft_tok_token {
    /* its spelling in the file; NULL: the id has no token */
    const char *content;
    const char *bytes; /* what it decodes to */
    uint32_t n_content, n_bytes;
    bool special;
};

struct weft_tokenizer {
    int32_t n_tokens; /* ids are below */
    struct weft_tok_token *token;
    struct weft_tok_chunk *chunk; /* all strings of the tokens */
    struct weft_tok_map vocab, added_map;
    struct weft_tok_merges merges;
    int32_t byte_id[256]; /* id of the token of one byte; -1: none */
    int32_t unk_id;       /* -1: bytes without a token are dropped */
    bool fuse_unk, ignore_merges, nfc;
    size_t longest; /* bytes of the longest content */
    struct weft_pretokenizer *pre;
    size_t n_added;
    struct weft_tok_added *added;
    /* tokens to find before NFC (raw) and after it (normal) */
    struct weft_tok_trie raw, normal;
    int32_t *prefix, *suffix; /* ids that the post-processor adds */
    size_t n_prefix, n_suffix;
};

/* The character that stands for a byte in tokenizer.json (GPT-2's table),
 * and back: -1 when it stands for none. */
uint32_t weft_tok_byte_symbol(unsigned char byte);
int weft_tok_symbol_byte(uint32_t c);

/* ---- Merging ---------------------------------------------------------- */

/* A growing list of ids. */
struct weft_tok_ids {
    int32_t *id;
    size_t n, capacity;
};

int weft_tok_ids_push(struct weft_tok_ids *ids, int32_t id,
                      struct weft_err *err);

/* A piece while it is merged. Zero it before use. */
struct weft_tok_word {
    struct weft_tok_symbol {
        int32_t id, previous, next; /* -1: none; id -1: merged away */
    } * symbol;
    struct weft_tok_pair {
        uint32_t rank;
        int32_t at, id;
    } * heap;
    size_t capacity, n_heap, heap_capacity;
    char *spelled; /* the piece in the file's characters */
    size_t spelled_capacity;
};

void weft_tok_word_release(struct weft_tok_word *word);

/* Appends the ids of a piece of n > 0 bytes. */
int weft_tok_merge_piece(const struct weft_tokenizer *tok, const char *text,
                         size_t n, struct weft_tok_word *word,
                         struct weft_tok_ids *ids, struct weft_err *err);

#endif
