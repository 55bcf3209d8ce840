/* SPDX-License-Identifier: Apache-2.0 */
#include "record/progress.h"

#include <math.h>
#include <pty.h>
#include <unistd.h>

#include "harness.h"

static struct weft_err err;

static void test_progress_duration(void)
{
    static const struct {
        double s;
        const char *text;
    } known[] = {
        {0, "0s"},         {-3, "0s"},       {0.4, "0s"},
        {59.4, "59s"},     {59.5, "1m00s"},  {80, "1m20s"},
        {3599.6, "1h00m"}, {11100, "3h05m"}, {172800, "2d00h"},
        {INFINITY, "0s"},  {NAN, "0s"},
    };
    char out[24];
    for (size_t i = 0; i < WEFT_COUNT(known); i++)
        CHECK_STR(weft_progress_duration(known[i].s, out), known[i].text);
}

static struct weft_metrics *metrics(double score)
{
    struct weft_metrics *m;
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    weft_metrics_set(m, "critic/score/mean", score);
    weft_metrics_set(m, "actor/reward_kl_penalty", 0.0112);
    weft_metrics_set(m, "response_length/mean", 14.21);
    weft_metrics_set(m, "perf/total_num_tokens", 1024);
    weft_metrics_set(m, "timing_s/step", 0.9);
    weft_metrics_set(m, "perf/steps_per_s", 5);
    return m;
}

static void test_progress_line(void)
{
    char out[512], small[12];
    struct weft_metrics *m = metrics(0.53);
    CHECK_STR(weft_progress_line(12, 60, m, 0.51, 80, out, sizeof out),
              "iteration 12/60  score 0.53 (+0.02)  kl 0.0112  length 14.2  "
              "tok/s 5120  eta 1m20s");
    CHECK_STR(weft_progress_line(60, 60, m, NAN, 0, out, sizeof out),
              "iteration 60/60  score 0.53  kl 0.0112  length 14.2  "
              "tok/s 5120");
    CHECK_STR(weft_progress_line(12, 60, m, 0.51, 80, small, sizeof small),
              "iteration 1");
    weft_metrics_clear(m);
    weft_metrics_set(m, "train/loss", 2.25);
    CHECK_STR(weft_progress_line(1, 2, m, NAN, -1, out, sizeof out),
              "iteration 1/2  loss 2.25");
    weft_metrics_free(m);
}

static void test_progress_file(void)
{
    FILE *f = tmpfile();
    char text[512] = "";
    REQUIRE(f != NULL);
    struct weft_metrics *a = metrics(0.5), *b = metrics(0.25);
    struct weft_progress *p = weft_progress_create(f, 2, 4, 1000);
    REQUIRE(p != NULL);
    weft_progress_step(p, 3, a, 1100);
    weft_progress_step(p, 4, b, 1200);
    weft_progress_pause(p);
    weft_progress_free(p);
    weft_progress_step(NULL, 1, a, 0);
    weft_progress_free(NULL);
    rewind(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    CHECK(n > 0 && !strchr(text, '\r') && !strchr(text, '\033'));
    CHECK_STR(text, "iteration 3/4  score 0.5  kl 0.0112  length 14.2  "
                    "tok/s 5120  eta 1m40s\n"
                    "iteration 4/4  score 0.25 (-0.25)  kl 0.0112  length "
                    "14.2  tok/s 5120\n");
    fclose(f);
    weft_metrics_free(a);
    weft_metrics_free(b);
}

/* On a terminal there is a bar below the line, which goes when asked. */
static void test_progress_terminal(void)
{
    int master, slave;
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    char text[4096] = "";
    if (openpty(&master, &slave, NULL, NULL, &size) != 0) {
        weft_test_skip("no terminal can be opened");
        return;
    }
    setenv("TERM", "xterm", 1);
    FILE *f = fdopen(slave, "w");
    struct weft_metrics *m = metrics(0.5);
    struct weft_progress *p = weft_progress_create(f, 0, 2, 1000);
    REQUIRE(f && p);
    weft_progress_step(p, 1, m, 1060);
    weft_progress_pause(p);
    weft_progress_step(p, 2, m, 1120);
    weft_progress_free(p);
    fputs("END", f); /* the terminal hands on what it likes at a time */
    fflush(f);
    size_t n = 0;
    while (n < 3 || strcmp(text + n - 3, "END") != 0) {
        ssize_t got = read(master, text + n, sizeof text - 1 - n);
        REQUIRE(got > 0);
        n += (size_t) got;
        text[n] = 0;
    }
    n -= 3;
    text[n] = 0;
    CHECK(strncmp(text, "[>", 2) == 0);
    CHECK(strstr(text, "]   0%\r\033[Kiteration 1/2  score 0.5") != NULL);
    CHECK(strstr(text, "[====================>                   ]  50%  eta "
                       "1m00s\r\033[K")
          != NULL);
    CHECK(strstr(text, "iteration 2/2  score 0.5 (+0)") != NULL);
    CHECK(n > 0 && text[n - 1] == '\n'); /* done: no bar is left */
    fclose(f);
    close(master);
    weft_metrics_free(m);
}

WEFT_TESTS("record/progress",
           {"test_progress_duration", test_progress_duration},
           {"test_progress_line", test_progress_line},
           {"test_progress_file", test_progress_file},
           {"test_progress_terminal", test_progress_terminal})
