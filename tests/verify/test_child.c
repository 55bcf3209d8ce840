/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "harness.h"

#include "base/clock.h"
#include "base/file.h"
#include "verify/child.h"

static char log_path[64];
static volatile sig_atomic_t stop;

static int run(const char *script, double timeout_s, struct weft_err *err)
{
    char *argv[] = {(char *) "sh", (char *) "-c", (char *) (uintptr_t) script,
                    NULL};
    struct weft_child child = {argv, log_path, timeout_s, &stop};
    double seconds = -1, start = weft_clock_s();
    int rc = weft_child_run(&child, &seconds, err);
    CHECK(seconds >= 0 && seconds <= weft_clock_s() - start);
    return rc;
}

static void test_child_ends(void)
{
    struct weft_err err;
    char *text;
    size_t n;
    snprintf(log_path, sizeof log_path, "child-%d.log", (int) getpid());
    REQUIRE_OK(run("echo out; echo err >&2; read x || echo none", 0, &err),
               err);
    REQUIRE_OK(weft_file_read(log_path, 0, &text, &n, &err), err);
    CHECK_STR(text, "out\nerr\nnone\n"); /* its standard input is empty */
    free(text);
}

static void test_child_fails(void)
{
    struct weft_err err;
    char *nothing[] = {(char *) "no-such-program-of-weft", NULL};
    struct weft_child child = {nothing, log_path, 0, NULL};
    double seconds;
    CHECK_FAILS(run("exit 3", 0, &err), WEFT_EIO, err, "no word why");
    CHECK_FAILS(run("echo ----; echo first; echo second; exit 1", 0, &err),
                WEFT_EIO, err, "first");
    /* Ours is the sentence to show, whatever stands around it. */
    CHECK_FAILS(run("echo first; echo 'weft train: it broke'; echo mpi: so; "
                    "exit 1",
                    0, &err),
                WEFT_EIO, err, "it broke");
    CHECK_STR(err.text, "it broke");
    CHECK_FAILS(run("echo assertion; kill -SEGV $$", 0, &err), WEFT_EIO, err,
                "ended by signal 11 (Segmentation fault): assertion");
    CHECK_FAILS(weft_child_run(&child, &seconds, &err), WEFT_ENOTFOUND, err,
                "cannot start 'no-such-program-of-weft'");
}

/* What it started ends with it. */
static void test_child_is_ended(void)
{
    enum { LIFE_FD = 8 };
    struct weft_err err;
    char byte;
    int fd[2];
    REQUIRE(pipe2(fd, O_CLOEXEC) == 0);
    REQUIRE(dup2(fd[1], LIFE_FD) == LIFE_FD);
    close(fd[1]);
    CHECK_FAILS(run("sleep 1000 & wait", 0.1, &err), WEFT_ETIMEOUT, err,
                "no end after 0.1 s");
    CHECK_FAILS(
        run("trap 'echo asked; exit 1' TERM; sleep 1000 & wait", 0.1, &err),
        WEFT_ETIMEOUT, err, "no end");
    stop = 1;
    CHECK_FAILS(run("sleep 1000", 0, &err), WEFT_EINTERRUPTED, err,
                "interrupted");
    stop = 0;
    /* The other end of the pipe is open as long as one of them lives. */
    close(LIFE_FD);
    CHECK_INT(read(fd[0], &byte, 1), 0);
    close(fd[0]);
    remove(log_path);
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_child_ends", test_child_ends},
        {"test_child_fails", test_child_fails},
        {"test_child_is_ended", test_child_is_ended}};
    alarm(600); /* should something not end */
    return weft_test_main("verify/child", tests, WEFT_COUNT(tests));
}
