/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "base/alloc.h"
#include "model/unicode.h"

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

/* All characters are compared in test_tokenizer.c. */
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

WEFT_TESTS("model/unicode", {"test_utf8_repair", test_utf8_repair},
           {"test_utf8_next", test_utf8_next},
           {"test_unicode_nfc", test_unicode_nfc},
           {"test_unicode_classes", test_unicode_classes})
