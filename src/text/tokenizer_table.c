/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a tokenizer: strings, merges, added tokens, byte symbols. */
#include "text/tokenizer_impl.h"

#include "base/alloc.h"

#include <string.h>

/* The number of slots for n entries: a power of two that leaves at least half
 * of them free. */
static size_t slots_for(size_t n)
{
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

/* ---- Strings ---------------------------------------------------------- */

/* FNV-1a with a final step that makes the low bits depend on all bits. */
static size_t hash_text(const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char) text[i]) * 0x100000001b3u;
    return (size_t) (h ^ h >> 29);
}

int weft_tok_map_init(struct weft_tok_map *map, size_t n,
                      struct weft_err *err)
{
    size_t slots = slots_for(n);
    map->slot = weft_alloc(slots, sizeof *map->slot);
    if (!map->slot)
        return weft_err_nomem(err, "a vocabulary", slots * sizeof *map->slot);
    map->mask = slots - 1;
    return 0;
}

void weft_tok_map_release(struct weft_tok_map *map)
{
    weft_free(map->slot);
    map->slot = NULL;
}

static struct weft_tok_entry *find(const struct weft_tok_map *map,
                                   const char *text, size_t n)
{
    size_t i = hash_text(text, n) & map->mask;
    while (
        map->slot[i].text
        && (map->slot[i].n != n || memcmp(map->slot[i].text, text, n) != 0))
        i = (i + 1) & map->mask;
    return &map->slot[i];
}

void weft_tok_map_put(struct weft_tok_map *map, const char *text, size_t n,
                      int32_t id)
{
    *find(map, text, n) = (struct weft_tok_entry){text, (uint32_t) n, id};
}

int32_t weft_tok_map_get(const struct weft_tok_map *map, const char *text,
                         size_t n)
{
    const struct weft_tok_entry *entry = find(map, text, n);
    return entry->text ? entry->id : -1;
}

/* ---- Merges ----------------------------------------------------------- */

static size_t hash_pair(int32_t left, int32_t right)
{
    uint64_t h = (uint64_t) (uint32_t) left << 32 | (uint32_t) right;
    h *= 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
    return (size_t) (h ^ h >> 32);
}

int weft_tok_merges_init(struct weft_tok_merges *merges, size_t n,
                         struct weft_err *err)
{
    size_t slots = slots_for(n);
    merges->slot = weft_alloc(slots, sizeof *merges->slot);
    if (!merges->slot)
        return weft_err_nomem(err, "merges", slots * sizeof *merges->slot);
    merges->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        merges->slot[i].left = -1;
    return 0;
}

void weft_tok_merges_release(struct weft_tok_merges *merges)
{
    weft_free(merges->slot);
    merges->slot = NULL;
}

static struct weft_tok_merge *find_pair(const struct weft_tok_merges *merges,
                                        int32_t left, int32_t right)
{
    size_t i = hash_pair(left, right) & merges->mask;
    while (
        merges->slot[i].left >= 0
        && (merges->slot[i].left != left || merges->slot[i].right != right))
        i = (i + 1) & merges->mask;
    return &merges->slot[i];
}

void weft_tok_merges_put(struct weft_tok_merges *merges,
                         struct weft_tok_merge merge)
{
    *find_pair(merges, merge.left, merge.right) = merge;
}

const struct weft_tok_merge *weft_tok_merges_get(
    const struct weft_tok_merges *merges, int32_t left, int32_t right)
{
    const struct weft_tok_merge *merge = find_pair(merges, left, right);
    return merge->left >= 0 ? merge : NULL;
}

/* ---- Added tokens ----------------------------------------------------- */

void weft_tok_trie_release(struct weft_tok_trie *trie)
{
    weft_free(trie->node);
    trie->node = NULL;
}

static uint32_t child_of(const struct weft_tok_trie *trie, uint32_t parent,
                         unsigned char byte)
{
    if (parent == 0)
        return trie->first[byte];
    uint32_t at = trie->node[parent].child;
    while (at && trie->node[at].byte != byte)
        at = trie->node[at].next;
    return at;
}

