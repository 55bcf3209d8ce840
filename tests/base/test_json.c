/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "base/alloc.h"
#include "base/json.h"

#include <math.h>
#include <unistd.h>

static json_t *parse(const char *text)
{
    struct weft_err err = {0};
    json_t *root = NULL;
    REQUIRE_OK(weft_json_parse(text, strlen(text), "x.json", &root, &err),
               err);
    return root;
}

static void refused(const char *text, const char *part)
{
    struct weft_err err = {0};
    json_t *root = NULL;
    CHECK_FAILS(weft_json_parse(text, strlen(text), "x.json", &root, &err),
                WEFT_EFORMAT, err, part);
    CHECK(!root);
}

static void test_json_parse(void)
{
    json_t *root = parse(" {\"a\": [1, -2.5e3, true, null, \"\\u00e9\"]} \n");
    CHECK_INT(json_array_size(json_object_get(root, "a")), 5);
    json_decref(root);
    root = parse("7"); /* any value may be at the top */
    CHECK_INT(json_integer_value(root), 7);
    json_decref(root);
    root = parse("9223372036854775807");
    CHECK_INT(json_integer_value(root), INT64_MAX);
    json_decref(root);
    /* An integer of more than 64 bits makes a real of no other one. */
    root = parse("[123456789012345678901234567890, -99999999999999999999, "
                 "9223372036854775808, 98765432109876543210e1, "
                 "9223372036854775807, 4, \"\\\"99999999999999999999\"]");
    const double real[] = {123456789012345678901234567890.0, -1e20,
                           9223372036854775808.0, 987654321098765432100.0};
    for (size_t i = 0; i < WEFT_COUNT(real); i++) {
        CHECK(json_is_real(json_array_get(root, i)));
        CHECK(fabs(json_real_value(json_array_get(root, i)) / real[i] - 1)
              < 1e-15);
    }
    CHECK(json_integer_value(json_array_get(root, 4)) == INT64_MAX);
    CHECK_INT(json_integer_value(json_array_get(root, 5)), 4);
    CHECK_STR(json_string_value(json_array_get(root, 6)),
              "\"99999999999999999999");
    json_decref(root);
}

static void test_json_parse_bad(void)
{
    char deep[8192];
    refused("", "x.json:1: empty, where JSON is expected");
    refused(" \n\t ", "empty");
    refused("{", "x.json:1:1: the JSON text ends too early");
    refused("{\n \"a\": 1,\n}", "x.json:3:1: not JSON");
    refused("{\"a\": 1, \"a\": 2}", "duplicate object key");
    refused("[1] 2", "x.json:1:5: not JSON");
    refused("{'a': 1}", "not JSON");
    refused("[NaN]", "not JSON");
    refused("[1e999]", "not JSON");
    refused("[99999999999999999999,\n 1e999]", "x.json:2:");
    refused("[99999999999999999999, \"a", "too early");
    refused("[\"\xff\"]", "not JSON");
    refused("[\"a\nb\"]", "not JSON");
    refused("[\"\\u0000\"]", "zero character");
    refused("[\"\\ud800\"]", "not JSON");
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    refused(deep, "maximum parsing depth");
    /* The sentence is one printable line whatever the file holds. */
    struct weft_err err = {0};
    json_t *root = NULL;
    CHECK(weft_json_parse("[\x01\n\xc3\xa9]", 6, "x.json", &root, &err)
          == WEFT_EFORMAT);
    for (const char *p = err.text; *p; p++)
        CHECK(*p >= 0x20 && *p < 0x7f);
}

static void test_json_parse_texts(void)
{
    static const char zeros[] = "\"a\\u0000b\"";
    struct weft_err err = {0};
    json_t *root = NULL;
    REQUIRE_OK(weft_json_parse_texts(zeros, sizeof zeros - 1, "d.jsonl", 1,
                                     &root, &err),
               err);
    struct weft_str text = weft_json_str(root);
    CHECK(weft_str_equal(text, (struct weft_str){"a\0b", 3}));
    json_decref(root);
    CHECK(!weft_json_str(NULL).s && weft_json_str(NULL).n == 0);
    CHECK_FAILS(
        weft_json_parse_texts("{\"a\" 1}", 7, "d.jsonl", 41, &root, &err),
        WEFT_EFORMAT, err, "d.jsonl:41:6: not JSON");
    CHECK_FAILS(
        weft_json_parse_texts("[1,\n2,\n?]", 9, "d.jsonl", 41, &root, &err),
        WEFT_EFORMAT, err, "d.jsonl:43:1: not JSON");
}

