/* SPDX-License-Identifier: Apache-2.0 */
#include "reward/program.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
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

/* One batch. */
static int score_all(struct weft_reward_program *p, int32_t n,
                     const struct weft_reward_sample *s, double *score_out,
                     struct weft_err *why)
{
    int32_t index[64];
    double busy_s;
    REQUIRE(n <= (int32_t) WEFT_COUNT(index));
    weft_reward_program_begin(p, n);
    for (int32_t i = 0; i < n; i++) {
        index[i] = i;
        weft_reward_program_ask(p, i, &s[i]);
    }
    return weft_reward_program_end(p, n, index, score_out, &busy_s, why);
}

/* ---- A pipe for what the program wants to tell ------------------------- */

enum { SIGNAL_FD = 8 }; /* of the script and whatever it starts */

/* The next program writes to it as `>&8`. Returns the end to read. */
static int signals_open(void)
{
    int fd[2];
    REQUIRE(pipe2(fd, O_CLOEXEC) == 0);
    REQUIRE(dup2(fd[1], SIGNAL_FD) == SIGNAL_FD);
    close(fd[1]);
    return fd[0];
}

/* Waits until the program has said something. */
static void signals_wait(int fd)
{
    char byte;
    close(SIGNAL_FD);
    REQUIRE(read(fd, &byte, 1) == 1);
}

/* Waits until the program and all that it has started are gone. */
static void signals_wait_end(int fd)
{
    char byte;
    ssize_t n;
    close(SIGNAL_FD);
    while ((n = read(fd, &byte, 1)) > 0)
        ;
    CHECK_INT(n, 0);
    close(fd);
}

/* ---- Standard error, caught ------------------------------------------- */

static int caught = -1, caught_before;

static void catch_stderr(void)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    caught = mkstemp(path);
    caught_before = dup(2);
    REQUIRE(caught >= 0 && caught_before >= 0);
    unlink(path);
    dup2(caught, 2);
}

/* What was said meanwhile; the caller frees. */
static char *caught_stderr(size_t *n_out)
{
    dup2(caught_before, 2);
    close(caught_before);
    off_t n = lseek(caught, 0, SEEK_END);
    REQUIRE(n >= 0);
    char *text = weft_alloc((size_t) n + 1, 1);
    REQUIRE(text != NULL);
    REQUIRE(pread(caught, text, (size_t) n, 0) == n);
    close(caught);
    *n_out = (size_t) n;
    return text;
}

/* ---- Answers ---------------------------------------------------------- */

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
        REQUIRE_OK(score_all(p, 7, sample, score, &err), err);
        for (int i = 0; i < 7; i++)
            CHECK(score[i] == 7 * batch + i + 0.5);
    }
    REQUIRE_OK(score_all(p, 0, sample, score, &err), err);
    weft_reward_program_close(p);
    weft_reward_program_close(NULL);
}

static void test_reward_program_order(void)
{
    struct weft_reward_program *p = start(
        "while read -r a && read -r b && read -r c; do\n"
        "echo '{\"index\": 2, \"score\": -1e-3, \"why\": \"x\"}'; echo\n"
        "echo '{\"score\": 3, \"index\": 0}'; printf "
        "'{\"index\":1,\"x\":\"'\n"
        /* more than is read at a time */
        "head -c 200000 /dev/zero | tr '\\000' x\n"
        "printf '\",\"score\":0.1}\\n'; done",
        60);
    double score[3];
    fill("four");
    for (int batch = 0; batch < 2; batch++) {
        REQUIRE_OK(score_all(p, 3, sample, score, &err), err);
        CHECK(score[0] == 3 && score[1] == 0.1 && score[2] == -1e-3);
    }
    weft_reward_program_close(p);
}

/* It is asked about some of the indices in any order, and bare answers are in
 * the order of the questions. What was asked later is answered later. */
