/* SPDX-License-Identifier: Apache-2.0 */
#include "verify/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"

enum { NOT_STARTED = 127, PAUSE_NS = 5000000 };
static const double GRACE_S = 5; /* time between signals to end the child */

/* Runs in the child: becomes the program, in a process group of its own.
 * Ctrl-C then reaches only the parent, which ends the whole group. */
static void become(const struct weft_child *c, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* the parent ended before the call above */
        _exit(NOT_STARTED);
    int in = open("/dev/null", O_RDONLY);
    int out = open(c->log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (in >= 0 && out >= 0 && dup2(in, 0) >= 0 && dup2(out, 1) >= 0
        && dup2(out, 2) >= 0) {
        execvp(c->argv[0], c->argv);
        dprintf(2, "cannot start '%s': %s\n", c->argv[0], strerror(errno));
    }
    _exit(NOT_STARTED);
}

/* The reason to end the child, or 0. */
static int must_end(const struct weft_child *c, double start,
                    struct weft_err *err)
{
    if (c->stop && *c->stop)
        return weft_err_set(err, WEFT_EINTERRUPTED, "interrupted");
    if (c->timeout_s > 0 && weft_clock_s() - start > c->timeout_s)
        return weft_err_set(err, WEFT_ETIMEOUT, "no end after %g s",
                            c->timeout_s);
    return 0;
}

/* Waits for the child's end, and signals it if it must end. It gets several
 * signals, as an MPI launcher first ends its ranks, and a run ends at once
 * only at the second signal. */
static int wait_end(const struct weft_child *c, pid_t pid, double start,
                    int *status, struct weft_err *err)
{
    static const int signal_of[] = {SIGTERM, SIGTERM, SIGKILL};
    const struct timespec pause = {0, PAUSE_NS};
    double next = 0;
    size_t n_sent = 0;
    int rc = 0;
    siginfo_t end = {0};
    while (waitid(P_PID, (id_t) pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0
           && end.si_pid == 0) {
        if (!rc)
            rc = must_end(c, start, err);
        if (rc && n_sent < WEFT_COUNT(signal_of) && weft_clock_s() >= next) {
            kill(-pid, signal_of[n_sent++]);
            next = weft_clock_s() + GRACE_S;
        }
        nanosleep(&pause, NULL);
    }
    if (rc)
        kill(-pid, SIGKILL); /* processes that the child has started */
    /* only now can the system give the pid to another process */
    waitpid(pid, status, 0);
    return rc;
}

/* Copies the line of the log that describes the failure: the last "weft
 * COMMAND: ...", else the first that is not empty, as MPI launchers print the
 * error first and then explanations. */
static void last_words(const char *log, char *out, size_t n)
{
    char *text, *line, *state = NULL;
    size_t length;
    bool found = false;
    snprintf(out, n, "no word why");
    if (weft_file_read(log, 0, &text, &length, NULL) != 0)
        return;
    for (line = strtok_r(text, "\r\n", &state); line;
         line = strtok_r(NULL, "\r\n", &state)) {
        const char *colon = strncmp(line, "weft ", 5) == 0
                              ? strstr(line, ": ")
                              : NULL;
        bool words = strpbrk(line, "abcdefghijklmnopqrstuvwxyz") != NULL;
        if (colon || (!found && words))
            snprintf(out, n, "%s", colon ? colon + 2 : line);
        found = found || words;
    }
    weft_free(text);
}

static int judge(const struct weft_child *c, int status, struct weft_err *err)
{
    char words[400];
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    last_words(c->log, words, sizeof words);
    if (WIFSIGNALED(status))
        return weft_err_set(err, WEFT_EIO, "ended by signal %d (%s): %s",
                            WTERMSIG(status), strsignal(WTERMSIG(status)),
                            words);
    return weft_err_set(
        err, WEXITSTATUS(status) == NOT_STARTED ? WEFT_ENOTFOUND : WEFT_EIO,
        "%s", words);
}

int weft_child_run(const struct weft_child *child, double *seconds_out,
                   struct weft_err *err)
{
    double start = weft_clock_s();
    int status = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(child, parent);
    if (pid < 0)
        return weft_err_sys(err, "start", child->argv[0]);
    setpgid(pid, pid); /* the child does it, too; the first one counts */
    int rc = wait_end(child, pid, start, &status, err);
    *seconds_out = weft_clock_s() - start;
    return rc ? rc : judge(child, status, err);
}