static void test_json_read(void)
{
    char path[] = "/tmp/weft-test-json-XXXXXX";
    static const char text[] = "\xef\xbb\xbf{\"a\": 1}\r\n";
    struct weft_err err = {0};
    json_t *root = NULL;
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    REQUIRE(write(fd, text, sizeof text - 1) == sizeof text - 1);
    close(fd);
    REQUIRE_OK(weft_json_read(path, 0, &root, &err), err);
    CHECK_INT(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    CHECK_FAILS(weft_json_read(path, 4, &root, &err), WEFT_EINVAL, err, path);
    unlink(path);
    CHECK_FAILS(weft_json_read(path, 0, &root, &err), WEFT_ENOTFOUND, err,
                path);
}

static void test_json_find(void)
{
    json_t *root = parse("{\"a\": {\"b\": {\"c\": 1}, \"n\": null}, \"x.y\": "
                         "2, \"p\": {\"q.r\": 3}, \"z\": null}");
    CHECK_INT(json_integer_value(weft_json_find(root, "a.b.c")), 1);
    CHECK_INT(json_integer_value(weft_json_find(root, "x.y")), 2);
    CHECK_INT(json_integer_value(weft_json_find(root, "p.q.r")), 3);
    CHECK(json_is_object(weft_json_find(root, "a.b")));
    CHECK(!weft_json_find(root, "a.n"));
    CHECK(!weft_json_find(root, "z"));
    CHECK(!weft_json_find(root, "a.b.c.d"));
    CHECK(!weft_json_find(root, "."));
    CHECK(!weft_json_find(root, ""));
    CHECK(!weft_json_find(NULL, "a"));
    json_decref(root);
}

static void test_json_getters(void)
{
    json_t *root = parse("{\"i\": 5, \"r\": 2.5, \"w\": 3.0, \"t\": true, "
                         "\"s\": \"x\", \"o\": {}, \"a\": [], \"n\": null, "
                         "\"big\": 1e300}");
    struct weft_err err = {0};
    int64_t i = -1;
    double d = -1;
    bool b = false;
    const char *s = NULL;
    json_t *v = NULL;
    REQUIRE_OK(weft_json_int(root, "f", "i", 0, 9, &i, &err), err);
    CHECK_INT(i, 5);
    REQUIRE_OK(weft_json_int(root, "f", "w", 0, 9, &i, &err), err);
    CHECK_INT(i, 3);
    REQUIRE_OK(weft_json_double(root, "f", "i", &d, &err), err);
    CHECK(d > 4.9 && d < 5.1);
    REQUIRE_OK(weft_json_bool(root, "f", "t", &b, &err), err);
    CHECK(b);
    REQUIRE_OK(weft_json_string(root, "f", "s", &s, &err), err);
    CHECK_STR(s, "x");
    REQUIRE_OK(weft_json_object(root, "f", "o", &v, &err), err);
    CHECK(json_is_object(v));
    REQUIRE_OK(weft_json_array(root, "f", "a", &v, &err), err);
    CHECK(json_is_array(v));

    CHECK_FAILS(weft_json_int(root, "f.json", "i", 6, 9, &i, &err),
                WEFT_EINVAL, err,
                "f.json: 'i' is 5, but must be between 6 and 9");
    CHECK_FAILS(weft_json_int(root, "f", "r", 0, 9, &i, &err), WEFT_EFORMAT,
                err, "'r' must be an integer, not a number");
    CHECK_FAILS(weft_json_int(root, "f", "big", 0, 9, &i, &err), WEFT_EFORMAT,
                err, "'big' must be an integer");
    CHECK_FAILS(weft_json_int(root, "f", "n", 0, 9, &i, &err), WEFT_ENOTFOUND,
                err, "f: 'n' is missing");
    CHECK_FAILS(weft_json_double(root, "f", "s", &d, &err), WEFT_EFORMAT, err,
                "'s' must be a number, not a string");
    CHECK_FAILS(weft_json_bool(root, "f", "i", &b, &err), WEFT_EFORMAT, err,
                "must be true or false, not an integer");
    CHECK_FAILS(weft_json_string(root, "f", "o", &s, &err), WEFT_EFORMAT, err,
                "must be a string, not an object");
    CHECK_FAILS(weft_json_object(root, "f", "a", &v, &err), WEFT_EFORMAT, err,
                "must be an object, not an array");
    CHECK_FAILS(weft_json_array(root, "f", "t", &v, &err), WEFT_EFORMAT, err,
                "must be an array, not true or false");
    CHECK_FAILS(weft_json_array(root, "f", "no", &v, &err), WEFT_ENOTFOUND,
                err, "'no' is missing");
    CHECK_INT(i, 3); /* untouched by what failed */
    json_decref(root);
}

static void test_json_getters_or(void)
{
    json_t *root = parse("{\"i\": 5, \"n\": null, \"s\": \"x\"}");
    struct weft_err err = {0};
    int64_t i = 0;
    double d = 0;
    bool b = false;
    const char *s = NULL;
    json_t *v = root;
    REQUIRE_OK(weft_json_int_or(root, "f", "no", 0, 9, 4, &i, &err), err);
    CHECK_INT(i, 4);
    REQUIRE_OK(weft_json_int_or(root, "f", "n", 0, 9, 3, &i, &err), err);
    CHECK_INT(i, 3);
    REQUIRE_OK(weft_json_int_or(root, "f", "i", 0, 9, 4, &i, &err), err);
    CHECK_INT(i, 5);
    REQUIRE_OK(weft_json_double_or(root, "f", "no", 0.5, &d, &err), err);
    CHECK(d > 0.4 && d < 0.6);
    REQUIRE_OK(weft_json_bool_or(root, "f", "no", true, &b, &err), err);
    CHECK(b);
    REQUIRE_OK(weft_json_string_or(root, "f", "no", "y", &s, &err), err);
    CHECK_STR(s, "y");
    REQUIRE_OK(weft_json_object_or(root, "f", "no", &v, &err), err);
    CHECK(!v);
    v = root;
    REQUIRE_OK(weft_json_array_or(root, "f", "n", &v, &err), err);
    CHECK(!v);
    CHECK_FAILS(weft_json_int_or(root, "f", "s", 0, 9, 4, &i, &err),
                WEFT_EFORMAT, err, "'s' must be an integer");
    json_decref(root);
}

static void test_json_text(void)
{
    static const char *const texts[] = {
        "\"a\\\"b\"", "72",       "-1",
        "0.1",        "2.5e+300", "[1,\"x\",{\"k\":null}]",
        "true",       "3.0",      "0.30000000000000004"};
    for (size_t i = 0; i < WEFT_COUNT(texts); i++) {
        json_t *root = parse(texts[i]);
        char *text = weft_json_text(root);
        json_t *back = parse(text);
        CHECK(json_equal(root, back));
        if (i != 4) /* exponents may be spelled otherwise */
            CHECK_STR(text, texts[i]);
        weft_free(text);
        json_decref(back);
        json_decref(root);
    }
}

static void test_json_keys(void)
{
    static const char *const known[] = {"zero", "recompute"};
    struct weft_err err = {0};
    json_t *root = parse("{\"zero\": 1, \"recompute\": null}");
    REQUIRE_OK(weft_json_keys(root, "x", known, 2, &err), err);
    CHECK_FAILS(weft_json_keys(root, "x", known, 1, &err), WEFT_EINVAL, err,
                "x: unknown key 'recompute'");
    CHECK(strstr(err.text, "mean") == NULL);
    json_decref(root);
    root = parse("{\"recopmute\": 1}");
    CHECK_FAILS(weft_json_keys(root, "x", known, 2, &err), WEFT_EINVAL, err,
                "x: unknown key 'recopmute'; did you mean 'recompute'?");
    json_decref(root);
}

WEFT_TESTS("base/json", {"test_json_parse", test_json_parse},
           {"test_json_parse_bad", test_json_parse_bad},
           {"test_json_parse_texts", test_json_parse_texts},
           {"test_json_read", test_json_read},
           {"test_json_find", test_json_find},
           {"test_json_getters", test_json_getters},
           {"test_json_getters_or", test_json_getters_or},
           {"test_json_keys", test_json_keys},
           {"test_json_text", test_json_text})