static void test_reward_program_some(void)
{
    static const int32_t asked[] = {8, 2, 5}, first[] = {2, 8}, last[] = {5};
    struct weft_reward_program *p = start(
        "while read -r a; do a=${a#*: }; a=${a%%,*}; [ $a != 5 ] || read -r "
        "x;"
        " echo $a.5; done",
        60);
    double score[2] = {0}, busy_s = 0;
    fill("four");
    weft_reward_program_begin(p, 9);
    for (int i = 0; i < 3; i++)
        weft_reward_program_ask(p, asked[i], &sample[0]);
    REQUIRE_OK(weft_reward_program_end(p, 2, first, score, &busy_s, &err),
               err);
    CHECK(score[0] == 2.5 && score[1] == 8.5);
    CHECK(weft_reward_program_move(p)); /* 5 waits for another question */
    weft_reward_program_ask(p, 0, &sample[0]);
    REQUIRE_OK(weft_reward_program_end(p, 1, last, score, &busy_s, &err),
               err);
    CHECK(score[0] == 5.5);
    weft_reward_program_close(p);
    p = start("read -r l; echo '{\"index\": 1, \"score\": 1}'", 60);
    weft_reward_program_begin(p, 9);
    weft_reward_program_ask(p, 5, &sample[0]);
    CHECK_FAILS(weft_reward_program_end(p, 1, last, score, &busy_s, &err),
                WEFT_EFORMAT, err,
                "answered sample 1, which it was not asked about: {");
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
    REQUIRE_OK(score_all(p, 2, sample, score, &err), err);
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
    REQUIRE_OK(score_all(p, 1, sample, score, &err), err);
    CHECK(score[0] == 1);
    fill_str((struct weft_str){"four\0teen", 9});
    REQUIRE_OK(score_all(p, 1, sample, score, &err), err);
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
    REQUIRE_OK(score_all(p, 60, sample, score, &err), err);
    for (int i = 0; i < 60; i++)
        CHECK(score[i] == 2);
    weft_reward_program_close(p);
    weft_free(big);
    fill("x");
    weft_log_set_level(WEFT_LOG_ERROR);
    p = start("while read -r l; do for i in 1 2 3 4 5 6 7 8 9 10; do printf "
              "'%2000s' x >&2; done; echo 1; done",
              120);
    REQUIRE_OK(score_all(p, 20, sample, score, &err), err);
    weft_reward_program_close(p);
}

static void test_reward_program_fails(void)
{
    static const struct {
        const char *script; /* waited for when it signals */
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
        {"exec >&-; echo >&8; sleep 1000", 0.2, WEFT_EIO,
         "closed its output after answering 0 of 4"},
        {"echo 'thinking' >&2; echo >&8; sleep 1000", 0.2, WEFT_ETIMEOUT,
         "answered 0 of 4 samples in 0.2 s (timeout_s); it must flush every "
         "answer; its last words: thinking"},
        {"echo ready; echo >&8; sleep 1000", 60, WEFT_EFORMAT,
         "wrote before it was asked: ready"},
        {"read -r l; echo good", 60, WEFT_EFORMAT,
         "neither {\"index\": ..., \"score\": ...} nor a number: good"},
        {"read -r l; echo 1 2", 60, WEFT_EFORMAT, "nor a number: 1 2"},
        {"read -r l; echo nan", 60, WEFT_EFORMAT,
         "gave sample 0 a score that is no finite f32 number: nan"},
        {"read -r l; echo inf", 60, WEFT_EFORMAT, "no finite f32 number"},
        {"read -r l; echo 1e999", 60, WEFT_EFORMAT, "no finite f32 number"},
        {"read -r l; echo 1e39", 60, WEFT_EFORMAT,
         "gave sample 0 a score that is no finite f32 number: 1e39"},
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
        {"read -r l; printf '1\\n1\\n1\\n1\\n1\\n'; sleep 1000", 60,
         WEFT_EFORMAT, "wrote a line after its last answer: 1"},
        {"read -r l; head -c 2000000 /dev/zero | tr '\\000' y; sleep 1000",
         60, WEFT_EFORMAT, "wrote a line of more than 1 MiB: yyy"},
    };
    fill("x");
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        double score[4] = {7, 7, 7, 7};
        int fd = signals_open();
        struct weft_reward_program *p = start(bad[i].script,
                                              bad[i].timeout_s);
        if (strstr(bad[i].script, ">&8"))
            signals_wait(fd);
        CHECK_FAILS(score_all(p, 4, sample, score, &err), bad[i].rc, err,
                    bad[i].part);
        CHECK(score[0] == 7 && score[3] == 7);
        /* Once failed it stays so. */
        CHECK_FAILS(score_all(p, 4, sample, score, &err), WEFT_ESTATE, err,
                    "was ended after an error");
        weft_reward_program_close(p);
        signals_wait_end(fd);
    }
}

/* It answers one of four. How long it may take depends on the machine. */
static void test_reward_program_late(void)
{
    double score[4], timeout_s = 0.125;
    fill("x");
    do {
        struct weft_reward_program *p = start("read -r l; echo 1; sleep 1000",
                                              timeout_s *= 2);
        CHECK_INT(score_all(p, 4, sample, score, &err), WEFT_ETIMEOUT);
        weft_reward_program_close(p);
    } while (strstr(err.text, "answered 0 of 4") && timeout_s < 60);
    CHECK(strstr(err.text, "answered 1 of 4 samples in ") != NULL);
}

