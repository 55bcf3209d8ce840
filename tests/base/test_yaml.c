/* SPDX-License-Identifier: Apache-2.0 */
/* base/yaml.c: trees with lines, typed values, and every refusal. */
#include <math.h>

#include "base/yaml.h"
#include "harness.h"

static struct weft_yaml *parse(const char *text)
{
    struct weft_yaml *root = NULL;
    struct weft_err err = {0};
    REQUIRE_OK(weft_yaml_parse(text, strlen(text), "a.yaml", &root, &err),
               err);
    return root;
}

static int try_parse(const char *text, size_t n, struct weft_err *err)
{
    struct weft_yaml *root = NULL;
    int rc = weft_yaml_parse(text, n, "a.yaml", &root, err);
    CHECK(rc == 0 || root == NULL); /* outputs are written on success only */
    weft_yaml_free(root);
    return rc;
}

static void test_tree(void)
{
    struct weft_yaml *root = parse("# a run\n"
                                   "algorithm: ppo\n"
                                   "rollout:\n"
                                   "  prompts: 64   # per iteration\n"
                                   "  stop: \"\\n\"\n"
                                   "reward:\n"
                                   "  - type: gsm8k\n"
                                   "  - {type: length, target: 10}\n"
                                   "text: |\n"
                                   "  two\n"
                                   "  lines\n");
    CHECK_INT(root->type, WEFT_YAML_MAP);
    CHECK_INT(root->n, 4);
    CHECK_STR(root->key[0], "algorithm");
    CHECK_STR(root->child[0]->text, "ppo");
    CHECK_INT(root->child[0]->line, 2);
    CHECK_INT(root->child[0]->column, 12);
    const struct weft_yaml *rollout = weft_yaml_get(root, "rollout");
    REQUIRE(rollout != NULL);
    CHECK_INT(weft_yaml_get(rollout, "prompts")->line, 4);
    CHECK_STR(weft_yaml_get(rollout, "stop")->text, "\n");
    CHECK(weft_yaml_get(rollout, "stop")->quoted);
    const struct weft_yaml *reward = weft_yaml_get(root, "reward");
    CHECK_INT(reward->type, WEFT_YAML_LIST);
    CHECK_INT(reward->n, 2);
    CHECK(reward->key == NULL);
    CHECK_STR(weft_yaml_get(reward->child[1], "target")->text, "10");
    CHECK_INT(reward->child[1]->line, 8);
    CHECK_STR(weft_yaml_get(root, "text")->text, "two\nlines\n");
    CHECK(weft_yaml_get(root, "nothing") == NULL);
    CHECK(weft_yaml_get(reward, "type") == NULL); /* not a map */
    weft_yaml_free(root);
}

static void test_many_children(void)
{
    char text[4096];
    size_t n = 0;
    for (int i = 0; i < 200; i++)
        n += (size_t) snprintf(text + n, sizeof text - n, "k%d: %d\n", i,
                               i * i);
    struct weft_yaml *root = parse(text);
    CHECK_INT(root->n, 200);
    for (int i = 0; i < 200; i++) {
        char key[16];
        int64_t v = -1;
        snprintf(key, sizeof key, "k%d", i);
        CHECK_INT(weft_yaml_int(weft_yaml_get(root, key), key, &v, NULL), 0);
        CHECK_INT(v, i * i);
    }
    weft_yaml_free(root);
}

static void test_empty_documents(void)
{
    static const char *const empty[] = {"", "\n\n", "# only a comment\n",
                                        "---\n"};
    for (size_t i = 0; i < 3; i++) {
        struct weft_yaml *root = parse(empty[i]);
        CHECK_INT(root->type, WEFT_YAML_MAP);
        CHECK_INT(root->n, 0);
        weft_yaml_free(root);
    }
    struct weft_yaml *root = parse(empty[3]);
    CHECK(weft_yaml_is_null(root));
    weft_yaml_free(root);
}

