/* SPDX-License-Identifier: Apache-2.0 */
#include "run/reward_program.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "base/log.h"
#include "harness.h"

static struct weft_err err;

static struct weft_reward_program *start(const char *script, double timeout_s)
{
    static char shell[] = "/bin/sh", option[] = "-c";
    static char *command[4] = {shell, option, NULL, NULL};
    struct weft_reward_program *p = NULL;
    command[2] = (char *) (uintptr_t) script;
    REQUIRE_OK(
        weft_reward_program_open("judge", command, NULL, timeout_s, &p, &err),
        err);
    return p;
}

static struct weft_reward_sample sample[1000];

static void fill_str(struct weft_str response)
{
    for (size_t i = 0; i < WEFT_COUNT(sample); i++)
        sample[i] = (struct weft_reward_sample){.prompt = weft_str_of("2+2?"),
                                                .response = response,
                                                .label = weft_str_of("4"),
                                                .row = "{\"a\":\n 1}",
                                                .n_tokens = 3,
                                                .ended = true};
}

static void fill(const char *response)
{
    fill_str(weft_str_of(response));
}

static void test_reward_program_bare(void)
{
    struct weft_reward_program *p = start(
        "i=0; while read -r l; do echo \" $i.5 \"; i=$((i+1)); done", 60);
    double score[7];
    fill("four");
    for (int batch = 0; batch < 3; batch++) {
        REQUIRE_OK(weft_reward_program_score(p, 7, sample, score, &err), err);
        for (int i = 0; i < 7; i++)
            CHECK(score[i] == 7 * batch + i + 0.5);
    }
    REQUIRE_OK(weft_reward_program_score(p, 0, sample, score, &err), err);
    weft_reward_program_close(p);
    weft_reward_program_close(NULL);
}

static void test_reward_program_order(void)
{
    struct weft_reward_program *p = start(
        "while read -r a && read -r b && read -r c; do\n"
        "echo '{\"index\": 2, \"score\": -1e-3, \"why\": \"x\"}'; echo\n"
        "echo '{\"score\": 3, \"index\": 0}'; printf '{\"index\":1,'\n"
        "sleep 0.05; printf '\"score\":0.1}\\n'; done",
        60);
    double score[3];
    fill("four");
    for (int batch = 0; batch < 2; batch++) {
        REQUIRE_OK(weft_reward_program_score(p, 3, sample, score, &err), err);
        CHECK(score[0] == 3 && score[1] == 0.1 && score[2] == -1e-3);
    }
    weft_reward_program_close(p);
}

/* The questions as the program sees them: whole JSON lines. */
static void test_reward_program_questions(void)
{
    char path[] = "/tmp/weft-questions-XXXXXX", script[128];
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    snprintf(script, sizeof script,
             "while read -r l; do printf '%%s\\n' \"$l\" >>%s; echo 0; done",
             path);
    struct weft_reward_program *p = start(script, 60);
    double score[2];
    fill("a \"b\" \\ \n\t\x01 \xe2\x82\xac \xff\xc3(");
    sample[1].label = (struct weft_str){0};
    sample[1].row = NULL;
    sample[1].ended = false;
    REQUIRE_OK(weft_reward_program_score(p, 2, sample, score, &err), err);
    weft_reward_program_close(p);
    char *text;
    size_t n;
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    char *second = strchr(text, '\n');
    REQUIRE(second != NULL);
    json_t *a = json_loadb(text, (size_t) (second - text), 0, NULL);
    json_t *b = json_loads(second + 1, 0, NULL);
    REQUIRE(a && b);
    CHECK_INT(json_integer_value(json_object_get(a, "index")), 0);
    CHECK_INT(json_integer_value(json_object_get(b, "index")), 1);
    CHECK_STR(json_string_value(json_object_get(a, "prompt")), "2+2?");
    CHECK_STR(json_string_value(json_object_get(a, "response")),
              "a \"b\" \\ \n\t\x01 \xe2\x82\xac \xef\xbf\xbd\xef\xbf\xbd(");
    CHECK_STR(json_string_value(json_object_get(a, "label")), "4");
    CHECK(json_is_null(json_object_get(b, "label")));
    CHECK(json_is_null(json_object_get(b, "row")));
    CHECK_INT(
        json_integer_value(json_object_get(json_object_get(a, "row"), "a")),
        1);
    CHECK_STR(json_string_value(json_object_get(b, "finish_reason")),
              "length");
    CHECK_INT(json_integer_value(json_object_get(a, "n_tokens")), 3);
    json_decref(a);
    json_decref(b);
    weft_free(text);
    unlink(path);
}

