/* SPDX-License-Identifier: Apache-2.0 */
/* run/manifest.c: every byte of a manifest and of the files it names counts,
 * and every key is missed, and refused where it is wrong. */
#include <math.h>
#include <unistd.h>

#include "folder.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/limits.h"
#include "record/manifest.h"

static const char *const names[] = {"actor/a", "optimizer/actor/b"};

/* Plainly, without a rename and without bringing it to the disk. */
static void put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in(name), "wb");
    REQUIRE(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

static char *get(const char *name, size_t *n)
{
    char *text;
    struct weft_err err;
    REQUIRE_OK(weft_file_read(in(name), 0, &text, n, &err), err);
    return text;
}

static int look(struct weft_err *err)
{
    struct weft_manifest m = {0};
    int rc = weft_manifest_read(dir, 12, &m, err);
    weft_manifest_release(&m);
    return rc;
}

static int verify(struct weft_err *err)
{
    struct weft_manifest m = {0};
    int rc = weft_manifest_read(dir, 12, &m, err);
    if (!rc)
        rc = weft_manifest_verify(&m, dir, names, 2, err);
    weft_manifest_release(&m);
    return rc;
}

static const struct weft_manifest made = {.format = WEFT_MANIFEST_FORMAT,
                                          .weft = "0.1.0",
                                          .iteration = 12,
                                          .seed = 0x7ffffffffffffff1,
                                          .gradient_groups = WEFT_MAX_GROUPS,
                                          .dtype = WEFT_BF16,
                                          .model_dtype = WEFT_F32,
                                          .isa = WEFT_ISA_AVX2,
                                          .gpus = "a \"GPU\", 9.0"};

static void test_manifest_make(void)
{
    static const char a[] = "the first file", b[] = "the other";
    struct weft_manifest m = made;
    struct weft_err err;
    folder_make();
    REQUIRE_OK(weft_dir_create(in("actor"), &err), err);
    REQUIRE_OK(weft_dir_create(in("optimizer/actor"), &err), err);
    put(names[0], a, sizeof a);
    put(names[1], b, sizeof b);
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(weft_manifest_add_file(&m, dir, names[i], &err), err);
    REQUIRE_OK(weft_manifest_add_input(&m, "data.path", "/d/\"x\".jsonl", 99,
                                       weft_hash128("x", 1), &err),
               err);
    REQUIRE_OK(weft_manifest_add_role(&m, "actor", 24, 4, &err), err);
    REQUIRE_OK(weft_manifest_add_role(&m, "critic", 36, 2, &err), err);
    REQUIRE_OK(weft_manifest_add_number(&m, "more", 1.0 / 3, &err), err);
    REQUIRE_OK(weft_manifest_add_number(&m, "less", -0.0, &err), err);
    REQUIRE_OK(weft_manifest_write(&m, dir, &err), err);
    weft_manifest_release(&m);
}

static void test_manifest_round_trip(void)
{
    struct weft_manifest m;
    struct weft_err err;
    REQUIRE_OK(weft_manifest_read(dir, 12, &m, &err), err);
    CHECK_STR(m.weft, made.weft);
    CHECK_INT(m.iteration, 12);
    CHECK(m.seed == made.seed);
    const struct weft_manifest_role *critic = weft_manifest_role(&m,
                                                                 "critic");
    REQUIRE(m.n_roles == 2 && critic);
    CHECK_STR(m.role[0].name, "actor");
    CHECK_INT(critic->steps, 36);
    CHECK_INT(critic->blocks, 2);
    CHECK(!weft_manifest_role(&m, "critics"));
    CHECK_INT(m.gradient_groups, WEFT_MAX_GROUPS);
    CHECK_INT(m.dtype, WEFT_BF16);
    CHECK_INT(m.model_dtype, WEFT_F32);
    CHECK_INT(m.isa, WEFT_ISA_AVX2);
    CHECK_STR(m.gpus, made.gpus);
    REQUIRE(m.n_files == 2 && m.n_inputs == 1);
    CHECK_STR(m.file[1].name, names[1]);
    CHECK_INT(m.file[0].hash.n_bytes, 15);
    CHECK(weft_hash_equal(m.file[0].hash.chunk[0],
                          weft_hash128("the first file", 15)));
    CHECK_STR(m.input[0].key, "data.path");
    CHECK_STR(m.input[0].path, "/d/\"x\".jsonl");
    CHECK_INT(m.input[0].n_bytes, 99);
    CHECK(weft_hash_equal(m.input[0].hash, weft_hash128("x", 1)));
    double x = 0;
    REQUIRE_OK(weft_manifest_number(&m, "more", &x, &err), err);
    CHECK(x == 1.0 / 3);
    REQUIRE_OK(weft_manifest_number(&m, "less", &x, &err), err);
    CHECK(x == 0 && signbit(x));
    CHECK_FAILS(weft_manifest_number(&m, "other", &x, &err), WEFT_EFORMAT,
                err, "'numbers' lacks 'other'");
    weft_manifest_release(&m);
    REQUIRE_OK(verify(&err), err);
    CHECK_FAILS(weft_manifest_read(dir, 13, &m, &err), WEFT_EFORMAT, err,
                "'iteration' is 12, but the folder's name says 13");
}

/* ---- Damage ----------------------------------------------------------- */

/* Calls check with every bit of the file flipped, and cut at every byte. */
static void damage(const char *name, int (*check)(struct weft_err *err))
{
    size_t n, passed = 0, unnamed = 0;
    char *text = get(name, &n);
    struct weft_err err;
    for (size_t i = 0; i < 8 * n; i++) {
        text[i / 8] = (char) (text[i / 8] ^ 1 << i % 8);
        put(name, text, n);
        passed += check(&err) == 0;
        unnamed += !strstr(err.text, name);
        text[i / 8] = (char) (text[i / 8] ^ 1 << i % 8);
    }
    for (size_t i = 0; i < n; i++) {
        put(name, text, i);
        passed += check(&err) == 0;
        unnamed += !strstr(err.text, name);
    }
    CHECK_INT(passed, 0);
    CHECK_INT(unnamed, 0);
    text[n] = '\n'; /* instead of the zero byte after it */
    put(name, text, n + 1);
    CHECK(check(&err) != 0);
    put(name, text, n);
    REQUIRE_OK(check(&err), err);
    weft_free(text);
}

static void test_manifest_damaged(void)
{
    damage("manifest.json", look);
}

static void test_manifest_files_damaged(void)
{
    struct weft_err err;
    for (int i = 0; i < 2; i++) {
        damage(names[i], verify);
        REQUIRE(rename(in(names[i]), in("aside")) == 0);
        CHECK_FAILS(verify(&err), WEFT_ENOTFOUND, err, names[i]);
        REQUIRE(rename(in("aside"), in(names[i])) == 0);
    }
}

/* ---- Wrong, though the checksum is right ------------------------------ */

/* Puts `to` in the place of `from`, and the checksum of that text. */
static void edit(const char *from, const char *to)
{
    char digits[WEFT_HASH_DIGITS + 1], now[8192];
    size_t n;
    char *text = get("manifest.json", &n);
    char *at = strstr(text, from), *end = strstr(text, ",\n \"checksum\"");
    REQUIRE(at && end && at < end);
    *end = 0;
    int n_now = snprintf(now, sizeof now, "%.*s%s%s", (int) (at - text), text,
                         to, at + strlen(from));
    weft_hash_format(weft_hash128(now, (size_t) n_now), digits);
    n_now += snprintf(now + n_now, sizeof now - (size_t) n_now,
                      ",\n \"checksum\": \"%s\"\n}\n", digits);
    put("manifest.json", now, (size_t) n_now);
    weft_free(text);
}

/* The manifest with that edit is refused by a sentence that has `part`. */
static void refused(const char *from, const char *to, const char *part)
{
    struct weft_err err = {0};
    size_t n;
    char *good = get("manifest.json", &n);
    edit(from, to);
    int rc = verify(&err);
    if (rc == 0 || !strstr(err.text, part) || !strstr(err.text, "manifest"))
        printf("\n    '%s' for '%s': %d '%s'\n", to, from, rc, err.text);
    CHECK(rc != 0);
    CHECK(strstr(err.text, part) != NULL);
    CHECK(strstr(err.text, "manifest") != NULL);
    put("manifest.json", good, n);
    REQUIRE_OK(verify(&err), err);
    weft_free(good);
}

static void test_manifest_keys(void)
{
    static const char *const key[][4] = {
        /* key and value; a wrong type; out of range */
        {"format", " \"format\": 3", "\"3\"", "0"},
        {"weft", " \"weft\": \"0.1.0\"", "1", NULL},
        {"iteration", " \"iteration\": 12", "12.5", "-5"},
        {"seed", " \"seed\": 9223372036854775793", "{}", "-1"},
        {"gradient_groups", " \"gradient_groups\": 1024", "false", "0"},
        {"dtype", " \"dtype\": \"bf16\"", "16", "\"f16\""},
        {"isa", " \"isa\": \"avx2\"", "2", "\"mmx\""},
        {"model_dtype", " \"model_dtype\": \"f32\"", "null", "\"f64\""},
        {"chunk_bytes", " \"chunk_bytes\": 67108864", "\"1\"", "67108865"},
    };
    char from[128], to[192];
    for (size_t i = 0; i < WEFT_COUNT(key); i++) {
        snprintf(from, sizeof from, "%s,\n", key[i][1]);
        refused(from, "", key[i][0]); /* missing */
        snprintf(to, sizeof to, " \"other\": 1,\n%s", from);
        refused(from, to, "other"); /* unknown */
        for (int k = 2; k < 4; k++) {
            if (!key[i][k])
                continue;
            snprintf(to, sizeof to, " \"%s\": %s,\n", key[i][0], key[i][k]);
            refused(from, to, key[i][0]);
        }
    }
    snprintf(from, sizeof from, " \"gpus\": \"a \\\"GPU\\\", 9.0\",\n");
    refused(from, " \"gpus\": 9,\n", "gpus"); /* may be missing */
    refused(" \"iteration\": 12", " \"iteration\": 13",
            "'iteration' is 13, but the folder's name says 12");
    refused(" \"iteration\": 12", " \"iteration\": 12,\n \"iteration\": 12",
            "duplicate");
}

static void test_manifest_lists(void)
{
    refused("\"actor/a\"", "\"actor/../a\"", "'files' lacks 'actor/a'");
    refused("\"files\": {",
            "\"files\": {\"x\": {\"bytes\": 0, \"xxh3\": []},",
            "'files' has 'x'");
    refused("\"files\"", "\"file\"", "file");
    refused("\"inputs\"", "\"input\"", "input");
    refused("\"bytes\": 15", "\"bytes\": 16", "actor/a");
    refused("\"bytes\": 15", "\"bytes\": -1", "actor/a");
    refused("\"bytes\": 15", "\"bytes\": 67108865", "2 chunks");
    refused("\"bytes\": 15", "\"bite\": 15", "bite");
    refused("\"xxh3\": [\"", "\"xxh3\": [\"g", "32 hexadecimal digits");
    refused("\"xxh3\": [", "\"xxh3\": [1, ", "2 checksums");
    refused("\"bytes\": 99, ", "", "inputs[0]");
    refused("\"key\": ", "\"keys\": ", "keys");
    refused("\"numbers\": {", "\"numbers\": {\"x\": \"1\", ", "numbers");
    refused("\"numbers\"", "\"number\"", "number");
    refused("\"steps\": 24, ", "", "'roles': 'actor'");
    refused("\"steps\": 24", "\"steps\": -1", "'roles': 'actor'");
    refused("\"blocks\": 4", "\"blocks\": 0", "'roles': 'actor'");
    refused("\"blocks\": 4", "\"bocks\": 4", "bocks");
    refused("\"roles\": {", "\"roles\": {\"x\": 1,", "'roles': 'x'");
    refused("\"roles\"", "\"rolls\"", "roles");
    refused("\"path\": \"/d", "\"path\": 1, \"way\": \"/d", "way");
}

/* What other versions have written. */
static void test_manifest_formats(void)
{
    refused("\"format\": 3", "\"format\": 2", "'format' is 2, which another");
    refused("\"format\": 3", "\"format\": 4", "this one reads 3");
}

WEFT_TESTS("record/manifest", {"test_manifest_make", test_manifest_make},
           {"test_manifest_round_trip", test_manifest_round_trip},
           {"test_manifest_damaged", test_manifest_damaged},
           {"test_manifest_files_damaged", test_manifest_files_damaged},
           {"test_manifest_keys", test_manifest_keys},
           {"test_manifest_lists", test_manifest_lists},
           {"test_manifest_formats", test_manifest_formats},
           {"test_manifest_remove", folder_remove})
