/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a card's memory: who asks again by name gets the block that it had,
 * kept blocks never take what the limit leaves to others, and the card never
 * holds more than the limit, nor more than is predicted. */
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "harness.h"
#include "rt/internal.h"

enum { PAGE = WEFT_CARD_PAGE_BYTES, NODE = 1, N_NAMES = 8 };

/* What the card holds, by its own count, and what others leave of it. */
static size_t card_bytes, card_peak, card_room;

static void *card_get(const struct weft_pool *pool, size_t bytes)
{
    (void) pool;
    CHECK_INT(bytes % PAGE, 0);
    if (bytes > card_room - card_bytes)
        return NULL;
    card_bytes += bytes;
    card_peak = card_bytes > card_peak ? card_bytes : card_peak;
    return weft_alloc_aligned(bytes, 1);
}

static void card_put(const struct weft_pool *pool, void *block, size_t bytes)
{
    (void) pool;
    card_bytes -= bytes;
    weft_free(block);
}

/* A card whose memory is the system's here. */
static struct weft_pool *pool_of(size_t limit_bytes)
{
    static const struct weft_memory card = {
        .is_card = true, .get = card_get, .put = card_put};
    struct weft_pool *pool = weft_pool_create(limit_bytes, 1);
    REQUIRE(pool != NULL);
    pool->memory = &card;
    pool->node = NODE;
    card_bytes = card_peak = 0;
    card_room = SIZE_MAX;
    return pool;
}

static void pool_end(struct weft_pool *pool)
{
    weft_pool_free(pool);
    CHECK_INT(card_bytes, 0);
}

static struct weft_need need_of(size_t bytes, uint64_t name)
{
    return (struct weft_need){
        .bytes = bytes, .c = WEFT_MEM_WEIGHTS, .name = name};
}

static void *get(struct weft_pool *pool, size_t bytes, uint64_t name)
{
    struct weft_need need = need_of(bytes, name);
    void *block = weft_pool_get(pool, &need);
    REQUIRE(block != NULL);
    return block;
}

static void put(struct weft_pool *pool, size_t bytes, uint64_t name,
                void *block)
{
    struct weft_need need = need_of(bytes, name);
    weft_pool_put(pool, &need, block);
}

static void test_names(void)
{
    struct weft_pool *pool = pool_of(1 << 30);
    void *block[N_NAMES], *other[2 * N_NAMES];
    for (int i = 0; i < N_NAMES; i++)
        block[i] = get(pool, PAGE, (uint64_t) i + 1);
    for (int i = 0; i < N_NAMES; i++)
        put(pool, PAGE, (uint64_t) i + 1, block[i]);
    /* others of the size come and go */
    for (int i = 0; i < 2 * N_NAMES; i++)
        other[i] = get(pool, PAGE, 0);
    for (int i = 0; i < 2 * N_NAMES; i++)
        put(pool, PAGE, 0, other[i]);
    CHECK_INT(pool->cached_bytes, 3 * N_NAMES * PAGE);
    for (int i = 0; i < N_NAMES; i++)
        CHECK(get(pool, PAGE, (uint64_t) i + 1) == block[i]);
    for (int i = 0; i < N_NAMES; i++)
        put(pool, PAGE, (uint64_t) i + 1, block[i]);
    pool_end(pool);
}

/* Two of a name are in use at once: each time in the same order. */
static void test_one_name_twice(void)
{
    struct weft_pool *pool = pool_of(1 << 30);
    void *first = get(pool, PAGE, 1), *second = get(pool, PAGE, 1);
    for (int i = 0; i < 3; i++) {
        put(pool, PAGE, 1, first);
        put(pool, PAGE, 1, second);
        CHECK(get(pool, PAGE, 1) == first);
        CHECK(get(pool, PAGE, 1) == second);
    }
    put(pool, PAGE, 1, first);
    put(pool, PAGE, 1, second);
    pool_end(pool);
}

/* What had no name goes back to the system first, and no more than must. */
static void test_trim(void)
{
    struct weft_pool *pool = pool_of(16 * PAGE);
    void *named = get(pool, PAGE, 1), *other[8];
    for (int i = 0; i < 8; i++)
        other[i] = get(pool, PAGE, 0);
    for (int i = 0; i < 8; i++)
        put(pool, PAGE, 0, other[i]);
    put(pool, PAGE, 1, named);
    CHECK_INT(pool->cached_bytes, 9 * PAGE);
    void *large = get(pool, 12 * PAGE, 0);
    CHECK_INT(pool->cached_bytes, 4 * PAGE);
    CHECK(get(pool, PAGE, 1) == named);
    /* its block, where there is no room for another */
    put(pool, PAGE, 1, named);
    for (int i = 0; i < 4; i++)
        other[i] = get(pool, PAGE, 0);
    CHECK(other[3] == named);
    CHECK_INT(pool->cached_bytes, 0);
    for (int i = 0; i < 4; i++)
        put(pool, PAGE, 0, other[i]);
    put(pool, 12 * PAGE, 0, large);
    pool_end(pool);
}

