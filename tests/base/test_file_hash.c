/* SPDX-License-Identifier: Apache-2.0 */
/* base/file_hash.c against base/hash.c on the chunks by themselves. */
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/file_hash.h"
#include "harness.h"

static char dir[] = "/tmp/weft-file-hash-XXXXXX";

static const char *file(void)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/f", dir);
    return path;
}

/* A file with holes, and bytes at its chunks' ends. */
static void make(uint64_t n)
{
    FILE *f = fopen(file(), "wb");
    REQUIRE(f != NULL);
    for (uint64_t at = 0; at < n; at += WEFT_FILE_CHUNK_BYTES / 2) {
        fseek(f, (long) at, SEEK_SET);
        fputc((int) (at / 1000 % 251), f);
        fseek(f, (long) (at + WEFT_FILE_CHUNK_BYTES / 2 - 1), SEEK_SET);
        fputc((int) (at / 999 % 251), f);
    }
    REQUIRE(fclose(f) == 0 && truncate(file(), (off_t) n) == 0);
}

static void test_file_hash_chunks(void)
{
    const uint64_t chunk = WEFT_FILE_CHUNK_BYTES;
    const uint64_t size[] = {0,     1,         chunk - 1,
                             chunk, chunk + 1, 3 * chunk + 7};
    static const int n_chunks[] = {0, 1, 1, 1, 2, 4};
    struct weft_file_hash hash, again;
    struct weft_err err;
    struct weft_map map;
    for (size_t i = 0; i < WEFT_COUNT(size); i++) {
        make(size[i]);
        REQUIRE_OK(weft_file_hash_read(file(), 1, &hash, &err), err);
        REQUIRE_OK(weft_file_hash_read(file(), 3, &again, &err), err);
        REQUIRE_OK(weft_map_open(file(), &map, &err), err);
        CHECK(hash.n_bytes == size[i]);
        CHECK_INT(hash.n_chunks, n_chunks[i]);
        for (size_t k = 0; k < hash.n_chunks; k++) {
            uint64_t at = k * chunk;
            uint64_t n = map.n - at < chunk ? map.n - at : chunk;
            struct weft_hash expected = weft_hash128(map.data + at, n);
            CHECK(weft_hash_equal(hash.chunk[k], expected));
            CHECK(weft_hash_equal(again.chunk[k], expected));
        }
        weft_map_close(&map);
        weft_file_hash_release(&hash);
        weft_file_hash_release(&again);
    }
}

/* The whole's checksum tells files apart that differ in a byte or in size. */
static void test_file_hash_whole(void)
{
    static const char *const text[] = {"", "a", "b", "a\n"};
    struct weft_hash whole[WEFT_COUNT(text)];
    struct weft_file_hash hash;
    struct weft_err err;
    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        REQUIRE_OK(weft_file_write(file(), text[i], strlen(text[i]), &err),
                   err);
        REQUIRE_OK(weft_file_hash_read(file(), 2, &hash, &err), err);
        whole[i] = weft_file_hash_whole(&hash);
        weft_file_hash_release(&hash);
        for (size_t k = 0; k < i; k++)
            CHECK(!weft_hash_equal(whole[i], whole[k]));
    }
}

static void test_file_hash_refuses(void)
{
    struct weft_file_hash hash;
    struct weft_err err;
    CHECK_FAILS(weft_file_hash_read(dir, 1, &hash, &err), WEFT_EINVAL, err,
                "not an ordinary file");
    CHECK_FAILS(weft_file_hash_read("/tmp/weft-none/f", 1, &hash, &err),
                WEFT_ENOTFOUND, err, "/tmp/weft-none/f");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

static void test_file_hash_make(void)
{
    REQUIRE(mkdtemp(dir) != NULL);
}

WEFT_TESTS("base/file_hash", {"test_file_hash_make", test_file_hash_make},
           {"test_file_hash_chunks", test_file_hash_chunks},
           {"test_file_hash_whole", test_file_hash_whole},
           {"test_file_hash_refuses", test_file_hash_refuses})