static int add_child(struct weft_tok_trie *trie, uint32_t parent,
                     unsigned char byte, uint32_t *out, struct weft_err *err)
{
    if (trie->n + 1 >= trie->capacity) {
        size_t capacity = 2 * trie->capacity + 64;
        struct weft_tok_node *more = weft_realloc(trie->node, capacity,
                                                  sizeof *more);
        if (!more)
            return weft_err_nomem(err, "added tokens",
                                  capacity * sizeof *more);
        trie->node = more;
        trie->capacity = capacity;
        if (trie->n == 0) { /* the root */
            memset(&more[0], 0, sizeof more[0]);
            trie->n = 1;
        }
    }
    uint32_t at = (uint32_t) trie->n++;
    struct weft_tok_node *node = &trie->node[at];
    *node = (struct weft_tok_node){.added = -1, .byte = byte};
    if (parent == 0) {
        trie->first[byte] = at;
    } else {
        node->next = trie->node[parent].child;
        trie->node[parent].child = at;
    }
    *out = at;
    return 0;
}

int weft_tok_trie_put(struct weft_tok_trie *trie, const char *text, size_t n,
                      int32_t added, struct weft_err *err)
{
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = child_of(trie, at, (unsigned char) text[i]);
        if (!next) {
            int rc = add_child(trie, at, (unsigned char) text[i], &next, err);
            if (rc)
                return rc;
        }
        at = next;
    }
    if (trie->node[at].added >= 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "two added tokens are the same text '%.100s'",
                            text);
    trie->node[at].added = added;
    return 0;
}

int32_t weft_tok_trie_longest(const struct weft_tok_trie *trie,
                              const char *text, size_t n, size_t *n_out)
{
    int32_t best = -1;
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at = child_of(trie, at, (unsigned char) text[i]);
        if (!at)
            break;
        if (trie->node[at].added >= 0) {
            best = trie->node[at].added;
            *n_out = i + 1;
        }
    }
    return best;
}

/* ---- Keeping strings -------------------------------------------------- */

char *weft_tok_keep(struct weft_tok_chunk **list, const char *text, size_t n,
                    struct weft_err *err)
{
    struct weft_tok_chunk *chunk = *list;
    if (!chunk || chunk->capacity - chunk->n < n + 1) {
        size_t capacity = n + 1 > 65536 ? n + 1 : 65536;
        chunk = weft_alloc(1, sizeof *chunk + capacity);
        if (!chunk) {
            weft_err_nomem(err, "a vocabulary", sizeof *chunk + capacity);
            return NULL;
        }
        chunk->capacity = capacity;
        chunk->next = *list;
        *list = chunk;
    }
    char *copy = chunk->text + chunk->n;
    memcpy(copy, text, n);
    copy[n] = 0;
    chunk->n += n + 1;
    return copy;
}

void weft_tok_chunks_free(struct weft_tok_chunk *list)
{
    while (list) {
        struct weft_tok_chunk *next = list->next;
        weft_free(list);
        list = next;
    }
}

/* ---- Byte symbols ----------------------------------------------------- */

/* As in GPT-2's bytes_to_unicode(), printable bytes of Latin-1 stand for
 * themselves; the 68 others stand for U+0100 and following, in order. */
static bool is_itself(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac)
        || (b >= 0xae && b <= 0xff);
}

uint32_t weft_tok_byte_symbol(unsigned char byte)
{
    if (is_itself(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte <= 0xa0)
        return 0x100u + 33 + (byte - 0x7fu);
    return 0x143; /* 0xad */
}

int weft_tok_symbol_byte(uint32_t c)
{
    if (c < 0x100)
        return is_itself(c) ? (int) c : -1;
    if (c <= 0x120)
        return (int) (c - 0x100);
    if (c <= 0x142)
        return (int) (c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}
