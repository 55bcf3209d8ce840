/* SPDX-License-Identifier: Apache-2.0 */
#include "record/report.h"

#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "harness.h"
#include "record/chart.h"
#include "record/metrics.h"
#include "record/samples.h"

static struct weft_err err;

/* How often a word stands in a text. */
static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}

static void test_report_chart(void)
{
    static int64_t x[1000];
    static double y[1000];
    struct weft_chart c = {.title = "A <b> & c", .x = x, .n_series = 1};
    struct weft_string out = {0};
    c.series[0] = (struct weft_chart_series){"y", y, NULL, NULL};
    weft_chart_add(&c, &out); /* no points */
    CHECK_INT(out.n, 0);
    for (int i = 0; i < 1000; i++) {
        x[i] = i + 1;
        y[i] = NAN;
    }
    c.n = 1000;
    weft_chart_add(&c, &out); /* none finite */
    CHECK_INT(out.n, 0);
    c.n = 1;
    y[0] = 3;
    weft_chart_add(&c, &out);
    REQUIRE(out.data != NULL);
    CHECK(strstr(out.data, "A &lt;b&gt; &amp; c") != NULL);
    CHECK_INT(count(out.data, "<circle"), 1);
    CHECK(strstr(out.data, "y 3, iteration 1") != NULL);
    CHECK(!strstr(out.data, "nan") && !strstr(out.data, "inf"));
    /* Extremes, gaps and more points than pixels. */
    static const double odd[] = {0,   -1e300,   1e300,     1e-300,
                                 NAN, INFINITY, -INFINITY, 5};
    for (int i = 0; i < 1000; i++)
        y[i] = odd[i % 8];
    for (size_t n = 2; n <= 1000; n = n < 10 ? n + 1 : n * 3) {
        c.n = n < 1000 ? n : 1000;
        out.n = 0;
        weft_chart_add(&c, &out);
        CHECK(!strstr(out.data, "nan") && !strstr(out.data, "inf"));
    }
    for (int i = 0; i < 1000; i++)
        y[i] = 0.25;
    c.n = 1000;
    out.n = 0;
    c.series[0].low = y;
    c.series[0].high = y;
    weft_chart_add(&c, &out);
    CHECK_INT(count(out.data, "<circle"), 400);
    CHECK_INT(count(out.data, "class=\"band s0\""), 1);
    /* Two areas: the upper stands on the lower. */
    c.n = 2;
    c.stacked = true;
    c.n_series = 2;
    c.series[0] = c.series[1] = (struct weft_chart_series){"t", y, NULL,
                                                           NULL};
    out.n = 0;
    weft_chart_add(&c, &out);
    CHECK_INT(count(out.data, "class=\"area"), 2);
    CHECK_INT(count(out.data, "class=\"line"), 0);
    weft_string_release(&out);
}

