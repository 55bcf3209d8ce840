/* SPDX-License-Identifier: Apache-2.0 */
#include "reward/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
    TERM_S = 1, /* from SIGTERM to SIGKILL */
    KILL_S = 10 /* after SIGKILL: the kernel may hold the process longer */
};

/* The thread that started the program, and what it knows. */
struct weft_keeper {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool started, ended;
    int why;       /* errno if the start failed, else 0 */
    pid_t pid;     /* not waited for after its end, so it is not reused */
    siginfo_t end; /* set when the program has ended */

    /* Read by the thread while it starts. */
    char *const *command;
    const char *directory;
    int fd[3]; /* the child's stdin, stdout, stderr */
    int report[2];
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- Starting --------------------------------------------------------- */

/* Runs in the child: becomes the program, or reports errno and ends. */
WEFT_NORETURN static void become(const struct weft_keeper *k, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the parent ended before the call above */
        _exit(127);
    bool ok = !k->directory || chdir(k->directory) == 0;
    for (int i = 0; i < 3; i++)
        ok = ok && dup2(k->fd[i], i) >= 0;
    if (ok)
        execvp(k->command[0], k->command);
    int why = errno;
    ssize_t n = write(k->report[1], &why, sizeof why);
    (void) n;
    _exit(127);
}

/* Starts the program. Returns 0 or errno. */
static int start(struct weft_keeper *k)
{
    pid_t parent = getpid();
    int why = 0;
    k->pid = fork();
    if (k->pid == 0)
        become(k, parent);
    if (k->pid < 0)
        return errno;
    setpgid(k->pid, k->pid); /* the child does it, too; the first counts */
    close_fd(&k->report[1]);
    ssize_t got = read(k->report[0], &why, sizeof why);
    if (got == (ssize_t) sizeof why && why != 0) {
        waitpid(k->pid, NULL, 0);
        return why;
    }
    return 0;
}

static void *keep(void *arg)
{
    struct weft_keeper *k = arg;
    siginfo_t end;
    int why = start(k);
    pthread_mutex_lock(&k->mutex);
    k->why = why;
    k->started = true;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    if (why)
        return NULL;
    waitid(P_PID, (id_t) k->pid, &end, WEXITED | WNOWAIT);
    pthread_mutex_lock(&k->mutex);
    k->end = end;
    k->ended = true;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    return NULL;
}

/* Makes pipes for stdin, stdout, stderr and the report of a failed start.
 * Weft's ends do not block. No descriptor may be 0, 1 or 2, which the child
 * replaces. */
static int make_pipes(struct weft_keeper *k, struct weft_process *p)
{
    int end[4][2];
    memset(end, -1, sizeof end);
    for (int i = 0; i < 4; i++) {
        int fd[2];
        if (pipe2(fd, O_CLOEXEC) != 0)
            break;
        for (int j = 0; j < 2; j++) {
            end[i][j] = fcntl(fd[j], F_DUPFD_CLOEXEC, 3);
            close(fd[j]);
        }
    }
    p->in = end[0][1];
    p->out = end[1][0];
    p->err = end[2][0];
    k->fd[0] = end[0][0];
    k->fd[1] = end[1][1];
    k->fd[2] = end[2][1];
    memcpy(k->report, end[3], sizeof k->report);
    if (end[3][1] < 0)
        return errno;
    fcntl(p->in, F_SETFL, O_NONBLOCK);
    fcntl(p->out, F_SETFL, O_NONBLOCK);
    fcntl(p->err, F_SETFL, O_NONBLOCK);
    return 0;
}

/* Starts the thread with all signals blocked, so that other threads of the
 * program handle them. */
static int start_keeper(struct weft_keeper *k)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&k->thread, NULL, keep, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why)
        return why;
    pthread_mutex_lock(&k->mutex);
    while (!k->started)
        pthread_cond_wait(&k->changed, &k->mutex);
    why = k->why;
    pthread_mutex_unlock(&k->mutex);
    if (why)
        pthread_join(k->thread, NULL);
    return why;
}

static struct weft_keeper *keeper_create(char *const *command,
                                         const char *directory)
{
    struct weft_keeper *k = weft_alloc(1, sizeof *k);
    pthread_condattr_t attr;
    if (!k)
        return NULL;
    k->command = command;
    k->directory = directory;
    pthread_mutex_init(&k->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &attr);
    pthread_condattr_destroy(&attr);
    return k;
}

static void keeper_free(struct weft_keeper *k)
{
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->mutex);
    weft_free(k);
}

int weft_process_open(char *const *command, const char *directory,
                      struct weft_process *process, struct weft_err *err)
{
    struct weft_process p = {-1, -1, -1, NULL};
    struct sigaction now;
    *process = p;
    struct weft_keeper *k = keeper_create(command, directory);
    if (!k)
        return weft_err_nomem(err, command[0], sizeof *k);
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
    int why = make_pipes(k, &p);
    if (why == 0)
        why = start_keeper(k);
    for (int i = 0; i < 3; i++)
        close_fd(&k->fd[i]);
    close_fd(&k->report[0]);
    close_fd(&k->report[1]);
    if (why) {
        close_fd(&p.in);
        close_fd(&p.out);
        close_fd(&p.err);
        keeper_free(k);
        return weft_err_set(err, why == ENOENT ? WEFT_ENOTFOUND : WEFT_EIO,
                            "cannot start '%s' in '%s': %s", command[0],
                            directory ? directory : ".", strerror(why));
    }
    p.keeper = k;
    *process = p;
    return 0;
}

/* ---- Ending ----------------------------------------------------------- */

/* Waits up to `s` for the end. */
static bool wait_end(struct weft_keeper *k, double s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double end = (double) until.tv_nsec * 1e-9 + (s > 0 ? s : 0);
    until.tv_sec += (time_t) end;
    until.tv_nsec = (long) ((end - (double) (time_t) end) * 1e9);
    int rc = 0;
    pthread_mutex_lock(&k->mutex);
    while (!k->ended && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&k->changed, &k->mutex, &until);
    bool ended = k->ended;
    pthread_mutex_unlock(&k->mutex);
    return ended;
}

bool weft_process_ended(const struct weft_process *process, double s,
                        char how_out[64])
{
    struct weft_keeper *k = process->keeper;
    if (!wait_end(k, s))
        return false;
    int code = k->end.si_status;
    if (k->end.si_code == CLD_EXITED)
        snprintf(how_out, 64, "ended with status %d", code);
    else
        snprintf(how_out, 64, "was ended by signal %d (%s)", code,
                 strsignal(code));
    return true;
}

void weft_process_close(struct weft_process *process, double grace_s)
{
    struct weft_keeper *k = process->keeper;
    close_fd(&process->in);
    close_fd(&process->out);
    close_fd(&process->err);
    process->keeper = NULL;
    if (!k)
        return;
    if (!wait_end(k, grace_s)) {
        kill(-k->pid, SIGTERM);
        wait_end(k, TERM_S);
    }
    kill(-k->pid, SIGKILL); /* the program or its remaining children */
    if (!wait_end(k, KILL_S)) {
        pthread_detach(
            k->thread); /* the program cannot end; nor can its thread */
        return;
    }
    pthread_join(k->thread, NULL);
    waitpid(k->pid, NULL, 0);
    keeper_free(k);
}
