/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash.c: published values, and pieces against the whole. */
#include <unistd.h>

#include "base/compiler.h"
#include "base/hash.h"
#include "harness.h"

/* Values of the empty input: xxHash's own tests/sanity_test_vectors.h. */
static void test_published_values(void)
{
    char text[WEFT_HASH_DIGITS + 1];
    CHECK(weft_hash64("", 0) == 0x2d06800538d394c2u);
    weft_hash_format(weft_hash128("", 0), text);
    CHECK_STR(text, "99aa06d3014798d86001c324468d497f");
}

static void test_text_round_trip(void)
{
    struct weft_hash h = {0x0123456789abcdefu, 0xfedcba9876543210u}, back;
    char text[WEFT_HASH_DIGITS + 1];
    weft_hash_format(h, text);
    CHECK_STR(text, "0123456789abcdeffedcba9876543210");
    CHECK(weft_hash_scan(text, &back) && weft_hash_equal(h, back));
    CHECK(weft_hash_scan("0123456789ABCDEFFEDCBA9876543210", &back)
          && weft_hash_equal(h, back));
    static const char *const bad[] = {"", "0123",
                                      "0123456789abcdeffedcba987654321",
                                      "0123456789abcdeffedcba98765432100",
                                      "0123456789abcdeffedcba987654321g"};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
        CHECK(!weft_hash_scan(bad[i], &back));
}

/* XXH3 has other paths for lengths up to 16, 128, 240 and beyond, and blocks
 * of 1024 bytes inside. */
static void test_pieces(void)
{
    unsigned char data[5000];
    static const size_t length[] = {0,    1,    3,    4,    8,   9,   16,
                                    17,   128,  129,  240,  241, 512, 1023,
                                    1024, 1025, 2048, 4096, 5000};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char) (i * 131 + (i >> 8) * 7);
    for (size_t i = 0; i < WEFT_COUNT(length); i++)
        for (size_t step = 1; step <= 1500; step = step * 3 + 2) {
            struct weft_hasher *h = weft_hasher_create();
            REQUIRE(h != NULL);
            for (size_t at = 0; at < length[i]; at += step)
                weft_hasher_add(h, data + at,
                                length[i] - at < step ? length[i] - at
                                                      : step);
            CHECK(weft_hash_equal(weft_hasher_digest128(h),
                                  weft_hash128(data, length[i])));
            CHECK(weft_hasher_digest64(h) == weft_hash64(data, length[i]));
            weft_hasher_free(h);
        }
}

static void test_file(void)
{
    char path[] = "/tmp/weft-hash-XXXXXX";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    size_t n = 600001; /* two chunks and a bit */
    unsigned char *data = malloc(n);
    REQUIRE(data != NULL);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char) (i * i >> 3);
    CHECK_INT(write(fd, data, n), n);
    close(fd);
    struct weft_err err = {0};
    struct weft_hash h = {0, 0};
    uint64_t bytes = 0;
    REQUIRE_OK(weft_hash_file(path, &h, &bytes, &err), err);
    CHECK(weft_hash_equal(h, weft_hash128(data, n)));
    CHECK_INT(bytes, n);
    free(data);
    unlink(path);
    CHECK_FAILS(weft_hash_file(path, &h, &bytes, &err), WEFT_ENOTFOUND, err,
                path);
}

WEFT_TESTS("base/hash", {"test_published_values", test_published_values},
           {"test_text_round_trip", test_text_round_trip},
           {"test_pieces", test_pieces}, {"test_file", test_file})
