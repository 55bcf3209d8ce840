/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are no tokenizer, or one that Weft would compute differently. */
#include "harness.h"

#include "base/alloc.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

static void expect(const char *json, int rc, const char *part)
{
    struct weft_tokenizer *tok = NULL;
    struct weft_err err = {0};
    CHECK_FAILS(
        weft_tokenizer_parse(json, strlen(json), "t.json", &tok, &err), rc,
        err, part);
    CHECK(strncmp(err.text, "t.json", 6) == 0);
    CHECK(!tok);
}

#define MODEL(inside) "\"model\":{\"type\":\"BPE\"," inside "}"
#define PRE                                                                  \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
#define DECODER "\"decoder\":{\"type\":\"ByteLevel\"},"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"

/* The same for a tokenizer whose model has these keys. */
static void expect_model(const char *keys, int rc, const char *part)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{" PRE DECODER "\"model\":{\"type\":\"BPE\",%s}}", keys);
    expect(json, rc, part);
}

static void test_tokenizer_parse_bad(void)
{
    expect("", WEFT_EFORMAT, "t.json:1: empty");
    expect("{", WEFT_EFORMAT, "t.json:1:1: the JSON text ends too early");
    expect("[]", WEFT_EFORMAT, "must be an object, not an array");
    expect("{}", WEFT_ENOTFOUND, "'model' is missing");
    expect("{\"model\":3}", WEFT_EFORMAT, "'model' must be an object");
    expect("{\"model\":{\"type\":\"Unigram\"}}", WEFT_EUNSUPPORTED,
           "Unigram tokenizer (a SentencePiece tokenizer)");
    expect("{\"model\":{\"type\":\"WordPiece\"}}", WEFT_EUNSUPPORTED,
           "WordPiece");
    expect("{\"model\":{\"type\":\"WordLevel\"}}", WEFT_EUNSUPPORTED,
           "WordLevel");
    expect("{\"model\":{\"type\":\"Foo\"}}", WEFT_EUNSUPPORTED, "'Foo'");
    expect("{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true}}",
           WEFT_EUNSUPPORTED, "SentencePiece-like");
    expect("{" MODEL(VOCAB ",\"merges\":[]") "}", WEFT_EUNSUPPORTED,
           "pre_tokenizer: missing");
    expect("{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL(VOCAB) "}",
           WEFT_EUNSUPPORTED, "'Metaspace' is not supported");
    expect("{\"normalizer\":{\"type\":\"NFKC\"}," MODEL(VOCAB) "}",
           WEFT_EUNSUPPORTED, "normalizer 'NFKC'");
    expect("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\""
           ":\"Prepend\"}]}," MODEL(VOCAB) "}",
           WEFT_EUNSUPPORTED, "normalizer 'Prepend'");
    expect("{" PRE MODEL(VOCAB) "}", WEFT_EUNSUPPORTED, "decoder 'nothing'");
    expect_model("\"merges\":[]", WEFT_ENOTFOUND,
                 "model: 'vocab' is missing");
    expect_model(VOCAB, WEFT_ENOTFOUND, "model: 'merges' is missing");
    expect_model(VOCAB ",\"merges\":[\"ab\"]", WEFT_EFORMAT,
                 "model.merges[0] must be");
    expect_model(VOCAB ",\"merges\":[\"a b c\"]", WEFT_EFORMAT,
                 "model.merges[0] must be");
    expect_model(VOCAB ",\"merges\":[\"a b\",[\"b\",\"c\"]]", WEFT_EFORMAT,
                 "model.merges[1]: 'c' is not in");
    expect_model(VOCAB ",\"merges\":[[\"b\",\"a\"]]", WEFT_EFORMAT,
                 "model.merges[0]: 'ba' is not in");
    expect_model(VOCAB ",\"merges\":[[\"ab\",\"a\"]]", WEFT_EFORMAT,
                 "together are not in");
    expect_model(VOCAB ",\"merges\":[[\"a\",7]]", WEFT_EFORMAT,
                 "model.merges[0] must be");
    expect_model("\"vocab\":{\"a\":-1}", WEFT_EFORMAT,
                 "the id of 'a' must be an integer from 0 on, not negative");
    expect_model("\"vocab\":{\"a\":\"x\"}", WEFT_EFORMAT, "not a string");
    expect_model("\"vocab\":{\"a\":4000000000}", WEFT_EUNSUPPORTED,
                 "too large");
    expect_model("\"vocab\":{\"a\":1,\"b\":1}", WEFT_EFORMAT,
                 "both have id 1");
    expect_model("\"vocab\":{\"a\":1,\"a\":2}", WEFT_EFORMAT,
                 "duplicate object key");
    expect_model("\"dropout\":0.1," VOCAB, WEFT_EUNSUPPORTED,
                 "'dropout' is 0.1");
    expect_model("\"end_of_word_suffix\":\"</w>\"," VOCAB, WEFT_EUNSUPPORTED,
                 "'end_of_word_suffix'");
    expect_model("\"unk_token\":\"?\"," VOCAB, WEFT_EFORMAT,
                 "unk_token '?' is not in");
    expect_model("\"vocab\":{},\"merges\":[]", WEFT_EFORMAT, "has no tokens");
}

#define GOOD MODEL(VOCAB ",\"merges\":[\"a b\"]")

/* The same for a good tokenizer with another key. */
static void expect_with(const char *key, int rc, const char *part)
{
    char json[1024];
    snprintf(json, sizeof json, "{" PRE DECODER GOOD ",%s}", key);
    expect(json, rc, part);
}