/* More both ways than pipes hold, and a program that talks a lot. */
/* A program sees what a response has behind a zero byte. */
static void test_reward_program_zeros(void)
{
    struct weft_reward_program *p = start(
        "while read -r l; do case $l in *'\"four\\u0000teen\\u0000\"'*) "
        "echo 1;; *) echo 0;; esac; done",
        60);
    double score[1];
    fill_str((struct weft_str){"four\0teen\0", 10});
    REQUIRE_OK(weft_reward_program_score(p, 1, sample, score, &err), err);
    CHECK(score[0] == 1);
    fill_str((struct weft_str){"four\0teen", 9});
    REQUIRE_OK(weft_reward_program_score(p, 1, sample, score, &err), err);
    CHECK(score[0] == 0);
    weft_reward_program_close(p);
}

static void test_reward_program_large(void)
{
    char *big = weft_alloc(1, 20001);
    static double score[200];
    REQUIRE(big != NULL);
    memset(big, 'x', 20000);
    fill(big);
    struct weft_reward_program *p = start(
        "sed -u 's/\"prompt\"/\"score\": 2, \"prompt\"/'", 120);
    REQUIRE_OK(weft_reward_program_score(p, 60, sample, score, &err), err);
    for (int i = 0; i < 60; i++)
        CHECK(score[i] == 2);
    weft_reward_program_close(p);
    weft_free(big);
    fill("x");
    weft_log_set_level(WEFT_LOG_ERROR);
    p = start("while read -r l; do for i in 1 2 3 4 5 6 7 8 9 10; do printf "
              "'%2000s' x >&2; done; echo 1; done",
              120);
    REQUIRE_OK(weft_reward_program_score(p, 20, sample, score, &err), err);
    weft_reward_program_close(p);
}

static void test_reward_program_fails(void)
{
    static const struct {
        const char *script;
        double timeout_s;
        int rc;
        const char *part;
    } bad[] = {
        {"read -r l; echo 1; echo 'cannot open model' >&2; exit 3", 60,
         WEFT_EIO,
         "reward 'judge': program '/bin/sh -c read -r l; echo 1; echo "
         "'cannot open model' >&2; exit 3' ended with status 3 "
         "after answering 1 of 4 samples; its last words: cannot "
         "open model"},
        {"read -r l; kill -9 $$", 60, WEFT_EIO, "was ended by signal 9"},
        {"exit 0", 60, WEFT_EIO, "ended with status 0 after answering 0"},
        {"read -r l; exec >&-; sleep 5", 60, WEFT_EIO,
         "closed its output after answering 0 of 4"},
        {"echo 'thinking' >&2; sleep 30", 0.2, WEFT_ETIMEOUT,
         "answered 0 of 4 samples in 0.2 s (timeout_s); it must flush every "
         "answer; its last words: thinking"},
        {"read -r l; echo 1; sleep 30", 0.2, WEFT_ETIMEOUT,
         "answered 1 of 4"},
        {"read -r l; echo good", 60, WEFT_EFORMAT,
         "neither {\"index\": ..., \"score\": ...} nor a number: good"},
        {"read -r l; echo 1 2", 60, WEFT_EFORMAT, "nor a number: 1 2"},
        {"read -r l; echo nan", 60, WEFT_EFORMAT,
         "gave sample 0 a score that is no finite number: nan"},
        {"read -r l; echo inf", 60, WEFT_EFORMAT, "no finite number"},
        {"read -r l; echo 1e999", 60, WEFT_EFORMAT, "no finite number"},
        {"read -r l; echo '{\"index\": 0, \"score\": NaN}'", 60, WEFT_EFORMAT,
         "wrote a line that is no answer"},
        {"read -r l; echo '{\"index\": 0'", 60, WEFT_EFORMAT,
         "wrote a line that is no answer"},
        {"read -r l; echo '{\"index\": 0}'", 60, WEFT_EFORMAT,
         "without \"index\" (whole) and \"score\""},
        {"read -r l; echo '{\"index\": 0, \"score\": \"1\"}'", 60,
         WEFT_EFORMAT, "without \"index\" (whole) and \"score\""},
        {"read -r l; echo '{\"index\": 4, \"score\": 1}'", 60, WEFT_EFORMAT,
         "answered sample 4; the samples are 0 to 3"},
        {"read -r l; echo '{\"index\": -1, \"score\": 1}'", 60, WEFT_EFORMAT,
         "answered sample -1"},
        {"read -r l; echo '{\"index\": 1, \"score\": 1}'; echo "
         "'{\"index\": 1, \"score\": 1}'",
         60, WEFT_EFORMAT, "answered sample 1 twice"},
        {"read -r l; printf '1\\n1\\n1\\n1\\n1\\n'; sleep 5", 60,
         WEFT_EFORMAT, "wrote a line after its last answer: 1"},
        {"head -c 2000000 /dev/zero | tr '\\000' y; sleep 5", 60,
         WEFT_EFORMAT, "wrote a line of more than 1 MiB: yyy"},
    };
    fill("x");
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        double score[4] = {7, 7, 7, 7};
        struct weft_reward_program *p = start(bad[i].script,
                                              bad[i].timeout_s);
        CHECK_FAILS(weft_reward_program_score(p, 4, sample, score, &err),
                    bad[i].rc, err, bad[i].part);
        CHECK(score[0] == 7 && score[3] == 7);
        /* Once failed it stays so. */
        CHECK(weft_reward_program_score(p, 4, sample, score, &err) < 0);
        weft_reward_program_close(p);
    }
    struct weft_reward_program *p = start("echo ready; sleep 5", 60);
    double score[4];
    usleep(200000);
    CHECK_FAILS(weft_reward_program_score(p, 4, sample, score, &err),
                WEFT_EFORMAT, err, "wrote before it was asked: ready");
    weft_reward_program_close(p);
}

