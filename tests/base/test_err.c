/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: code, sentence, prefixes, and texts that do not fit. */
#include "base/err.h"

#include <errno.h>

#include "tests/harness.h"

static void test_err_set(void)
{
    struct weft_err err = {0};
    CHECK_INT(weft_err_set(&err, WEFT_EINVAL, "'%s' is %d", "x", 3),
              WEFT_EINVAL);
    CHECK_INT(err.code, WEFT_EINVAL);
    CHECK_STR(err.text, "'x' is 3");
    CHECK_INT(weft_err_set(NULL, WEFT_EIO, "nobody reads this"), WEFT_EIO);
}

static void test_err_prefix(void)
{
    struct weft_err err = {0};
    CHECK_INT(weft_err_prefix(&err, "file"), 0);
    CHECK_STR(err.text, "");
    CHECK_INT(weft_err_prefix(NULL, "file"), 0);
    weft_err_set(&err, WEFT_EFORMAT, "no number");
    CHECK_INT(weft_err_prefix(&err, "line %d", 7), WEFT_EFORMAT);
    CHECK_INT(weft_err_prefix(&err, "a.json"), WEFT_EFORMAT);
    CHECK_STR(err.text, "a.json: line 7: no number");
}

static void test_err_of_itself(void)
{
    struct weft_err err = {0};
    weft_err_set(&err, WEFT_EIO, "inner");
    weft_err_set(&err, WEFT_EIO, "outer (%s)", err.text);
    CHECK_STR(err.text, "outer (inner)");
}

/* An error is one line, whatever file or program it quotes. */
static void test_err_quotes(void)
{
    struct weft_err err = {0};
    weft_err_set(&err, WEFT_EIO, "'%s'", "a\n\033[2Jb");
    CHECK_STR(err.text, "'a\\n\\x1b[2Jb'");
    weft_err_prefix(&err, "%s", "\t");
    CHECK_STR(err.text, "\\t: 'a\\n\\x1b[2Jb'");
}

static void test_err_long_text(void)
{
    struct weft_err err = {0};
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    weft_err_set(&err, WEFT_EINVAL, "%s", text);
    size_t n = strlen(err.text);
    CHECK_INT(n, sizeof err.text - 1);
    CHECK_STR(err.text + n - 4, "x...");
    text[sizeof err.text - 1] = 0; /* the longest that fits stays whole */
    weft_err_set(&err, WEFT_EINVAL, "%s", text);
    CHECK_STR(err.text, text);
    weft_err_prefix(&err, "p");
    CHECK(strncmp(err.text, "p: xxx", 6) == 0);
    CHECK_STR(err.text + sizeof err.text - 5, "x...");
}

static void test_err_sys_codes(void)
{
    static const struct {
        int sys, code;
    } map[] = {
        {ENOENT, WEFT_ENOTFOUND}, {ENOSPC, WEFT_EFULL}, {EDQUOT, WEFT_EFULL},
        {ENOMEM, WEFT_ENOMEM},    {EACCES, WEFT_EIO},   {EISDIR, WEFT_EIO},
    };
    for (size_t i = 0; i < WEFT_COUNT(map); i++) {
        struct weft_err err = {0};
        errno = map[i].sys;
        CHECK_INT(weft_err_sys(&err, "open", "a/b"), map[i].code);
        CHECK_INT(err.code, map[i].code);
        CHECK(strncmp(err.text, "cannot open 'a/b': ", 19) == 0);
        CHECK(strstr(err.text, strerror(map[i].sys)) != NULL);
    }
}

static void test_err_nomem(void)
{
    struct weft_err err = {0};
    CHECK_INT(weft_err_nomem(&err, "the cache", 3 << 20), WEFT_ENOMEM);
    CHECK_STR(err.text, "out of memory: the cache needs 3.0 MiB more");
}

WEFT_TESTS("base/err", {"test_err_set", test_err_set},
           {"test_err_prefix", test_err_prefix},
           {"test_err_of_itself", test_err_of_itself},
           {"test_err_quotes", test_err_quotes},
           {"test_err_long_text", test_err_long_text},
           {"test_err_sys_codes", test_err_sys_codes},
           {"test_err_nomem", test_err_nomem})
