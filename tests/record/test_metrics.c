/* SPDX-License-Identifier: Apache-2.0 */
#include "record/metrics.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "base/utf8.h"
#include "harness.h"
#include "record/samples.h"
#include "base/string.h"

static struct weft_err err;
static char dir[64], path[128];

static void begin(void)
{
    strcpy(dir, "/tmp/weft-metrics-XXXXXX");
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
}

static void end(void)
{
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

static void put(const char *text)
{
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
}

/* The file, to be freed. */
static char *get(void)
{
    char *text;
    size_t n;
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    return text;
}

static void check_file(const char *expected)
{
    char *text = get();
    CHECK_STR(text, expected);
    weft_free(text);
}

static void test_metrics_record(void)
{
    struct weft_metrics *m;
    double v = 0;
    const double three[3] = {1, -2, 4};
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    CHECK(!weft_metrics_get(m, "a", &v));
    for (int i = 0; i < 300; i++)
        weft_metrics_setf(m, i, "tag/%d", i);
    weft_metrics_set(m, "tag/7", -7);
    CHECK_INT(weft_metrics_n(m), 300);
    CHECK(weft_metrics_get(m, "tag/299", &v) && v == 299);
    CHECK(weft_metrics_get(m, "tag/7", &v) && v == -7);
    CHECK_STR(weft_metrics_at(m, 8, &v), "tag/8");
    CHECK(v == 8);
    weft_metrics_clear(m);
    CHECK_INT(weft_metrics_n(m), 0);
    weft_metrics_set_spread(m, "x", 3, three);
    weft_metrics_set_spread(m, "y", 0, three);
    CHECK_INT(weft_metrics_n(m), 3);
    CHECK(weft_metrics_get(m, "x/mean", &v) && v == 1);
    CHECK(weft_metrics_get(m, "x/max", &v) && v == 4);
    CHECK(weft_metrics_get(m, "x/min", &v) && v == -2);
    CHECK(!weft_metrics_failed(m));
    weft_metrics_free(m);
    weft_metrics_free(NULL);
}

static void test_metrics_write(void)
{
    struct weft_metrics *m;
    struct weft_metrics_writer *w;
    struct weft_metrics_table t;
    static const double value[] = {0.1,
                                   1.0 / 3,
                                   1e-300,
                                   -0.0,
                                   5e-324,
                                   1.7976931348623157e308,
                                   123456789012345680,
                                   0.30000000000000004,
                                   3};
    begin();
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    REQUIRE_OK(weft_metrics_open(dir, 0, false, "verl", &w, &err), err);
    weft_metrics_set(m, "critic/score/mean", 0.5);
    weft_metrics_set(m, "odd \"tag\"", NAN);
    weft_metrics_set(m, "big", INFINITY);
    REQUIRE_OK(weft_metrics_write(w, 1, m, &err), err);
    check_file("{\"iteration\": 1, \"critic/score/mean\": 0.5, \"odd "
               "\\\"tag\\\"\": null, \"big\": null}\n");
    weft_metrics_clear(m);
    for (size_t i = 0; i < WEFT_COUNT(value); i++)
        weft_metrics_setf(m, value[i], "v%zu", i);
    REQUIRE_OK(weft_metrics_write(w, 2, m, &err), err);
    REQUIRE_OK(weft_metrics_sync(w, &err), err);
    weft_metrics_writer_close(w);
    weft_metrics_writer_close(NULL);

    REQUIRE_OK(weft_metrics_read(path, &t, &err), err);
    CHECK_INT(t.n_rows, 2);
    CHECK_INT(t.iteration[1], 2);
    for (size_t i = 0; i < WEFT_COUNT(value); i++) {
        char tag[16];
        snprintf(tag, sizeof tag, "v%zu", i);
        const double *v = weft_metrics_column(&t, tag);
        REQUIRE(v != NULL);
        CHECK(isnan(v[0]));
        CHECK(memcmp(&v[1], &value[i], sizeof *v) == 0); /* same bits */
    }
    CHECK(weft_metrics_column(&t, "critic/score/mean")[0] == 0.5);
    CHECK(weft_metrics_column(&t, "iteration") == NULL);
    CHECK(weft_metrics_column(&t, "big") == NULL);
    weft_metrics_table_clear(&t);
    weft_metrics_free(m);
    end();
}

static int reopen(int64_t n_iterations)
{
    struct weft_metrics_writer *w;
    int rc = weft_metrics_open(dir, n_iterations, false, "verl", &w, &err);
    if (!rc)
        weft_metrics_writer_close(w);
    return rc;
}

#define ROW(i) "{\"iteration\": " #i ", \"a\": 0.25}\n"

static void test_metrics_resume(void)
{
    begin();
    put(ROW(1) ROW(2) ROW(3) ROW(4));
    REQUIRE_OK(reopen(9), err);
    check_file(ROW(1) ROW(2) ROW(3) ROW(4));
    REQUIRE_OK(reopen(2), err);
    check_file(ROW(1) ROW(2));
    /* a line that was being written when the process died */
    put(ROW(1) ROW(2) "{\"iteration\": 3, \"a");
    REQUIRE_OK(reopen(3), err);
    check_file(ROW(1) ROW(2));
    /* or only its line feed is missing */
    put(ROW(1) "{\"iteration\": 2, \"a\": 1}");
    REQUIRE_OK(reopen(2), err);
    check_file(ROW(1) "{\"iteration\": 2, \"a\": 1}\n");
    /* blank lines go */
    put("\n" ROW(1) "  \n\n" ROW(2));
    REQUIRE_OK(reopen(2), err);
    check_file(ROW(1) ROW(2));
    REQUIRE_OK(reopen(0), err);
    check_file("");
    put("");
    REQUIRE_OK(reopen(4), err);
    check_file("");
    /* zero bytes after a power cut have no line feed either */
    FILE *f = fopen(path, "wb");
    REQUIRE(f != NULL);
    fputs(ROW(1), f);
    fwrite("\0\0\0\0", 1, 4, f);
    fclose(f);
    REQUIRE_OK(reopen(2), err);
    check_file(ROW(1));
    end();
}

/* Cut at every byte, the whole lines before the cut survive. */
static void test_metrics_torn(void)
{
    static const char all[] = ROW(1) ROW(2) ROW(3);
    begin();
    for (size_t n = 0; n <= sizeof all - 1; n++) {
        REQUIRE_OK(weft_file_write(path, all, n, &err), err);
        REQUIRE_OK(reopen(3), err);
        char *text = get();
        size_t keep = n;
        while (keep > 0 && all[keep - 1] != '\n')
            keep--;
        if (n + 1 < sizeof all && all[n] == '\n')
            keep = n; /* only the line feed is missing */
        CHECK(strlen(text)
              == keep + (keep == n && n > 0 && all[n - 1] != '\n'));
        CHECK(strncmp(text, all, keep) == 0);
        weft_free(text);
    }
    end();
}

static void test_metrics_fails(void)
{
    struct weft_metrics_writer *w = NULL;
    begin();
    put(ROW(1) "nonsense\n" ROW(2));
    CHECK_FAILS(reopen(3), WEFT_EFORMAT, err, "metrics.jsonl:2");
    check_file(ROW(1) "nonsense\n" ROW(2)); /* untouched */
    put(ROW(1) "{\"a\": 1}\n");
    CHECK_FAILS(reopen(3), WEFT_ENOTFOUND, err, "metrics.jsonl:2");
    put("{\"iteration\": \"x\"}\n");
    CHECK_FAILS(reopen(3), WEFT_EFORMAT, err, "'iteration'");
    CHECK_FAILS(weft_metrics_open("/no/such/dir", 0, false, "verl", &w, &err),
                WEFT_ENOTFOUND, err, "/no/such/dir/metrics.jsonl");
    CHECK(w == NULL);
    end();
}

/* A disk that takes only a part of a line is given none of it. */
static void test_metrics_full(void)
{
    struct weft_metrics *m;
    struct weft_metrics_writer *w;
    struct rlimit old, small;
    begin();
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    REQUIRE_OK(weft_metrics_open(dir, 0, false, "verl", &w, &err), err);
    weft_metrics_set(m, "a", 0.25);
    REQUIRE_OK(weft_metrics_write(w, 1, m, &err), err);
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = 40;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    int rc = weft_metrics_write(w, 2, m, &err);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_INT(rc, WEFT_EIO);
    CHECK(strstr(err.text, "metrics.jsonl") != NULL);
    check_file(ROW(1));
    REQUIRE_OK(weft_metrics_write(w, 2, m, &err), err);
    check_file(ROW(1) ROW(2));
    weft_metrics_writer_close(w);
    weft_metrics_free(m);
    end();
}

static void test_metrics_trl(void)
{
    struct weft_metrics *m;
    struct weft_metrics_writer *w;
    char name[WEFT_METRICS_ALIASES][WEFT_METRICS_TAG];
    CHECK_INT(weft_metrics_trl_names("actor/ppo_kl", name), 1);
    CHECK_STR(name[0], "policy/approxkl_avg");
    CHECK_INT(weft_metrics_trl_names("critic/score/mean", name), 2);
    CHECK_INT(weft_metrics_trl_names("reward/gsm8k/mean", name), 1);
    CHECK_STR(name[0], "rewards/gsm8k/mean");
    CHECK_INT(weft_metrics_trl_names("critic/score/max", name), 0);
    begin();
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    REQUIRE_OK(weft_metrics_open(dir, 0, false, "trl", &w, &err), err);
    weft_metrics_set(m, "critic/score/mean", 0.5);
    weft_metrics_set(m, "critic/score/max", 1);
    REQUIRE_OK(weft_metrics_write(w, 1, m, &err), err);
    check_file("{\"iteration\": 1, \"critic/score/mean\": 0.5, "
               "\"objective/scores\": 0.5, \"reward\": 0.5, "
               "\"critic/score/max\": 1}\n");
    weft_metrics_writer_close(w);
    weft_metrics_free(m);
    end();
}

static void test_metrics_samples(void)
{
    struct weft_reward_config reward[2] = {{.name = "gsm8k"},
                                           {.name = "len"}};
    struct weft_sample_record s[2] = {
        {.index = 3,
         .prompt = weft_str_of("p\n\"q\""),
         .response = weft_str_of("r\xff\xe2\x82\xac"),
         .label = weft_str_of("4"),
         .score = 0.1,
         .part = {1, -0.3},
         .n_tokens = 7,
         .ended = true},
        {.index = 4,
         .prompt = weft_str_of(""),
         .response = {"\x01\0more", 6},
         .score = NAN,
         .baseline = weft_str_of("g\n"),
         .baseline_score = -2},
    };
    begin();
    REQUIRE_OK(weft_samples_write(dir, 12, reward, 2, 2, s, &err), err);
    char *file = weft_samples_path(dir, 12), *text;
    size_t n;
    CHECK(strstr(file, "/samples/000012.jsonl") != NULL);
    REQUIRE_OK(weft_file_read(file, 0, &text, &n, &err), err);
    json_t *a = json_loadb(text, strcspn(text, "\n"), 0, NULL);
    json_t *b = json_loads(text + strcspn(text, "\n") + 1, JSON_ALLOW_NUL,
                           NULL);
    REQUIRE(a && b);
    CHECK_INT(json_integer_value(json_object_get(a, "iteration")), 12);
    CHECK_INT(json_integer_value(json_object_get(a, "index")), 3);
    CHECK_STR(json_string_value(json_object_get(a, "prompt")), "p\n\"q\"");
    CHECK_STR(json_string_value(json_object_get(a, "response")),
              "r\xef\xbf\xbd\xe2\x82\xac");
    CHECK_STR(json_string_value(json_object_get(a, "label")), "4");
    CHECK(json_number_value(json_object_get(a, "score")) == 0.1);
    json_t *part = json_object_get(a, "rewards");
    CHECK(json_number_value(json_object_get(part, "gsm8k")) == 1);
    CHECK(json_number_value(json_object_get(part, "len")) == -0.3);
    CHECK_INT(json_integer_value(json_object_get(a, "n_tokens")), 7);
    CHECK_STR(json_string_value(json_object_get(a, "finish_reason")), "stop");
    CHECK_STR(json_string_value(json_object_get(b, "finish_reason")),
              "length");
    CHECK(json_object_get(b, "label") == NULL);
    CHECK(json_object_get(a, "baseline_response") == NULL);
    CHECK(json_object_get(a, "baseline_score") == NULL);
    CHECK_STR(json_string_value(json_object_get(b, "baseline_response")),
              "g\n");
    CHECK(json_number_value(json_object_get(b, "baseline_score")) == -2);
    CHECK(json_is_null(json_object_get(b, "score")));
    const json_t *response = json_object_get(b, "response");
    CHECK_INT(json_string_length(response), 6);
    CHECK(!memcmp(json_string_value(response), "\x01\0more", 6));
    json_decref(a);
    json_decref(b);
    weft_free(text);

    for (int i = 10; i < 15; i++)
        REQUIRE_OK(weft_samples_write(dir, i, reward, 2, 1, s, &err), err);
    REQUIRE_OK(weft_samples_truncate(dir, 12, &err), err);
    CHECK(weft_file_exists(file));
    weft_free(file);
    file = weft_samples_path(dir, 13);
    CHECK(!weft_file_exists(file));
    weft_free(file);
    REQUIRE_OK(weft_samples_truncate("/no/such", 1, &err), err);
    end();
}

static void test_metrics_text(void)
{
    struct weft_string t = {0};
    static const float f[] = {0.1f,          1e-8f,  16777216, 0.95f,
                              3.4028235e38f, 1e-45f, -0.0f};
    for (size_t i = 0; i < WEFT_COUNT(f); i++) {
        t.n = 0;
        weft_string_add_float(&t, f[i]);
        float back = strtof(t.data, NULL);
        CHECK(memcmp(&back, &f[i], sizeof back) == 0);
    }
    t.n = 0;
    weft_string_add_float(&t, 0.95f);
    CHECK_STR(t.data, "0.95");
    t.n = 0;
    weft_string_add_number(&t, 0.1);
    CHECK_STR(t.data, "0.1");
    static const struct {
        const char *s;
        size_t n;
    } utf8[] = {
        {"a", 1},
        {"\xc3\xa9", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"\xff", 0},
        {"\xc3", 0},
        {"\x80", 0},
        {"\xc0\xaf", 0},
        {"\xe0\x80\xaf", 0},
        {"\xed\xa0\x80", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xf0\x9f\x98", 0},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xed\x9f\xbf", 3},
    };
    for (size_t i = 0; i < WEFT_COUNT(utf8); i++)
        CHECK_INT(weft_utf8_length(utf8[i].s, strlen(utf8[i].s)), utf8[i].n);
    weft_string_release(&t);
}

WEFT_TESTS("record/metrics", {"test_metrics_record", test_metrics_record},
           {"test_metrics_write", test_metrics_write},
           {"test_metrics_resume", test_metrics_resume},
           {"test_metrics_torn", test_metrics_torn},
           {"test_metrics_fails", test_metrics_fails},
           {"test_metrics_full", test_metrics_full},
           {"test_metrics_trl", test_metrics_trl},
           {"test_metrics_samples", test_metrics_samples},
           {"test_metrics_text", test_metrics_text})