static void test_reward_program_open(void)
{
    char *missing[] = {(char[]){"weft-no-such-program"}, NULL};
    char *sh[] = {(char[]){"/bin/sh"}, NULL};
    char *dir[] = {(char[]){"/tmp"}, NULL};
    struct weft_reward_program *p = NULL;
    CHECK_FAILS(
        weft_reward_program_open("judge", missing, "/tmp", 1, &p, &err),
        WEFT_ENOTFOUND, err,
        "reward 'judge': cannot start 'weft-no-such-program' in "
        "'/tmp': No such file");
    CHECK_FAILS(
        weft_reward_program_open("judge", sh, "/no/such", 1, &p, &err),
        WEFT_ENOTFOUND, err, "'/no/such'");
    CHECK_FAILS(weft_reward_program_open("judge", dir, NULL, 1, &p, &err),
                WEFT_EIO, err, "cannot start '/tmp'");
    CHECK(p == NULL);
}

static bool is_gone(pid_t pid)
{
    for (int i = 0; i < 200; i++) {
        char path[64], *text;
        size_t n;
        snprintf(path, sizeof path, "/proc/%d/stat", (int) pid);
        if (kill(pid, 0) != 0 && errno == ESRCH)
            return true;
        if (weft_file_read(path, 0, &text, &n, NULL) != 0)
            return true;
        bool zombie = strstr(text, ") Z") != NULL; /* nobody's to reap */
        weft_free(text);
        if (zombie)
            return true;
        usleep(10000);
    }
    return false;
}

/* Neither the program nor what it started outlives the close, even when it
 * hears nothing. */
static void test_reward_program_close(void)
{
    char path[] = "/tmp/weft-pids-XXXXXX", script[256], *text;
    int fd = mkstemp(path), a = 0, b = 0;
    size_t n;
    REQUIRE(fd >= 0);
    close(fd);
    snprintf(script, sizeof script,
             "trap '' TERM; sleep 1000 & echo $! $$ >%s; read -r l; echo 1; "
             "while :; do sleep 1; done",
             path);
    struct weft_reward_program *p = start(script, 60);
    double score[1];
    fill("x");
    REQUIRE_OK(weft_reward_program_score(p, 1, sample, score, &err), err);
    double before = weft_clock_s();
    weft_reward_program_close(p);
    CHECK(weft_clock_s() - before < 10);
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    REQUIRE(sscanf(text, "%d %d", &a, &b) == 2 && a > 0 && b > 0);
    CHECK(is_gone(a));
    CHECK(is_gone(b));
    weft_free(text);
    unlink(path);
}

WEFT_TESTS("run/reward_program",
           {"test_reward_program_bare", test_reward_program_bare},
           {"test_reward_program_order", test_reward_program_order},
           {"test_reward_program_questions", test_reward_program_questions},
           {"test_reward_program_zeros", test_reward_program_zeros},
           {"test_reward_program_large", test_reward_program_large},
           {"test_reward_program_fails", test_reward_program_fails},
           {"test_reward_program_open", test_reward_program_open},
           {"test_reward_program_close", test_reward_program_close})