/* Used and kept bytes are within the limit, whatever comes. */
static void test_limit(void)
{
    enum { N = 40, STEPS = 4000, MOST = 64 * PAGE };
    struct weft_pool *pool = pool_of(MOST);
    void *block[N] = {NULL};
    size_t bytes[N];
    for (int k = 0; k < STEPS; k++) {
        uint32_t r[4];
        weft_rng_words(1, WEFT_RNG_SHUFFLE, (uint32_t) k, 0, 0, r);
        int i = (int) (r[0] % N);
        struct weft_need need = need_of(PAGE * (1 + (size_t) i % 4),
                                        (uint64_t) i / 2 % N_NAMES);
        if (block[i]) {
            put(pool, need.bytes, need.name, block[i]);
            block[i] = NULL;
        } else {
            bytes[i] = need.bytes;
            block[i] = weft_pool_get(pool, &need);
        }
        size_t held_bytes = 0;
        for (int j = 0; j < N; j++)
            held_bytes += block[j] ? bytes[j] : 0;
        CHECK_INT(pool->held_bytes, held_bytes);
        CHECK(held_bytes + pool->cached_bytes <= MOST);
        CHECK_INT(card_bytes, held_bytes + pool->cached_bytes);
    }
    for (int i = 0; i < N; i++)
        if (block[i])
            put(pool, bytes[i], 0, block[i]);
    pool_end(pool);
}

/* Others have taken what the limit leaves: kept blocks go back to the card, and
 * if that is not enough a sentence says so. */
static void test_others(void)
{
    struct weft_pool *pool = pool_of(16 * PAGE);
    struct weft_need need = need_of(3 * PAGE, 0);
    struct weft_err err;
    void *used = get(pool, 2 * PAGE, 0);
    put(pool, PAGE, 1, get(pool, PAGE, 1));
    card_room = 3 * PAGE;
    void *small = get(pool, 64, 0);
    CHECK_INT(card_bytes, 3 * PAGE);
    CHECK_INT(pool->cached_bytes, 0);
    CHECK(weft_pool_get(pool, &need) == NULL);
    CHECK_FAILS(weft_pool_refuse(pool, &need, "x", &err), WEFT_ENOMEM, err,
                "'x' wants 6.0 MiB of weights, and the system has none, "
                "though 26.0 of 32.0 MiB are left: another program may use "
                "it");
    put(pool, 64, 0, small);
    put(pool, 2 * PAGE, 0, used);
    pool_end(pool);
}

/* ---- Slots -------------------------------------------------------------- */

static void test_sizes(void)
{
    static const size_t size[][2] = {
        {1, 4096},
        {4096, 4096},
        {4097, 8192},
        {PAGE / 2 - 1, PAGE / 2},
        {PAGE / 2, PAGE / 2},
        {PAGE / 2 + 1, PAGE},
        {PAGE, PAGE},
        {PAGE + 1, 2 * PAGE},
        {(size_t) 32 * PAGE, (size_t) 32 * PAGE},
        {(size_t) 32 * PAGE + 1, (size_t) 34 * PAGE},
        {(size_t) 1000 * PAGE, (size_t) 1024 * PAGE},
        {(size_t) 990 * PAGE, (size_t) 992 * PAGE},
    };
    for (size_t i = 0; i < WEFT_COUNT(size); i++) {
        size_t least = size[i][1] > PAGE ? size[i][1] : PAGE;
        CHECK_INT(weft_card_block_bytes(size[i][0], WEFT_MEM_WEIGHTS),
                  size[i][1]);
        CHECK_INT(weft_card_block_bytes(size[i][0], WEFT_MEM_KV), least);
    }
    size_t before = 0;
    for (size_t bytes = 1; bytes < (size_t) 1 << 40; bytes += bytes / 7 + 1) {
        const enum weft_mem_class c = WEFT_MEM_OPTIMIZER;
        size_t block = weft_card_block_bytes(bytes, c);
        bool own = weft_card_kind(bytes, c) == WEFT_CARD_NO_KIND;
        CHECK(block >= bytes && block < 2 * bytes + 4096);
        CHECK(bytes < (size_t) 32 * PAGE || block - bytes <= bytes / 16);
        CHECK(own ? block % PAGE == 0 : PAGE % block == 0);
        CHECK_INT(weft_card_block_bytes(block, c), block);
        CHECK(block >= before); /* shorter samples need no more */
        before = block;
    }
}

/* Blocks by chance, of all sizes from a few bytes to some pages. */
enum { N_BLOCKS = 300, STEPS = 20000 };
struct some {
    struct weft_need need;
    unsigned char *at; /* NULL: not there */
};

