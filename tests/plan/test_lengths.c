/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths of responses: what is drawn has the moments that were asked for, and
 * bad texts and files are refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#include "base/file.h"
#include "plan/lengths.h"

enum { N = 20000, SEED = 4 };

static struct weft_err err;
static char dir[200], path[256];

/* Mean, least and most of N draws. */
struct seen {
    double mean, low, high;
};

static struct seen draw(const char *text, int32_t most)
{
    struct weft_lengths l;
    struct seen s = {0, 1e9, 0};
    REQUIRE_OK(weft_lengths_read(text, &l, &err), err);
    for (int i = 0; i < N; i++) {
        int32_t x = weft_lengths_draw(&l, SEED, 3, i, most);
        CHECK(x == weft_lengths_draw(&l, SEED, 3, i, most));
        s.mean += (double) x / N;
        s.low = fmin(s.low, x);
        s.high = fmax(s.high, x);
    }
    weft_lengths_release(&l);
    return s;
}

static void check(const char *text, int32_t most, double mean, double low,
                  double high)
{
    struct seen s = draw(text, most);
    bool ok = fabs(s.mean - mean) <= 0.02 * mean && s.low == low
           && s.high == high;
    CHECK(ok);
    if (!ok)
        printf("%s: %g, %g to %g\n", text, s.mean, s.low, s.high);
}

static void test_named(void)
{
    check("max", 300, 300, 300, 300);
    check("fixed:70", 300, 70, 70, 70);
    check("fixed:700", 300, 300, 300, 300);
    check("uniform:11:20", 300, 15.5, 11, 20);
    check("uniform:101:500", 300, 250.25, 101, 300);
    check("lognormal:50:0", 300, 50, 50, 50);
    /* the mean is median * exp(sigma^2 / 2) */
    struct seen s = draw("lognormal:100:0.5", 1000000);
    CHECK(fabs(s.mean - 100 * exp(0.125)) < 2);
    s = draw("lognormal:2:3", 1000000);
    CHECK(s.low == 1);
}

static void put(const char *text)
{
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
}

/* So many of n lengths are above `most`. */
static void check_above(const char *text, int32_t most, int64_t above,
                        int64_t n)
{
    struct weft_lengths l;
    int64_t of;
    REQUIRE_OK(weft_lengths_read(text, &l, &err), err);
    CHECK_INT(weft_lengths_above(&l, most, &of), above);
    CHECK_INT(of, n);
    weft_lengths_release(&l);
}

static void test_files(void)
{
    snprintf(dir, sizeof dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/lengths", dir);
    put("10\n20\n\n30\r\n40");
    check(path, 300, 25, 10, 40);
    check_above(path, 20, 2, 4);
    check_above(path, 40, 0, 4);
    check_above("fixed:8", 7, 1, 1);
    check_above("fixed:8", 8, 0, 1);
    check_above("lognormal:9:1", 8, 0, 1);
    put("{\"response_length/min\": 1, \"response_length/mean\": 2,"
        " \"response_length/max\": 3}\n"
        "{\"response_length/min\": 10, \"response_length/mean\": 40,"
        " \"response_length/max\": 250}\n");
    check(path, 300, 40, 10, 250);
    struct weft_lengths l;
    static const struct {
        const char *text, *part;
    } bad[] = {{"", "is empty; give a number of tokens a line"},
               {"\n\n", "is empty"},
               {"5\n0\n", "lengths:2: a line must hold a number of tokens"},
               {"5\nfew\n", "lengths:2:"},
               {"5 6\n", "lengths:1:"},
               {"{\"score\": 1}\n", "response_length/min"},
               {"{\"response_length/min\": 9, \"response_length/mean\": 2, "
                "\"response_length/max\": 3}\n",
                "lengths:1:"}};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        put(bad[i].text);
        int rc = weft_lengths_read(path, &l, &err);
        CHECK(rc != 0 && strstr(err.text, bad[i].part) != NULL);
        weft_lengths_release(&l);
    }
    weft_dir_remove(dir, NULL);
}

static void test_refused(void)
{
    static const char *const text[] = {
        "fixed",         "fixed:",          "fixed:0",    "fixed:3:4",
        "uniform:5",     "uniform:5:4",     "max:3",      "fixed:nan",
        "lognormal:0:1", "lognormal:10:-1", "lognormal:9"};
    struct weft_lengths l;
    for (size_t i = 0; i < WEFT_COUNT(text); i++)
        CHECK_FAILS(weft_lengths_read(text[i], &l, &err), WEFT_EINVAL, err,
                    "cannot be read; give");
    CHECK_FAILS(weft_lengths_read("/nowhere", &l, &err), WEFT_ENOTFOUND, err,
                "/nowhere");
}

WEFT_TESTS("plan/lengths", {"test_named", test_named},
           {"test_files", test_files}, {"test_refused", test_refused})
