/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a card's memory: who asks again by name gets the block that it had,
 * and kept blocks never take what the limit leaves to others. */
#include "base/alloc.h"
#include "base/rng.h"
#include "harness.h"
#include "rt/internal.h"

enum { KIB = 1024, NODE = 1, N_NAMES = 8 };

/* A card's, whose blocks are the system's here. */
static struct weft_pool *pool_of(size_t limit_bytes)
{
    struct weft_pool *pool = weft_pool_create(limit_bytes, 1);
    REQUIRE(pool != NULL);
    pool->node = NODE;
    return pool;
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
    struct weft_pool *pool = pool_of(1 << 20);
    void *block[N_NAMES], *other[2 * N_NAMES];
    for (int i = 0; i < N_NAMES; i++)
        block[i] = get(pool, KIB, (uint64_t) i + 1);
    for (int i = 0; i < N_NAMES; i++)
        put(pool, KIB, (uint64_t) i + 1, block[i]);
    /* others of the size come and go */
    for (int i = 0; i < 2 * N_NAMES; i++)
        other[i] = get(pool, KIB, 0);
    for (int i = 0; i < 2 * N_NAMES; i++)
        put(pool, KIB, 0, other[i]);
    CHECK_INT(pool->cached_bytes, 3 * N_NAMES * KIB);
    for (int i = 0; i < N_NAMES; i++)
        CHECK(get(pool, KIB, (uint64_t) i + 1) == block[i]);
    for (int i = 0; i < N_NAMES; i++)
        put(pool, KIB, (uint64_t) i + 1, block[i]);
    weft_pool_free(pool);
}

/* Two of a name are in use at once: each time in the same order. */
static void test_one_name_twice(void)
{
    struct weft_pool *pool = pool_of(1 << 20);
    void *first = get(pool, KIB, 1), *second = get(pool, KIB, 1);
    for (int i = 0; i < 3; i++) {
        put(pool, KIB, 1, first);
        put(pool, KIB, 1, second);
        CHECK(get(pool, KIB, 1) == first);
        CHECK(get(pool, KIB, 1) == second);
    }
    put(pool, KIB, 1, first);
    put(pool, KIB, 1, second);
    weft_pool_free(pool);
}

/* What had no name goes back to the system first, and no more than must. */
static void test_trim(void)
{
    struct weft_pool *pool = pool_of(16 * KIB);
    void *named = get(pool, KIB, 1), *other[8];
    for (int i = 0; i < 8; i++)
        other[i] = get(pool, KIB, 0);
    for (int i = 0; i < 8; i++)
        put(pool, KIB, 0, other[i]);
    put(pool, KIB, 1, named);
    CHECK_INT(pool->cached_bytes, 9 * KIB);
    void *large = get(pool, 12 * KIB, 0);
    CHECK_INT(pool->cached_bytes, 4 * KIB);
    CHECK(get(pool, KIB, 1) == named);
    /* its block, where there is no room for another */
    put(pool, KIB, 1, named);
    for (int i = 0; i < 4; i++)
        other[i] = get(pool, KIB, 0);
    CHECK(other[3] == named);
    CHECK_INT(pool->cached_bytes, 0);
    for (int i = 0; i < 4; i++)
        put(pool, KIB, 0, other[i]);
    put(pool, 12 * KIB, 0, large);
    weft_pool_free(pool);
}

/* Used and kept bytes are within the limit, whatever comes. */
static void test_limit(void)
{
    enum { N = 40, STEPS = 4000, MOST = 64 * KIB };
    struct weft_pool *pool = pool_of(MOST);
    void *block[N] = {NULL};
    size_t bytes[N];
    for (int k = 0; k < STEPS; k++) {
        uint32_t r[4];
        weft_rng_words(1, WEFT_RNG_SHUFFLE, (uint32_t) k, 0, 0, r);
        int i = (int) (r[0] % N);
        struct weft_need need = need_of(KIB * (1 + (size_t) i % 4),
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
    }
    for (int i = 0; i < N; i++)
        if (block[i])
            put(pool, bytes[i], 0, block[i]);
    weft_pool_free(pool);
}

WEFT_TESTS("rt/pool", {"test_names", test_names},
           {"test_one_name_twice", test_one_name_twice},
           {"test_trim", test_trim}, {"test_limit", test_limit})