static void write_run(const char *dir, int n, bool offloads)
{
    struct weft_metrics *m;
    struct weft_metrics_writer *w;
    struct weft_reward_config reward = {.name = "gsm8k"};
    static const char *const times[] = {
        "gen", "ref", "values", "adv", "update_critic", "update_actor"};
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    REQUIRE_OK(weft_metrics_open(dir, 0, false, "verl", &w, &err), err);
    for (int i = 1; i <= n; i++) {
        double s = 1 - exp(-i / 15.0) + 0.05 * sin(i * 1.7);
        const double score[3] = {s, s - 0.3, s + 0.4};
        weft_metrics_clear(m);
        weft_metrics_set_spread(m, "critic/score", 3, score);
        weft_metrics_set(m, "actor/reward_kl_penalty", 0.02 * s * s);
        weft_metrics_set(m, "actor/entropy", 2 - s);
        weft_metrics_set(m, "actor/pg_loss", i == 3 ? NAN : -0.01 * s);
        weft_metrics_set(m, "actor/pg_clipfrac", 0.1 * s);
        weft_metrics_set(m, "critic/vf_clipfrac", 0.03);
        weft_metrics_set(m, "critic/vf_loss", 0.5 / i);
        for (size_t k = 0; k < WEFT_COUNT(times); k++)
            weft_metrics_setf(m, 0.1 * (double) (k + 1) + 0.02 * sin(i),
                              "timing_s/%s", times[k]);
        weft_metrics_set(m, "timing_s/old_log_prob", 0); /* no such call */
        weft_metrics_set(m, "timing_s/step", 2.5);
        weft_metrics_set(m, "perf/steps_per_s", 1 / 1.7);
        weft_metrics_set(m, "perf/total_num_tokens", 3400);
        if (offloads) {
            weft_metrics_set(m, "perf/offload_s", i % 2 ? 0.25 : 0.75);
            weft_metrics_set(m, "perf/offload_hidden_ratio", i % 2 ? 1 : 0.5);
        }
        REQUIRE_OK(weft_metrics_write(w, i, m, &err), err);
    }
    weft_metrics_writer_close(w);
    weft_metrics_free(m);
    struct weft_sample_record s[2] = {
        {.index = 0,
         .prompt = weft_str_of("2 + 2 <i>=</i>?"),
         .response = weft_str_of("it is\n4"),
         .label = weft_str_of("4"),
         .score = 1,
         .part = {1},
         .n_tokens = 3,
         .ended = true},
        {.index = 1,
         .prompt = weft_str_of("\"q\" & \xff"),
         .response = {"</script>\0 and on", 17},
         .score = -0.5,
         .part = {0},
         .n_tokens = 9},
    };
    REQUIRE_OK(weft_samples_write(dir, 1, &reward, 1, 1, s, &err), err);
    REQUIRE_OK(weft_samples_write(dir, n, &reward, 1, 2, s, &err), err);
    char *path = weft_path_join(dir, "config.yaml");
    REQUIRE_OK(weft_file_write(path, "seed: 1 # <x>\n", 14, &err), err);
    weft_free(path);
}