static void test_refusals(void)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"a: 1\nb: 2\na: 3\n", "a.yaml:3: key 'a' is given twice, first in "
                               "line 1"},
        {"a: &x 1\n", "a.yaml:1: anchors are not supported"},
        {"a: 1\nb: *x\n", "a.yaml:2: "},
        {"a: !!int 1\n", "a.yaml:1: tags are not supported"},
        {"{a: 1}: 2\n", "a.yaml:1: a key must be a word"},
        {"? [1, 2]\n: 2\n", "a.yaml:1: a key must be a word"},
        {"a: 1\n---\nb: 2\n", "a.yaml:2: a second document"},
        {"a: [1, 2\nb: 3\n", "a.yaml:2:"},
        {"a: \"x\\0y\"\n", "a.yaml:1: a value must not hold a zero byte"},
        {"\"x\\0y\": 1\n", "a.yaml:1: a key must not hold a zero byte"},
        {"a:\n\t- 1\n", "a.yaml:2:1: not YAML"},
        {"a: 'open\n", "not YAML"},
        {"a: \xff\xfe\n", "a.yaml: byte 3: "},
    };
    struct weft_err err;
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
        CHECK_FAILS(try_parse(bad[i].text, strlen(bad[i].text), &err),
                    WEFT_EFORMAT, err, bad[i].part);
    CHECK_FAILS(try_parse("a: b\0c: d\n", 10, &err), WEFT_EFORMAT, err,
                "a.yaml");
}

static void test_depth(void)
{
    char text[512];
    struct weft_err err;
    for (size_t depth = 63; depth <= 200; depth += 137) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        if (depth < WEFT_YAML_MAX_DEPTH)
            CHECK_INT(try_parse(text, 2 * depth, &err), 0);
        else
            CHECK_FAILS(try_parse(text, 2 * depth, &err), WEFT_EFORMAT, err,
                        "nested too deeply");
    }
}

static void test_too_many_keys(void)
{
    enum { MOST = WEFT_YAML_MAX_KEYS };
    char *text = malloc((MOST + 1) * 9 + 1);
    struct weft_err err;
    size_t n = 0;
    REQUIRE(text != NULL);
    for (int i = 0; i <= MOST; i++) {
        CHECK(i != MOST || try_parse(text, n, &err) == 0);
        n += (size_t) sprintf(text + n, "k%d: 1\n", i);
    }
    CHECK_FAILS(try_parse(text, n, &err), WEFT_EFORMAT, err,
                "a.yaml:10001: a map has too many keys");
    free(text);
}

/* Every prefix of a document parses or fails with a sentence. */
static void test_prefixes(void)
{
    static const char text[] =
        "a: {b: [1, \"x\"], c: d}\ne:\n  - f\n  - 'g'\n"
        "h: >\n  i\n  j\n";
    for (size_t n = 0; n < sizeof text; n++) {
        struct weft_err err = {0};
        int rc = try_parse(text, n, &err);
        CHECK(rc == 0 || (rc == WEFT_EFORMAT && err.text[0]));
    }
}

