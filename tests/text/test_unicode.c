/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "base/alloc.h"
#include "base/json.h"
#include "text/unicode/unicode.h"
#include "text/unicode/tables.h"

static void check_repair(const char *in, size_t n, const char *wanted)
{
    struct weft_err err = {0};
    char *out = NULL;
    size_t n_out = 0;
    REQUIRE_OK(weft_utf8_repair(in, n, &out, &n_out, &err), err);
    CHECK_INT(n_out, strlen(wanted));
    CHECK_STR(out, wanted);
    weft_free(out);
}

#define R "\xef\xbf\xbd"

/* Python: bytes.decode("utf-8", "replace"). */
static void test_utf8_repair(void)
{
    check_repair("", 0, "");
    check_repair("a\xff"
                 "b",
                 3, "a" R "b");
    check_repair("\xc3", 1, R);
    check_repair("\xc3(", 2, R "(");
    check_repair("\xe2\x82", 2, R);
    check_repair("\xe2\x82(", 3, R "(");
    check_repair("\xf0\x90\x8d", 3, R);
    check_repair("\xc0\x80", 2, R R); /* overlong */
    check_repair("\xe0\x80\x80", 3, R R R);
    check_repair("\xed\xa0\x80", 3, R R R);       /* surrogate */
    check_repair("\xf4\x90\x80\x80", 4, R R R R); /* beyond U+10FFFF */
    check_repair("\xf0\x80\x80\x80", 4, R R R R);
    check_repair("\x80\xbf", 2, R R);
    check_repair("\xe2\x82\xac\xf0\x9f\x98\x80", 7,
                 "\xe2\x82\xac\xf0\x9f\x98\x80");
}

/* Every character there and back. */
static void test_utf8_next(void)
{
    for (uint32_t c = 0; c < 0x110000; c++) {
        char text[4];
        uint32_t back = 0;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        int n = weft_utf8_put(c, text);
        if (weft_utf8_next(text, (size_t) n, &back) != n || back != c) {
            CHECK_INT(back, c);
            break;
        }
        for (int part = 1; part < n; part++)
            if (weft_utf8_next(text, (size_t) part, &back) != -part) {
                CHECK_INT(c, -1);
                return;
            }
    }
    CHECK(weft_utf8_valid("", 0));
    CHECK(weft_utf8_valid("a\xc3\xa9", 3));
    CHECK(!weft_utf8_valid("a\xc3", 2));
}

static void check_nfc(const char *in, const char *wanted)
{
    struct weft_err err = {0};
    char *out = NULL;
    size_t n = 0;
    REQUIRE_OK(weft_unicode_nfc(in, strlen(in), &out, &n, &err), err);
    CHECK_STR(out, wanted);
    CHECK_INT(n, strlen(wanted));
    if (strcmp(in, wanted) != 0)
        CHECK(!weft_unicode_nfc_quick(in, strlen(in)));
    weft_free(out);
}

/* All characters are compared further down. */
static void test_unicode_nfc(void)
{
    check_nfc("", "");
    check_nfc("plain", "plain");
    check_nfc("e\xcc\x81", "\xc3\xa9");
    check_nfc("\xe2\x84\xab", "\xc3\x85");              /* U+212B */
    check_nfc("a\xcc\x81\xcc\x96", "\xc3\xa1\xcc\x96"); /* order */
    check_nfc("a\xcc\x96\xcc\x81", "\xc3\xa1\xcc\x96");
    check_nfc("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81");
    check_nfc("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"); /* excluded */
    /* U+1ABF came after Unicode 9: it stays, and keeps others apart. */
    check_nfc("e\xe1\xaa\xbf\xcc\x81", "e\xe1\xaa\xbf\xcc\x81");
    CHECK(weft_unicode_nfc_quick("caf\xc3\xa9", 5));
}

static void test_unicode_classes(void)
{
    static const uint32_t space[] = {9, 13, 32, 0x85, 0xa0, 0x2009, 0x3000};
    static const uint32_t word[] = {'a',   'Z',    '0',    '_',    0xe9,
                                    0x301, 0x65e5, 0x200d, 0x24b6, 0x2160};
    static const uint32_t neither[] = {'-',  0x1c,    0x180e,  0x200b,
                                       0xb2, 0x1f600, 0x10ffff};
    for (size_t i = 0; i < WEFT_COUNT(space); i++) {
        CHECK(weft_unicode_is_space(space[i]));
        CHECK(!weft_unicode_is_word(space[i]));
    }
    for (size_t i = 0; i < WEFT_COUNT(word); i++) {
        CHECK(weft_unicode_is_word(word[i]));
        CHECK(!weft_unicode_is_space(word[i]));
    }
    for (size_t i = 0; i < WEFT_COUNT(neither); i++)
        CHECK(!weft_unicode_is_word(neither[i])
              && !weft_unicode_is_space(neither[i]));
}

