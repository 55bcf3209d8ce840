/* SPDX-License-Identifier: Apache-2.0 */
/* Text from outside as one printable line. */
#include "base/utf8.h"

#include "base/compiler.h"
#include "tests/harness.h"

static void test_utf8_printable(void)
{
    static const struct {
        const char *text;
        size_t n;
        const char *shown;
    } known[] = {
        {"", 0, ""},
        {"plain ~", 7, "plain ~"},
        {"a\nb\tc\rd", 7, "a\\nb\\tc\\rd"},
        {"\033[31mred\007\177", 10, "\\x1b[31mred\\x07\\x7f"},
        {"a\0b", 3, "a\\x00b"},
        /* 2, 3 and 4 bytes */
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 9,
         "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"},
        /* U+009B begins a command of a terminal as ESC [ does. */
        {"\xc2\x9b"
         "31m",
         5, "\\xc2\\x9b31m"},
        {"\xc2\xa0", 2, "\xc2\xa0"},
        /* U+202E turns what follows around; U+2028 ends a line. */
        {"\xe2\x80\xae"
         "abc",
         6, "\\xe2\\x80\\xaeabc"},
        {"\xe2\x80\xa8", 3, "\\xe2\\x80\\xa8"},
        {"\xe2\x81\xa7", 3, "\\xe2\\x81\\xa7"},
        {"\xe2\x80\xa6", 3, "\xe2\x80\xa6"},
        /* Not UTF-8: alone, cut, overlong, a surrogate. */
        {"\xff"
         "a",
         2, "\\xffa"},
        {"\xe2\x82", 2, "\\xe2\\x82"},
        {"\xc0\x80", 2, "\\xc0\\x80"},
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},
    };
    char out[64];
    for (size_t i = 0; i < WEFT_COUNT(known); i++) {
        size_t n = weft_utf8_printable(known[i].text, known[i].n, out,
                                       sizeof out);
        CHECK_STR(out, known[i].shown);
        CHECK_INT(n, strlen(known[i].shown));
    }
}

/* A room of any size: whole characters, then "...". */
static void test_utf8_printable_cut(void)
{
    static const char text[] = "ab\xe2\x82\xac\033"
                               "cd";
    static const char *const known[] = {
        [4] = "...",
        [5] = "a...",
        [6] = "ab...",
        [7] = "ab...",
        [8] = "ab...",
        [9] = "ab\xe2\x82\xac...",
        [10] = "ab\xe2\x82\xac...",
        [11] = "ab\xe2\x82\xac...",
        [12] = "ab\xe2\x82\xac\\x1bcd",
        [13] = "ab\xe2\x82\xac\\x1bcd",
    };
    char out[16];
    for (size_t room = 4; room < WEFT_COUNT(known); room++) {
        memset(out, '#', sizeof out);
        size_t n = weft_utf8_printable(text, sizeof text - 1, out, room);
        CHECK_STR(out, known[room]);
        CHECK_INT(n, strlen(known[room]));
        CHECK(out[room] == '#');
    }
}

WEFT_TESTS("base/utf8", {"test_utf8_printable", test_utf8_printable},
           {"test_utf8_printable_cut", test_utf8_printable_cut})
