/* SPDX-License-Identifier: Apache-2.0 */
/* model/safetensors*.c: files put together by hand here, every way a header
 * can lie, shards, and what is written against the format's rules. */
#include <unistd.h>

#include "base/alloc.h"
#include "folder.h"
#include "model/safetensors.h"

/* A file: length, header, n_buffer bytes 0, 1, 2... */
static unsigned char *make(const char *header, size_t n_buffer, size_t *n_out)
{
    size_t n = strlen(header);
    unsigned char *p = weft_alloc(8 + n + n_buffer, 1);
    REQUIRE(p != NULL);
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char) ((uint64_t) n >> 8 * i);
    memcpy(p + 8, header, n);
    for (size_t i = 0; i < n_buffer; i++)
        p[8 + n + i] = (unsigned char) i;
    *n_out = 8 + n + n_buffer;
    return p;
}

static int parse(const char *header, size_t n_buffer,
                 struct weft_safetensors **out, unsigned char **data_out,
                 struct weft_err *err)
{
    size_t n;
    *out = NULL;
    *data_out = make(header, n_buffer, &n);
    return weft_safetensors_parse(*data_out, n, "x.safetensors", out, err);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"
#define B "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}"
#define C "\"c\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[32,40]}"
#define E "\"e\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[32,32]}"

static void test_good_file(void)
{
    struct weft_err err = {0};
    struct weft_safetensors *st;
    unsigned char *data;
    /* Any order in the header, padding, empty and 0-d tensors. */
    REQUIRE_OK(parse("{" C "," B ",\"__metadata__\":{\"format\":\"pt\"}," A
                     "," E "}     ",
                     40, &st, &data, &err),
               err);
    CHECK_INT(weft_safetensors_count(st), 4);
    CHECK_STR(weft_safetensors_get(st, 0)->name, "a");
    CHECK_STR(weft_safetensors_get(st, 3)->name, "e");
    const struct weft_st_tensor *a = weft_safetensors_find(st, "a");
    REQUIRE(a != NULL);
    CHECK(a->readable && a->dtype == WEFT_F32 && a->n_dims == 2);
    CHECK(a->dim[0] == 2 && a->dim[1] == 3 && a->n == 6 && a->n_bytes == 24);
    CHECK(a->data[5] == 5);
    const struct weft_st_tensor *b = weft_safetensors_find(st, "b");
    float x[4];
    weft_st_tensor_read(b, 1, 3, x);
    for (int i = 0; i < 3; i++) /* bytes 26 + 2i, 27 + 2i, little-endian */
        CHECK(x[i]
              == weft_bf16_to_f32(
                  (uint16_t) ((27 + 2 * i) << 8 | (26 + 2 * i))));
    const struct weft_st_tensor *c = weft_safetensors_find(st, "c");
    CHECK(!c->readable && c->n_dims == 0 && c->n == 1);
    CHECK_STR(c->type, "I64");
    CHECK_INT(weft_safetensors_find(st, "e")->n, 0);
    CHECK(weft_safetensors_find(st, "d") == NULL);
    char text[96];
    CHECK_STR(weft_st_shape_text(a->dim, 2, text), "[2, 3]");
    CHECK_STR(weft_st_shape_text(a->dim, 0, text), "[]");
    weft_safetensors_close(st);
    weft_free(data);
}

#define ENTRY(dtype, shape, offsets)                                         \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape                           \
    ",\"data_offsets\":" offsets "}}"

static void test_lying_headers(void)
{
    static const struct {
        const char *header;
        size_t n_buffer;
        const char *part;
    } bad[] = {
        {" {" A "}", 24, "byte 8 must be '{'"},
        {"[1]", 0, "byte 8 must be '{'"},
        {"{" A, 24, "header, byte"},
        {"{" A "}}", 24, "header, byte"},
        {"{" A "," A "}", 24, "duplicate"},
        {"{" A "}", 23, "tensor 'a' ends at byte"},
        {"{" A "}", 25, "the last tensor ends at byte"},
        {"{}", 1, "the last tensor ends at byte"},
        {"{" A "," C "}", 40, "before tensor 'c', belong to no tensor"},
        {"{" B "}", 32, "bytes"},
        {"{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":"
         "[20,29]}}",
         29, "inside tensor 'a'"},
        {"{" A ",\"b\":"
         "{\"dtype\":\"F32\",\"shape\":[2,3],"
         "\"data_offsets\":[0,24]}}",
         24, "inside tensor"},
        {"{\"a\":3}", 0, "tensor 'a' must be described"},
        {"{\"__metadata__\":{\"x\":1}}", 0, "'__metadata__': 'x'"},
        {"{\"__metadata__\":[]}", 0, "'__metadata__' must be a map"},
        {ENTRY("\"F33\"", "[1]", "[0,4]"), 4, "unknown dtype 'F33'"},
        {ENTRY("5", "[1]", "[0,4]"), 4, "'dtype' must be a text"},
        {ENTRY("\"F32\"", "[-1]", "[0,4]"), 4, "size 0 of 'shape'"},
        {ENTRY("\"F32\"", "[1.0]", "[0,4]"), 4, "size 0 of 'shape'"},
        {ENTRY("\"F32\"", "{}", "[0,4]"), 4, "'shape' must be a list"},
        {ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4,
         "has 9 dimensions"},
        {ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4,
         "larger than any file"},
        {ENTRY("\"F32\"", "[4611686018427387905]", "[0,4]"), 4,
         "larger than any file"},
        {ENTRY("\"F32\"", "[99999999999999999999]", "[0,4]"), 4, "too big"},
        {ENTRY("\"F32\"", "[2]", "[0,4]"), 4,
         "[2] of F32 are 8 bytes, but its data_offsets span 4"},
        {ENTRY("\"F4\"", "[3]", "[0,2]"), 2, "[3] of F4"},
        {ENTRY("\"F32\"", "[1]", "[4,0]"), 4, "ends before it begins"},
        {ENTRY("\"F32\"", "[1]", "[-4,0]"), 4, "'data_offsets' must be"},
        {ENTRY("\"F32\"", "[1]", "[0]"), 4, "'data_offsets' must be"},
        {ENTRY("\"F32\"", "[1]", "[0,4,8]"), 4, "'data_offsets' must be"},
        {ENTRY("\"F32\"", "[1]", "[0.0,4.0]"), 4, "'data_offsets' must be"},
        {ENTRY("\"F32\"", "[1]", "[9223372036854775803,9223372036854775807]"),
         4, "tensor 't' ends at byte"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4,
         "'data_offsets' must be"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        struct weft_err err;
        struct weft_safetensors *st;
        unsigned char *data;
        CHECK_FAILS(parse(bad[i].header, bad[i].n_buffer, &st, &data, &err),
                    WEFT_EFORMAT, err, bad[i].part);
        CHECK(strstr(err.text, "'x.safetensors'") == err.text);
        CHECK(st == NULL);
        weft_free(data);
    }
}

static void test_lengths(void)
{
    struct weft_err err;
    struct weft_safetensors *st = NULL;
    unsigned char byte[16] = {0};
    CHECK_FAILS(weft_safetensors_parse(byte, 0, "f", &st, &err), WEFT_EFORMAT,
                err, "'f': not safetensors: 0 bytes");
    CHECK_FAILS(weft_safetensors_parse(byte, 7, "f", &st, &err), WEFT_EFORMAT,
                err, "7 bytes");
    CHECK_FAILS(weft_safetensors_parse(byte, 8, "f", &st, &err), WEFT_EFORMAT,
                err, "byte 8 must be '{'");
    byte[0] = 9;
    CHECK_FAILS(weft_safetensors_parse(byte, 16, "f", &st, &err),
                WEFT_EFORMAT, err, "truncated: its header ends at byte 17");
    memset(byte, 0xff, 8);
    CHECK_FAILS(weft_safetensors_parse(byte, 16, "f", &st, &err),
                WEFT_EFORMAT, err, "18446744073709551615 bytes; the limit");
    memset(byte, 0, 8);
    byte[3] = 0x10; /* 268435456 */
    CHECK_FAILS(weft_safetensors_parse(byte, 16, "f", &st, &err),
                WEFT_EFORMAT, err, "the limit is 100000000");
}

/* Every truncation and every changed byte of a good file gives an answer. */
static void test_damage(void)
{
    size_t n, refused = 0;
    unsigned char *p = make("{" A "," B "}", 32, &n);
    struct weft_safetensors *st;
    for (size_t cut = 0; cut < n; cut++)
        CHECK_INT(weft_safetensors_parse(p, cut, "x", &st, NULL),
                  WEFT_EFORMAT);
    for (size_t i = 0; i < n - 32; i++)
        for (unsigned v = 0; v < 256; v += 5) {
            unsigned char saved = p[i];
            struct weft_err err = {0};
            p[i] = (unsigned char) v;
            int rc = weft_safetensors_parse(p, n, "x", &st, &err);
            p[i] = saved;
            refused += rc != 0;
            if (rc == 0)
                weft_safetensors_close(st);
            else
                CHECK(rc == WEFT_EFORMAT && err.text[0]);
        }
    CHECK(refused > 1000);
    weft_free(p);
}

/* ---- Folders ---------------------------------------------------------- */

static void put(const char *name, const char *text)
{
    struct weft_err err = {0};
    REQUIRE_OK(weft_file_write(in(name), text, strlen(text), &err), err);
}

static void put_file(const char *name, const char *header, size_t n_buffer)
{
    struct weft_err err = {0};
    size_t n;
    unsigned char *p = make(header, n_buffer, &n);
    REQUIRE_OK(weft_file_write(in(name), p, n, &err), err);
    weft_free(p);
}

static int open_dir(struct weft_err *err)
{
    struct weft_safetensors *st = NULL;
    int rc = weft_safetensors_open(dir, "model", &st, err);
    weft_safetensors_close(st);
    return rc;
}

static void test_shards(void)
{
    static const char one[] = "{" A "}";
    static const char two[] =
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    struct weft_err err = {0};
    struct weft_safetensors *st;
    folder_make();
    CHECK_FAILS(open_dir(&err), WEFT_ENOTFOUND, err,
                "neither 'model.safetensors' nor");
    put("pytorch_model.bin", "x");
    CHECK_FAILS(open_dir(&err), WEFT_ENOTFOUND, err, "pytorch_model.bin");
    put("model.safetensors.index.json",
        "{\"metadata\": {\"total_size\": 27}, \"weight_map\": "
        "{\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}");
    CHECK_FAILS(open_dir(&err), WEFT_ENOTFOUND, err, "1.safetensors");
    put_file("1.safetensors", one, 24);
    put_file("2.safetensors", two, 3);
    REQUIRE_OK(weft_safetensors_open(dir, "model", &st, &err), err);
    CHECK_INT(weft_safetensors_count(st), 2);
    CHECK(strstr(weft_safetensors_find(st, "b")->file, "/2.safe") != NULL);
    weft_safetensors_close(st);

    static const struct {
        const char *map, *part;
    } bad[] = {
        {"{\"weight_map\": {\"a\": \"2.safetensors\"}}",
         "tensor 'a': is not in the file"},
        {"{\"weight_map\": {\"a\": \"1.safetensors\", \"zz\": "
         "\"1.safetensors\"}}",
         "tensor 'zz': is not in the file"},
        {"{\"weight_map\": {\"a\": \"../1.safetensors\"}}",
         "plain file name"},
        {"{\"weight_map\": {\"a\": 3}}", "plain file name"},
        {"{\"weight_map\": {}}", "'weight_map' must map"},
        {"{}", "'weight_map' must map"},
        {"{\"weight_map\": ", "line 1"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        put("model.safetensors.index.json", bad[i].map);
        CHECK_FAILS(open_dir(&err), WEFT_EFORMAT, err, bad[i].part);
    }
    put_file("2.safetensors", one, 24); /* 'a' twice */
    put("model.safetensors.index.json",
        "{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": "
        "\"2.safetensors\"}}");
    CHECK_FAILS(open_dir(&err), WEFT_EFORMAT, err, "and again in");
    put_file("model.safetensors", one, 24); /* a single file wins */
    CHECK_INT(open_dir(&err), 0);
    CHECK_INT(truncate(in("model.safetensors"), 60), 0);
    CHECK_FAILS(open_dir(&err), WEFT_EFORMAT, err, "model.safetensors'");
    folder_remove();
    CHECK_FAILS(open_dir(&err), WEFT_ENOTFOUND, err, "no model folder");
}

/* ---- Writing ---------------------------------------------------------- */

static void test_write(void)
{
    static const struct weft_st_spec spec[] = {{"z.first", WEFT_BF16, 3, 5},
                                               {"b", WEFT_F32, 4, 0},
                                               {"a", WEFT_F32, 2, 3},
                                               {"quote\"\\", WEFT_F16, 1, 1},
                                               {"c", WEFT_BF16, 7, 0}};
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[24,40]},"
        "\"c\":{\"dtype\":\"BF16\",\"shape\":[7],\"data_offsets\":[40,54]},"
        "\"z.first\":{\"dtype\":\"BF16\",\"shape\":[3,5],\"data_offsets\":"
        "[54,84]},\"quote\\\"\\\\\":{\"dtype\":\"F16\",\"shape\":[1,1],"
        "\"data_offsets\":[84,86]}}";
    struct weft_err err = {0};
    struct weft_st_writer *w;
    struct weft_safetensors *st;
    float x[15];
    char *data;
    size_t n;
    for (int i = 0; i < 15; i++)
        x[i] = (float) i * 0.3f - 2; /* most are not bf16 */
    folder_make();
    REQUIRE_OK(weft_st_writer_open(in("f"), 5, spec, &w, &err), err);
    CHECK(!weft_file_exists(in("f")));
    REQUIRE_OK(weft_st_writer_put(w, 0, 10, 5, x + 10, &err), err);
    REQUIRE_OK(weft_st_writer_put(w, 0, 0, 10, x, &err), err);
    REQUIRE_OK(weft_st_writer_put(w, 2, 0, 6, x, &err), err);
    REQUIRE_OK(weft_st_writer_put(w, 3, 0, 1, x + 1, &err), err);
    REQUIRE_OK(weft_st_writer_put(w, 1, 1, 2, x, &err), err);
    REQUIRE_OK(weft_st_writer_close(w, &err), err);

    REQUIRE_OK(weft_file_read(in("f"), 0, &data, &n, &err), err);
    size_t length = strlen(header), padded = (length + 7) / 8 * 8;
    CHECK_INT((unsigned char) data[0] | (unsigned char) data[1] << 8, padded);
    CHECK_INT(n, 8 + padded + 86);
    CHECK(memcmp(data + 8, header, length) == 0);
    for (size_t i = length; i < padded; i++)
        CHECK(data[8 + i] == ' ');
    weft_free(data);

    REQUIRE_OK(weft_safetensors_open_file(in("f"), &st, &err), err);
    float y[15];
    weft_st_tensor_read(weft_safetensors_find(st, "a"), 0, 6, y);
    CHECK(memcmp(x, y, 6 * sizeof *x) == 0);
    weft_st_tensor_read(weft_safetensors_find(st, "z.first"), 0, 15, y);
    for (int i = 0; i < 15; i++)
        CHECK(y[i] == weft_bf16_to_f32(weft_f32_to_bf16(x[i])));
    weft_st_tensor_read(weft_safetensors_find(st, "quote\"\\"), 0, 1, y);
    CHECK(y[0] == weft_f16_to_f32(weft_f32_to_f16(x[1])));
    weft_st_tensor_read(weft_safetensors_find(st, "b"), 0, 4, y);
    CHECK(y[0] == 0 && y[1] == x[0] && y[2] == x[1] && y[3] == 0);
    weft_safetensors_close(st);

    /* Rounded in pieces longer than the writer's room. */
    static const struct weft_st_spec big = {"big", WEFT_BF16, 40000, 0};
    float *many = weft_alloc(40000, sizeof *many);
    REQUIRE(many != NULL);
    for (int i = 0; i < 40000; i++)
        many[i] = (float) i;
    REQUIRE_OK(weft_st_writer_open(in("g"), 1, &big, &w, &err), err);
    REQUIRE_OK(weft_st_writer_put(w, 0, 0, 40000, many, &err), err);
    REQUIRE_OK(weft_st_writer_close(w, &err), err);
    REQUIRE_OK(weft_safetensors_open_file(in("g"), &st, &err), err);
    float *back = weft_alloc(40000, sizeof *back);
    REQUIRE(back != NULL);
    weft_st_tensor_read(weft_safetensors_get(st, 0), 0, 40000, back);
    int wrong = 0;
    for (int i = 0; i < 40000; i++)
        wrong += back[i] != weft_bf16_to_f32(weft_f32_to_bf16(many[i]));
    CHECK_INT(wrong, 0);
    weft_safetensors_close(st);
    weft_free(many);
    weft_free(back);

    REQUIRE_OK(weft_st_writer_open(in("h"), 5, spec, &w, &err), err);
    weft_st_writer_abandon(w);
    CHECK(!weft_file_exists(in("h")));
    static const struct weft_st_spec huge = {"huge", WEFT_F32, 1 << 30,
                                             1 << 20};
    CHECK_FAILS(weft_st_writer_open(in("h"), 1, &huge, &w, &err), WEFT_EFULL,
                err, "disk full");
    REQUIRE_OK(weft_st_writer_open(in("none"), 0, NULL, &w, &err), err);
    REQUIRE_OK(weft_st_writer_close(w, &err), err);
    REQUIRE_OK(weft_safetensors_open_file(in("none"), &st, &err), err);
    CHECK_INT(weft_safetensors_count(st), 0);
    weft_safetensors_close(st);
    folder_remove();
}

/* What the reference library wrote (tests/data/golden/make_goldens.py). */
static void test_reference_files(void)
{
    static const char *const name[] = {"golden/llama", "golden/qwen2",
                                       "golden/qwen3", "golden/mistral"};
    static const size_t n[] = {21, 26, 24, 21};
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        struct weft_err err = {0};
        struct weft_safetensors *st;
        REQUIRE_OK(weft_safetensors_open(weft_test_data(name[i]), "model",
                                         &st, &err),
                   err);
        CHECK_INT(weft_safetensors_count(st), n[i]);
        const struct weft_st_tensor *t;
        t = weft_safetensors_find(st, "model.layers.1.mlp.down_proj.weight");
        REQUIRE(t != NULL);
        CHECK(t->dim[0] == 64 && t->dim[1] == 96 && t->dtype == WEFT_F32);
        weft_safetensors_close(st);
    }
}

WEFT_TESTS("model/safetensors", {"test_good_file", test_good_file},
           {"test_lying_headers", test_lying_headers},
           {"test_lengths", test_lengths}, {"test_damage", test_damage},
           {"test_shards", test_shards}, {"test_write", test_write},
           {"test_reference_files", test_reference_files})