/* ---- Every code point against Hugging Face's library ------------------ */

static const uint64_t FNV_START = 0xcbf29ce484222325u;

static uint64_t fnv(const void *data, size_t n, uint64_t h)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static uint64_t fnv_number(uint32_t c, uint64_t h)
{
    for (int i = 0; i < 4; i++, c >>= 8)
        h = (h ^ (c & 0xff)) * 0x100000001b3u;
    return h;
}

/* The hash of a golden: a key, or "nfc" and a key within. */
static void check_golden(uint64_t h, const char *key, const char *inner)
{
    struct weft_err err = {0};
    json_t *root = NULL;
    char digits[16];
    REQUIRE_OK(weft_json_read(weft_test_data("tokenizer/unicode.json"), 0,
                              &root, &err),
               err);
    json_t *golden = json_object_get(root, key);
    golden = inner ? json_object_get(golden, inner) : golden;
    snprintf(digits, sizeof digits, "%08x", (unsigned) (h ^ h >> 32));
    CHECK_STR(digits, json_string_value(golden));
    json_decref(root);
}

static uint64_t hash_nfc(const char *text, size_t n, uint64_t h)
{
    struct weft_err err = {0};
    char *out = NULL;
    size_t n_out = 0;
    REQUIRE_OK(weft_unicode_nfc(text, n, &out, &n_out, &err), err);
    h = fnv(out, n_out, h);
    weft_free(out);
    return h;
}

static size_t put_text(char *out, const char *text)
{
    size_t n = strlen(text);
    memcpy(out, text, n);
    return n;
}

/* Each character twice, before marks and after them. */
static void test_unicode_nfc_every(void)
{
    char text[64];
    uint64_t h = FNV_START;
    for (uint32_t c = 0; c < 0x110000; c++) {
        size_t n = put_text(text, "A");
        if (c >= 0xd800 && c < 0xe000)
            continue;
        n += (size_t) weft_utf8_put(c, text + n);
        n += put_text(text + n, "\xcc\x96\xcc\x81\xcd\x85");
        n += (size_t) weft_utf8_put(c, text + n);
        n += put_text(text + n, "\xe1\x85\xa1\xe1\x86\xa8");
        h = hash_nfc(text, n, h); /* the next text begins with a starter */
    }
    check_golden(h, "nfc", "every");
}

/* The two that a character decomposes into. */
static void test_unicode_nfc_pairs(void)
{
    char *text = weft_alloc(weft_unicode_n_decomposed, 9);
    size_t n_pairs = 0, n = 0;
    REQUIRE(text != NULL);
    for (size_t i = 0; i < weft_unicode_n_decomposed; i++) {
        const struct weft_unicode_pair *p = &weft_unicode_decomposed[i];
        if (!p->second)
            continue;
        n += (size_t) weft_utf8_put(p->first, text + n);
        n += (size_t) weft_utf8_put(p->second, text + n);
        text[n++] = 'x';
        n_pairs++;
    }
    CHECK(n_pairs > 1000);
    check_golden(hash_nfc(text, n, FNV_START), "nfc", "pairs");
    weft_free(text);
}

/* Runs of characters that a token which is a word of its own may not touch. */
static void test_unicode_is_word_every(void)
{
    uint64_t h = FNV_START;
    bool inside = false;
    for (uint32_t c = 0; c < 0x110000; c++) {
        bool word = weft_unicode_is_word(c);
        if (inside && !word)
            h = fnv_number(c - 1, h);
        if (word && !inside)
            h = fnv_number(c, h);
        inside = word;
    }
    CHECK(!inside);
    check_golden(h, "single", NULL);
}

WEFT_TESTS("text/unicode", {"test_utf8_repair", test_utf8_repair},
           {"test_utf8_next", test_utf8_next},
           {"test_unicode_nfc", test_unicode_nfc},
           {"test_unicode_classes", test_unicode_classes},
           {"test_unicode_nfc_every", test_unicode_nfc_every},
           {"test_unicode_nfc_pairs", test_unicode_nfc_pairs},
           {"test_unicode_is_word_every", test_unicode_is_word_every})