static uint32_t draw(uint32_t step, uint32_t of)
{
    uint32_t r[4];
    weft_rng_words(1, WEFT_RNG_SHUFFLE, step, of, 0, r);
    return r[0];
}

/* Sizes that are common change with time, so that pages must, too. */
static struct weft_need some_need(uint32_t step)
{
    uint32_t octave = 4 + (draw(step, 1) % 10 + step / 2000 * 3) % 19;
    size_t bytes = ((size_t) 1 << octave) + draw(step, 2) % (1u << octave);
    static const enum weft_mem_class classes[] = {
        WEFT_MEM_WEIGHTS, WEFT_MEM_OPTIMIZER, WEFT_MEM_GRADIENTS,
        WEFT_MEM_ACTIVATIONS};
    enum weft_mem_class c = classes[draw(step, 3) % 4];
    return (struct weft_need){
        .bytes = bytes,
        .c = c,
        .name = c == WEFT_MEM_WEIGHTS ? 1 + draw(step, 4) % N_NAMES : 0};
}

static void mark(struct some *b, int i)
{
    memset(b->at, i & 0xff, b->need.bytes < 64 ? b->need.bytes : 64);
    b->at[b->need.bytes - 1] = (unsigned char) i;
}

static bool is_marked(const struct some *b, int i)
{
    return b->at[0] == (i & 0xff) && b->at[b->need.bytes - 1] == (i & 0xff);
}

/* Pages that the blocks need at once: the most that any moment needed, of slots
 * of each kind for itself. */
struct least {
    size_t own, slots[WEFT_CARD_KINDS], most[WEFT_CARD_KINDS];
};

static size_t add_least(struct least *l, const struct weft_need *need,
                        bool there)
{
    int kind = weft_card_kind(need->bytes, need->c);
    size_t block = weft_card_block_bytes(need->bytes, need->c), pages = 0;
    size_t *sum = kind < 0 ? &l->own : &l->slots[kind];
    *sum += there ? block : -block;
    for (int k = 0; k < WEFT_CARD_KINDS; k++) {
        size_t now = (l->slots[k] + PAGE - 1) / PAGE * PAGE;
        l->most[k] = now > l->most[k] ? now : l->most[k];
        pages += l->most[k];
    }
    return l->own + pages;
}

static void step(struct weft_pool *pool, struct some *b, uint32_t k, int i,
                 struct least *least, size_t *predicted)
{
    if (b->at) {
        CHECK(is_marked(b, i));
        weft_pool_put(pool, &b->need, b->at);
        b->at = NULL;
        add_least(least, &b->need, false);
        return;
    }
    b->need = some_need(k);
    b->at = weft_pool_get(pool, &b->need);
    if (!b->at)
        return;
    mark(b, i);
    size_t now = add_least(least, &b->need, true);
    *predicted = now > *predicted ? now : *predicted;
}

/* Returns the most that the blocks which were there can have needed. limited:
 * some may be refused. */
static size_t play(size_t limit_bytes, bool limited)
{
    struct weft_pool *pool = pool_of(limit_bytes);
    struct some block[N_BLOCKS] = {{.at = NULL}};
    struct least least = {0};
    size_t predicted = 0;
    int n_refused = 0;
    for (uint32_t k = 0; k < STEPS; k++) {
        int i = (int) (draw(k, 0) % N_BLOCKS);
        bool was_there = block[i].at != NULL;
        step(pool, &block[i], k, i, &least, &predicted);
        n_refused += !was_there && !block[i].at;
        CHECK_INT(card_bytes,
                  pool->held_bytes + pool->paged_bytes + pool->cached_bytes);
    }
    CHECK(card_peak <= limit_bytes);
    CHECK(pool->place[0].peak_bytes[WEFT_MEM_ALL] <= predicted);
    CHECK((n_refused > 0) == limited);
    for (int i = 0; i < N_BLOCKS; i++)
        if (block[i].at)
            step(pool, &block[i], 0, i, &least, &predicted);
    CHECK_INT(pool->held_bytes + pool->paged_bytes, 0);
    CHECK_INT(pool->place[0].now_bytes[WEFT_MEM_ALL], 0);
    pool_end(pool);
    return predicted;
}

/* The card holds no more than the limit; what is predicted is enough. */
static void test_slots(void)
{
    size_t predicted = play((size_t) 1 << 34, false);
    CHECK(play(predicted, false) == predicted);
    play(predicted / 2, true);
    play(PAGE, true);
}

WEFT_TESTS("rt/pool", {"test_names", test_names},
           {"test_one_name_twice", test_one_name_twice},
           {"test_trim", test_trim}, {"test_limit", test_limit},
           {"test_others", test_others}, {"test_sizes", test_sizes},
           {"test_slots", test_slots})