/* A flood of its stderr neither delays the end nor fills the log. */
static void test_reward_program_floods(void)
{
    double score[4];
    size_t n;
    fill("x");
    weft_log_set_level(WEFT_LOG_INFO);
    struct weft_reward_program *p = start(
        "read -r l; yes >&2 & yes >&2 & yes >&2; exit 1", 0.5);
    catch_stderr();
    int rc = score_all(p, 4, sample, score, &err);
    char *said = caught_stderr(&n);
    CHECK_INT(rc, WEFT_ETIMEOUT);
    CHECK(strstr(err.text, "answered 0 of 4") != NULL);
    CHECK(n < 2 << 20);
    weft_free(said);
    weft_reward_program_close(p);
    p = start("read -r l; for i in 1 2 3; do head -c 300000 /dev/zero | tr "
              "'\\000' x; echo; done | fold -w 100 >&2; echo end >&2; echo 1",
              60);
    catch_stderr();
    rc = score_all(p, 1, sample, score, &err);
    weft_reward_program_close(p);
    said = caught_stderr(&n);
    CHECK_INT(rc, 0);
    CHECK(n > 100000 && n < 600000);
    CHECK(strstr(said, "\nweft: reward judge: ") != NULL);
    CHECK(strstr(said, " more lines of its stderr are not shown\n") != NULL);
    weft_free(said);
}

static bool is_printable(const char *text, size_t n, char but)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all = all && (text[i] == but || (text[i] >= ' ' && text[i] < 127));
    return all;
}

/* What it says reaches a terminal as text alone. */
static void test_reward_program_is_printed(void)
{
    double score[1];
    size_t n;
    fill("x");
    weft_log_set_level(WEFT_LOG_INFO);
    struct weft_reward_program *p = start(
        "read -r l; printf '\\033[31mred\\rback\\302\\233\\n' >&2; "
        "printf '\\033]0;title\\007\\n'",
        60);
    catch_stderr();
    int rc = score_all(p, 1, sample, score, &err);
    char *said = caught_stderr(&n);
    CHECK_INT(rc, WEFT_EFORMAT);
    CHECK(strstr(err.text, "nor a number: \\x1b]0;title\\x07") != NULL);
    CHECK(is_printable(err.text, strlen(err.text), ' '));
    CHECK(is_printable(said, n, '\n'));
    weft_free(said);
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

/* ---- The end ---------------------------------------------------------- */

/* Neither the program nor what it started outlives the close, even when it
 * hears nothing. */
static void test_reward_program_close(void)
{
    int fd = signals_open();
    struct weft_reward_program *p = start(
        "trap '' TERM; sleep 1000 & read -r l; echo 1; "
        "while :; do sleep 1; done",
        60);
    double score[1];
    fill("x");
    REQUIRE_OK(score_all(p, 1, sample, score, &err), err);
    weft_reward_program_close(p);
    signals_wait_end(fd);
}

static void *open_program(void *out)
{
    *(struct weft_reward_program **) out = start(
        "trap '' TERM; read -r l; echo 1; echo >&8; exec sleep 1000", 60);
    return NULL;
}

/* Nor the process that started it, however that ends; but the thread. */
static void test_reward_program_parent_dies(void)
{
    int fd = signals_open();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct weft_reward_program *p = NULL;
        double score[1];
        pthread_t opener;
        fill("x");
        if (pthread_create(&opener, NULL, open_program, &p) != 0
            || pthread_join(opener, NULL) != 0
            || score_all(p, 1, sample, score, &err) != 0)
            _exit(1);
        for (;;)
            pause();
    }
    REQUIRE(pid > 0);
    signals_wait(fd);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    signals_wait_end(fd);
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_reward_program_bare", test_reward_program_bare},
        {"test_reward_program_some", test_reward_program_some},
        {"test_reward_program_order", test_reward_program_order},
        {"test_reward_program_questions", test_reward_program_questions},
        {"test_reward_program_zeros", test_reward_program_zeros},
        {"test_reward_program_large", test_reward_program_large},
        {"test_reward_program_fails", test_reward_program_fails},
        {"test_reward_program_late", test_reward_program_late},
        {"test_reward_program_floods", test_reward_program_floods},
        {"test_reward_program_is_printed", test_reward_program_is_printed},
        {"test_reward_program_open", test_reward_program_open},
        {"test_reward_program_close", test_reward_program_close},
        {"test_reward_program_parent_dies", test_reward_program_parent_dies}};
    alarm(600); /* whoever waits for an end that does not come */
    return weft_test_main("reward/program", tests, WEFT_COUNT(tests));
}