static void test_tokenizer_parse_bad_parts(void)
{
    expect_with("\"added_tokens\":{}", WEFT_EFORMAT,
                "'added_tokens' must be an array");
    expect_with("\"added_tokens\":[{\"id\":3}]", WEFT_ENOTFOUND,
                "added_tokens[0]: 'content' is missing");
    expect_with("\"added_tokens\":[1]", WEFT_EFORMAT,
                "added_tokens[0]: must be an object");
    expect_with("\"added_tokens\":[{\"id\":-3,\"content\":\"x\"}]",
                WEFT_EINVAL, "added_tokens[0]: 'id' is -3");
    expect("{\"normalizer\":{\"type\":\"NFC\"}," PRE DECODER GOOD
           ",\"added_tokens\":[{\"id\":3,\"content\":\"\\u00e9e\"},"
           "{\"id\":4,\"content\":\"e\\u0301e\"}]}",
           WEFT_EINVAL, "two added tokens are the same text");
    expect_with("\"post_processor\":{\"type\":\"BertProcessing\"}",
                WEFT_EUNSUPPORTED, "'BertProcessing'");
    expect_with("\"post_processor\":{\"type\":\"TemplateProcessing\","
                "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}",
                WEFT_EFORMAT, "'<s>' of the template has no ids");
    expect_with("\"post_processor\":{\"type\":\"TemplateProcessing\","
                "\"single\":[]}",
                WEFT_EFORMAT, "does not hold the text");
    expect("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
           "\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}," DECODER GOOD
           "}",
           WEFT_EUNSUPPORTED, "'Digits' after ByteLevel");
    expect("{\"pre_tokenizer\":{\"type\":\"Digits\"}," DECODER GOOD "}",
           WEFT_EUNSUPPORTED, "has no ByteLevel");
}

static void expect_pattern(const char *pattern, int rc, const char *part)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
             "\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":"
             "\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\"}]}"
             "," DECODER GOOD "}",
             pattern);
    expect(json, rc, part);
}

static void test_tokenizer_parse_bad_patterns(void)
{
    expect_pattern("(a", WEFT_EFORMAT,
                   "the regular expression '(a' is wrong");
    expect_pattern("[a", WEFT_EFORMAT, "a '[' without its ']'");
    expect_pattern("[a[b]", WEFT_EFORMAT, "a '[' without its ']'");
    expect_pattern("[a&&[b]", WEFT_EFORMAT, "a '[' without its ']'");
    expect_pattern("[[:alpha:]]", WEFT_EUNSUPPORTED, "does not know '[:'");
    expect_pattern("[b-a]", WEFT_EFORMAT, "from a larger character");
    expect_pattern("[a-\\\\d]", WEFT_EUNSUPPORTED, "does not know '\\'");
    expect_pattern("[\\\\d-z]", WEFT_EUNSUPPORTED, "does not know '-z'");
    expect_pattern("[a-c-e]", WEFT_EUNSUPPORTED, "does not know '-e'");
    expect_pattern("[a[^\\\\x{0}-\\\\x{ff}]]", WEFT_EUNSUPPORTED,
                   "does not know '[^\\x{0}-\\x{ff}]'");
    expect_pattern("(?i:ss)", WEFT_EUNSUPPORTED, "ss, st, ff, fi or fl");
    expect_pattern("(?i:a(?:S)T)", WEFT_EUNSUPPORTED, "ss, st, ff, fi or fl");
    expect_pattern("(?i:\xc3\xa9)", WEFT_EUNSUPPORTED, "beyond ASCII");
    expect_pattern("(?i:\\\\p{L})", WEFT_EUNSUPPORTED, "does not know '\\p'");
    expect_pattern("a{2}?", WEFT_EUNSUPPORTED, "does not know '{2}?'");
    expect_pattern("\\\\x{110000}", WEFT_EUNSUPPORTED, "'\\x{110000}'");
    expect_pattern("\\\\h", WEFT_EUNSUPPORTED, "does not know '\\h'");
    expect_pattern("\\\\b", WEFT_EUNSUPPORTED, "does not know '\\b'");
    expect_pattern("(?<n>a)", WEFT_EUNSUPPORTED, "does not know '(?<'");
    expect_pattern("\\\\xe9", WEFT_EUNSUPPORTED, "does not know '\\xe9'");
    expect_pattern("a{1,2}+", WEFT_EUNSUPPORTED, "does not know '{1,2}+'");
    expect_pattern("\\\\p{Nonsense}", WEFT_EUNSUPPORTED,
                   "does not know '\\p{Nonsense}'");
    expect_pattern("\\\\p{L", WEFT_EUNSUPPORTED, "does not know '\\p{'");
    expect_pattern("a\\\\", WEFT_EUNSUPPORTED, "does not know '\\'");
}

static void test_tokenizer_open_missing(void)
{
    struct weft_tokenizer *tok = NULL;
    struct weft_err err = {0};
    CHECK_FAILS(weft_tokenizer_open("no/such/file.json", &tok, &err),
                WEFT_ENOTFOUND, err, "no/such/file.json");
    CHECK_FAILS(weft_tokenizer_open(weft_test_data("chat"), &tok, &err),
                WEFT_ENOTFOUND, err, "chat/tokenizer.json");
}

WEFT_TESTS("text/tokenizer_bad",
           {"test_tokenizer_parse_bad", test_tokenizer_parse_bad},
           {"test_tokenizer_parse_bad_parts", test_tokenizer_parse_bad_parts},
           {"test_tokenizer_parse_bad_patterns",
            test_tokenizer_parse_bad_patterns},
           {"test_tokenizer_open_missing", test_tokenizer_open_missing})