static void test_numbers(void)
{
    struct weft_yaml *root = parse(
        "i: 42\nneg: -7\nplus: +3\nzero: 08\nbig: 9223372036854775807\n"
        "huge: 9223372036854775808\nx: 1e-5\ny: -.5\nhex: 0x10\ninf: .inf\n"
        "nan: nan\nover: 1e999\nq: \"5\"\nword: five\nmixed: 5 apples\n"
        "dot: .\nlist: [1]\nnothing:\nsub: 1-2\nf: 2.5\n");
    const struct {
        const char *key;
        int64_t value;
    } whole[] = {
        {"i", 42}, {"neg", -7}, {"plus", 3}, {"zero", 8}, {"big", INT64_MAX}};
    for (size_t i = 0; i < WEFT_COUNT(whole); i++) {
        int64_t v = 0;
        CHECK_INT(
            weft_yaml_int(weft_yaml_get(root, whole[i].key), "k", &v, NULL),
            0);
        CHECK_INT(v, whole[i].value);
    }
    static const char *const not_whole[] = {
        "huge",  "x",    "hex",     "inf", "q", "word",
        "mixed", "list", "nothing", "sub", "f"};
    for (size_t i = 0; i < WEFT_COUNT(not_whole); i++) {
        struct weft_err err;
        int64_t v = 99;
        CHECK_FAILS(
            weft_yaml_int(weft_yaml_get(root, not_whole[i]), "n.k", &v, &err),
            WEFT_EINVAL, err, "'n.k' must be a whole number");
        CHECK_INT(v, 99);
    }
    double d = 0;
    CHECK_INT(weft_yaml_double(weft_yaml_get(root, "x"), "x", &d, NULL), 0);
    CHECK(d == 1e-5);
    CHECK_INT(weft_yaml_double(weft_yaml_get(root, "y"), "y", &d, NULL), 0);
    CHECK(d == -0.5);
    CHECK_INT(weft_yaml_double(weft_yaml_get(root, "i"), "i", &d, NULL), 0);
    CHECK(d == 42);
    static const char *const not_number[] = {
        "hex",   "inf", "nan",  "over",    "q",  "word",
        "mixed", "dot", "list", "nothing", "sub"};
    for (size_t i = 0; i < WEFT_COUNT(not_number); i++) {
        struct weft_err err;
        CHECK_FAILS(weft_yaml_double(weft_yaml_get(root, not_number[i]), "k",
                                     &d, &err),
                    WEFT_EINVAL, err, "'k' must be a");
    }
    struct weft_err err;
    CHECK_FAILS(
        weft_yaml_int(weft_yaml_get(root, "word"), "k", &(int64_t){0}, &err),
        WEFT_EINVAL, err,
        "a.yaml:14: 'k' must be a whole number, not 'five'");
    weft_yaml_free(root);
}

static void test_words(void)
{
    struct weft_yaml *root = parse("t: true\nf: False\ny: yes\nq: 'true'\n"
                                   "n: null\ntilde: ~\ne:\nqn: 'null'\n"
                                   "s: some words\nm: {}\n");
    struct weft_err err;
    bool b = false;
    const char *s = NULL;
    CHECK_INT(weft_yaml_bool(weft_yaml_get(root, "t"), "t", &b, NULL), 0);
    CHECK(b);
    CHECK_INT(weft_yaml_bool(weft_yaml_get(root, "f"), "f", &b, NULL), 0);
    CHECK(!b);
    CHECK_FAILS(weft_yaml_bool(weft_yaml_get(root, "y"), "y", &b, &err),
                WEFT_EINVAL, err, "'y' must be true or false, not 'yes'");
    CHECK_FAILS(weft_yaml_bool(weft_yaml_get(root, "q"), "q", &b, &err),
                WEFT_EINVAL, err, "true or false");
    CHECK(weft_yaml_is_null(weft_yaml_get(root, "n")));
    CHECK(weft_yaml_is_null(weft_yaml_get(root, "tilde")));
    CHECK(weft_yaml_is_null(weft_yaml_get(root, "e")));
    CHECK(!weft_yaml_is_null(weft_yaml_get(root, "qn")));
    CHECK(!weft_yaml_is_null(weft_yaml_get(root, "m")));
    CHECK_INT(weft_yaml_string(weft_yaml_get(root, "s"), "s", &s, NULL), 0);
    CHECK_STR(s, "some words");
    CHECK_INT(weft_yaml_string(weft_yaml_get(root, "qn"), "s", &s, NULL), 0);
    CHECK_STR(s, "null");
    CHECK_FAILS(weft_yaml_string(weft_yaml_get(root, "n"), "n", &s, &err),
                WEFT_EINVAL, err, "'n' must be a text, not nothing");
    CHECK_FAILS(weft_yaml_string(weft_yaml_get(root, "m"), "m", &s, &err),
                WEFT_EINVAL, err, "not a map");
    weft_yaml_free(root);
}

WEFT_TESTS("base/yaml", {"test_tree", test_tree},
           {"test_many_children", test_many_children},
           {"test_empty_documents", test_empty_documents},
           {"test_refusals", test_refusals}, {"test_depth", test_depth},
           {"test_too_many_keys", test_too_many_keys},
           {"test_prefixes", test_prefixes}, {"test_numbers", test_numbers},
           {"test_words", test_words})