static void test_report_page(void)
{
    const char *keep = getenv("WEFT_TEST_KEEP_REPORT"); /* to look at it */
    char dir[] = "/tmp/weft-report-XXXXXX", *path = NULL, *text;
    size_t n;
    REQUIRE(mkdtemp(dir) != NULL);
    write_run(dir, 60, false);
    REQUIRE_OK(weft_report_write(dir, NULL, &path, &err), err);
    REQUIRE(path && strncmp(path, dir, strlen(dir)) == 0);
    CHECK_STR(path + strlen(dir), "/report.html");
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    CHECK(strncmp(text, "<!doctype html>", 15) == 0);
    CHECK_INT(count(text, "<svg "), count(text, "</svg>"));
    CHECK_INT(count(text, "<figure>"), 9);
    CHECK_INT(count(text, "http"), 0); /* needs nothing from elsewhere */
    CHECK_INT(count(text, "<script"), 0);
    CHECK(strstr(text, "2 + 2 &lt;i&gt;=&lt;/i&gt;?") != NULL);
    CHECK(strstr(text, "&lt;/script&gt;\xef\xbf\xbd and on") != NULL);
    CHECK(strstr(text, "&quot;q&quot; &amp; \xef\xbf\xbd") != NULL);
    CHECK(strstr(text, "Samples of iteration 60") != NULL);
    CHECK(strstr(text, "Samples of iteration 1<") != NULL);
    CHECK(strstr(text, "seed: 1 # &lt;x&gt;") != NULL);
    CHECK(strstr(text, "2000</b><span>tokens per second") != NULL);
    CHECK(strstr(text, "<a href=\"metrics.jsonl\">") != NULL);
    CHECK(!strstr(text, "<a href=\"trace\">"));
    CHECK_INT(count(text, "<td>values<"), 1);
    CHECK_INT(count(text, ">log-probs<"), 0);
    CHECK(!strstr(text, ">nan") && !strstr(text, "Mnan"));
    if (keep)
        REQUIRE_OK(weft_file_copy(path, keep, &err), err);
    weft_free(text);
    weft_free(path);
    char other[64];
    snprintf(other, sizeof other, "%s/x.html", dir);
    REQUIRE_OK(weft_report_write(dir, other, NULL, &err), err);
    CHECK(weft_file_exists(other));
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* What came back from the host, and how much of that was hidden. */
static void test_report_offload(void)
{
    char dir[] = "/tmp/weft-report-XXXXXX", *path, *text;
    size_t n;
    for (int offloads = 0; offloads < 2; offloads++) {
        snprintf(dir, sizeof dir, "/tmp/weft-report-XXXXXX");
        REQUIRE(mkdtemp(dir) != NULL);
        write_run(dir, 4, offloads);
        REQUIRE_OK(weft_report_write(dir, NULL, &path, &err), err);
        REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
        CHECK_INT(count(text, "<figure>"), 9 + offloads);
        CHECK_INT(count(text, "predicted"), 0);
        CHECK_INT(count(text, "Copying offloaded weights back took devices "
                              "0.5 s of an iteration; 75% of it ran beside "
                              "other calls."),
                  offloads);
        weft_free(text);
        weft_free(path);
        REQUIRE_OK(weft_dir_remove(dir, &err), err);
    }
}

/* Predicted beside measured times, in the table and in the curve. Of iterations
 * that have only one of them no error is known. */
static void test_report_predicted(void)
{
    static const struct {
        double step, gen, predicted_step, predicted_gen; /* 0: has none */
    } row[] = {{4, 1, 0, 0}, {5, 2, 4, 1.5}, {3, 2, 4, 1.5}, {0, 0, 7, 0}};
    char dir[] = "/tmp/weft-report-XXXXXX", *path, *text;
    struct weft_metrics_writer *w;
    struct weft_metrics *m;
    size_t n;
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    REQUIRE_OK(weft_metrics_open(dir, 0, false, "verl", &w, &err), err);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const struct {
            const char *tag;
            double value;
        } set[] = {{"timing_s/step", row[i].step},
                   {"timing_s/gen", row[i].gen},
                   {"timing_s/values", 0.5},
                   {"perf/predicted_s/step", row[i].predicted_step},
                   {"perf/predicted_s/gen", row[i].predicted_gen}};
        weft_metrics_clear(m);
        for (size_t k = 0; k < WEFT_COUNT(set); k++)
            if (set[k].value > 0)
                weft_metrics_set(m, set[k].tag, set[k].value);
        REQUIRE_OK(weft_metrics_write(w, (int64_t) i + 1, m, &err), err);
    }
    weft_metrics_writer_close(w);
    weft_metrics_free(m);
    REQUIRE_OK(weft_report_write(dir, NULL, &path, &err), err);
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
#define N "<td class=\"n\">"
    CHECK_INT(count(text, "<th>predicted s<th>error</tr>"), 1);
    /* means; (4 + 4) / (5 + 3) */
    CHECK_INT(count(text, "<td>iteration" N "4.000" N "3.000" N "5.000" N
                          "100%" N "5.000" N "+0%</tr>"),
              1);
    CHECK_INT(count(text, N "1.667" N "1.000" N "2.000" N "42%" N "1.500" N
                            "-25%</tr>"),
              1);
    CHECK_INT(
        count(text, "<td>values" N "0.500" N "0.500" N "0.500" N "12%</tr>"),
        1); /* was not predicted */
#undef N
    CHECK_INT(count(text, "iteration 5, iteration 2"), 1);
    CHECK_INT(count(text, "predicted 4, iteration 2"), 1);
    CHECK_INT(count(text, "predicted 7, iteration 4"), 1);
    weft_free(text);
    weft_free(path);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* Fused training: planned beside measured, the pictures as they are. */
static void test_report_schedule(void)
{
    static const char svg[] = "<svg a=\"#%1\">&amp;\n'\\ \xc3\xa9</svg>\n";
    char dir[] = "/tmp/weft-report-XXXXXX", *path, *text, decoded[200];
    struct weft_metrics_writer *w;
    struct weft_metrics *m;
    size_t n = 0;
    unsigned byte;
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    REQUIRE_OK(weft_metrics_open(dir, 0, false, "verl", &w, &err), err);
    for (int i = 1; i <= 3; i++) { /* the first has no measured times */
        weft_metrics_clear(m);
        weft_metrics_set(m, "critic/score/mean", 0.5);
        if (i > 1) {
            weft_metrics_set(m, "schedule/planned_s", 0.25 * i);
            weft_metrics_set(m, "schedule/measured_s", 0.3 * i);
            weft_metrics_set(m, "schedule/in_order", 1);
        }
        REQUIRE_OK(weft_metrics_write(w, i, m, &err), err);
    }
    weft_metrics_writer_close(w);
    weft_metrics_free(m);
    path = weft_path_join(dir, "schedule");
    REQUIRE_OK(weft_dir_create(path, &err), err);
    weft_free(path);
    path = weft_path_join(dir, "schedule/measured.svg");
    REQUIRE_OK(weft_file_write(path, svg, sizeof svg - 1, &err), err);
    weft_free(path);
    REQUIRE_OK(weft_report_write(dir, NULL, &path, &err), err);
    size_t size;
    REQUIRE_OK(weft_file_read(path, 0, &text, &size, &err), err);
    CHECK(strstr(text, "makespan, s<td class=\"n\">0.75<td class=\"n\">0.9"
                       "<td class=\"n\">0.625<td class=\"n\">0.75")
          != NULL);
    CHECK(strstr(text, "in 2 of 2 iterations") != NULL);
    CHECK_INT(count(text, "<img "), 1);
    const char *s = strstr(text, "data:image/svg+xml,");
    REQUIRE(s != NULL);
    for (s += 19; *s != '"' && n + 1 < sizeof decoded; s++)
        if (*s == '%' && sscanf(s + 1, "%2x", &byte) == 1) {
            decoded[n++] = (char) byte;
            s += 2;
        } else {
            decoded[n++] = *s;
        }
    decoded[n] = 0;
    CHECK_STR(decoded, svg);
    weft_free(text);
    weft_free(path);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

static void test_report_fails(void)
{
    char dir[] = "/tmp/weft-report-XXXXXX", path[64];
    REQUIRE(mkdtemp(dir) != NULL);
    CHECK_FAILS(weft_report_write(dir, NULL, NULL, &err), WEFT_ENOTFOUND, err,
                "is no run directory: it has no metrics.jsonl");
    CHECK_FAILS(weft_report_write("/no/such", NULL, NULL, &err),
                WEFT_ENOTFOUND, err, "'/no/such' is no run directory");
    CHECK_FAILS(weft_report_generation("/no/such", "never.svg", &err),
                WEFT_ENOTFOUND, err, "'/no/such' is no run directory");
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    REQUIRE_OK(
        weft_file_write(path, "{\"iteration\": 1}\n[]\n{}\n", 23, &err), err);
    CHECK_FAILS(weft_report_write(dir, NULL, NULL, &err), WEFT_EFORMAT, err,
                "metrics.jsonl:2: not a JSON object");
    /* An empty run has a page too. */
    REQUIRE_OK(weft_file_write(path, "", 0, &err), err);
    REQUIRE_OK(weft_report_write(dir, NULL, NULL, &err), err);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

WEFT_TESTS("record/report", {"test_report_chart", test_report_chart},
           {"test_report_page", test_report_page},
           {"test_report_offload", test_report_offload},
           {"test_report_predicted", test_report_predicted},
           {"test_report_schedule", test_report_schedule},
           {"test_report_fails", test_report_fails})
