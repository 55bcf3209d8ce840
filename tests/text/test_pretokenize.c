/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of regular expressions against Hugging Face's library, on every code
 * point: tests/data/tokenizer/make_unicode_goldens.py. */
#include "harness.h"

#include "base/alloc.h"
#include "base/json.h"
#include "text/pretokenize.h"
#include "text/unicode/unicode.h"

enum { ALL = 0x110000 };

static uint64_t fnv(uint64_t h, uint32_t c)
{
    for (int i = 0; i < 4; i++, c >>= 8)
        h = (h ^ (c & 0xff)) * 0x100000001b3u;
    return h;
}

/* All code points, or those below U+33480 and a part of plane 14. */
static char *all_text(bool some, size_t *n)
{
    char *text = weft_alloc(4 * ALL, 1);
    size_t at = 0;
    REQUIRE(text != NULL);
    for (uint32_t c = 0; c < ALL; c++)
        if ((c < 0xd800 || c >= 0xe000)
            && (!some || c < 0x33480 || (c >= 0xe0000 && c < 0xe0200)))
            at += (size_t) weft_utf8_put(c, text + at);
    *n = at;
    return text;
}

static struct weft_pretokenizer *matching(const char *pattern)
{
    struct weft_pretokenizer *pre = NULL;
    struct weft_err err = {0};
    char repeated[128];
    snprintf(repeated, sizeof repeated, "%s+", pattern);
    json_t *json = json_pack(
        "{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}", "type",
        "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
        repeated, "behavior", "Removed", "invert", 1, "type", "ByteLevel",
        "add_prefix_space", 0, "use_regex", 0);
    REQUIRE(json != NULL);
    REQUIRE_OK(weft_pretokenizer_read(json, pattern, &pre, &err), err);
    json_decref(json);
    return pre;
}

/* Hashes the first and the last character of a run that matches. */
static int take_run(void *ctx, const char *text, size_t n,
                    struct weft_err *err)
{
    uint64_t *h = ctx;
    uint32_t first = 0, last = 0;
    size_t at = n - 1;
    (void) err;
    while ((text[at] & 0xc0) == 0x80)
        at--;
    weft_utf8_next(text, n, &first);
    weft_utf8_next(text + at, n - at, &last);
    *h = fnv(fnv(*h, first), last);
    return 0;
}

static void check_classes(const char *key, bool some, size_t least)
{
    struct weft_pre_scratch *scratch = weft_pre_scratch_create();
    json_t *root = NULL, *pair;
    struct weft_err err = {0};
    size_t n = 0, i;
    char *text = all_text(some, &n);
    REQUIRE_OK(weft_json_read(weft_test_data("tokenizer/unicode.json"), 0,
                              &root, &err),
               err);
    json_array_foreach(json_object_get(root, key), i, pair)
    {
        const char *pattern = json_string_value(json_array_get(pair, 0));
        const char *wanted = json_string_value(json_array_get(pair, 1));
        struct weft_pretokenizer *pre = matching(pattern);
        uint64_t h = 0xcbf29ce484222325u;
        char digits[16];
        REQUIRE_OK(
            weft_pretokenizer_run(pre, text, n, scratch, take_run, &h, &err),
            err);
        snprintf(digits, sizeof digits, "%08x", (unsigned) (h ^ h >> 32));
        if (strcmp(digits, wanted) != 0)
            printf("\n    %s\n", pattern);
        CHECK_STR(digits, wanted);
        weft_pretokenizer_free(pre);
    }
    CHECK(i > least);
    json_decref(root);
    weft_free(text);
    weft_pre_scratch_free(scratch);
}

static void test_pretokenize_classes(void)
{
    check_classes("classes", false, 50);
}

static void test_pretokenize_scripts(void)
{
    check_classes("some", true, 300);
}

WEFT_TESTS("text/pretokenize",
           {"test_pretokenize_classes", test_pretokenize_classes},
           {"test_pretokenize_scripts", test_pretokenize_scripts})
