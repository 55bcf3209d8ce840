/* SPDX-License-Identifier: Apache-2.0 */
#include "run/reward_program.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "run/text.h"

enum {
    MAX_LINE_BYTES = 1 << 20, /* of an answer */
    LAST_WORDS = 200,         /* bytes kept of the last line of stderr */
    PIECE = 65536
};

struct weft_reward_program {
    const char *name;
    char *const *command;
    char shown[80]; /* the command, for messages */
    double timeout_s;
    pid_t pid;               /* 0: ended and reaped */
    int status;              /* of the end */
    int in, out, err_fd;     /* its stdin, stdout, stderr; -1: closed */
    struct weft_text answer; /* read, not yet a whole line */
    struct weft_text words;  /* the same of its stderr */
    char last_words[LAST_WORDS + 1];
};

/* What one call is at. */
struct batch {
    struct weft_reward_program *p;
    struct weft_text question;
    size_t n_written;
    int32_t n, n_answered, n_bare;
    bool *answered;
    double *score;
    double deadline_s;
    struct weft_err *err;
};

/* ---- Starting --------------------------------------------------------- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* In the child: becomes the program, or says why not and ends. */
WEFT_NORETURN static void become(char *const *command, const char *directory,
                                 const int fd[3], int report)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    bool ok = !directory || chdir(directory) == 0;
    for (int i = 0; i < 3; i++)
        ok = ok && dup2(fd[i], i) >= 0;
    if (ok)
        execvp(command[0], command);
    int why = errno;
    ssize_t n = write(report, &why, sizeof why);
    (void) n;
    _exit(127);
}

static int start_failed(const struct weft_reward_program *p,
                        const char *directory, int why, struct weft_err *err)
{
    return weft_err_set(err, why == ENOENT ? WEFT_ENOTFOUND : WEFT_EIO,
                        "reward '%s': cannot start '%s' in '%s': %s", p->name,
                        p->shown, directory ? directory : ".", strerror(why));
}

/* Pipes [stdin, stdout, stderr, report]; those we keep do not block. None may
 * be one of the first three numbers, which the child gives away. */
static int make_pipes(int pipes[4][2])
{
    for (int i = 0; i < 4; i++) {
        int fd[2];
        if (pipe2(fd, O_CLOEXEC) != 0)
            return errno;
        for (int k = 0; k < 2; k++) {
            pipes[i][k] = fcntl(fd[k], F_DUPFD_CLOEXEC, 3);
            close(fd[k]);
        }
        if (pipes[i][0] < 0 || pipes[i][1] < 0)
            return errno;
    }
    fcntl(pipes[0][1], F_SETFL, O_NONBLOCK);
    fcntl(pipes[1][0], F_SETFL, O_NONBLOCK);
    fcntl(pipes[2][0], F_SETFL, O_NONBLOCK);
    return 0;
}

static int start(struct weft_reward_program *p, const char *directory,
                 struct weft_err *err)
{
    int pipes[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}}, why;
    why = make_pipes(pipes);
    if (why == 0) {
        p->pid = fork();
        why = p->pid < 0 ? errno : 0;
    }
    if (why == 0 && p->pid == 0) {
        const int fd[3] = {pipes[0][0], pipes[1][1], pipes[2][1]};
        become(p->command, directory, fd, pipes[3][1]);
    }
    close_fd(&pipes[0][0]);
    close_fd(&pipes[1][1]);
    close_fd(&pipes[2][1]);
    close_fd(&pipes[3][1]);
    if (why == 0) {
        setpgid(p->pid, p->pid); /* whoever of the two comes first */
        ssize_t got;
        do
            got = read(pipes[3][0], &why, sizeof why);
        while (got < 0 && errno == EINTR);
        why = got == (ssize_t) sizeof why ? why : 0;
        if (why != 0) {
            waitpid(p->pid, NULL, 0);
            p->pid = 0;
        }
    } else if (p->pid < 0) {
        p->pid = 0;
    }
    close_fd(&pipes[3][0]);
    p->in = pipes[0][1];
    p->out = pipes[1][0];
    p->err_fd = pipes[2][0];
    return why == 0 ? 0 : start_failed(p, directory, why, err);
}

/* The words of a command, in one line that may be cut. */
static void show(char *const *command, char *out, size_t room)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; command[i] && n < room; i++)
        n += (size_t) snprintf(out + n, room - n, "%s%s", i > 0 ? " " : "",
                               command[i]);
    if (n >= room)
        strcpy(out + room - 4, "...");
    for (char *p = out; *p; p++)
        if ((unsigned char) *p < ' ')
            *p = ' ';
}

int weft_reward_program_open(const char *name, char *const *command,
                             const char *directory, double timeout_s,
                             struct weft_reward_program **out,
                             struct weft_err *err)
{
    struct weft_reward_program *p = weft_alloc(1, sizeof *p);
    struct sigaction now;
    if (!p)
        return weft_err_nomem(err, name, sizeof *p);
    *p = (struct weft_reward_program){.name = name,
                                      .command = command,
                                      .timeout_s = timeout_s,
                                      .in = -1,
                                      .out = -1,
                                      .err_fd = -1};
    show(command, p->shown, sizeof p->shown);
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
    int rc = start(p, directory, err);
    if (rc)
        weft_reward_program_close(p);
    else
        *out = p;
    return rc;
}

/* ---- Ending ----------------------------------------------------------- */

static void nap(double s)
{
    struct timespec t = {(time_t) s,
                         (long) ((s - (double) (time_t) s) * 1e9)};
    nanosleep(&t, NULL);
}

/* Waits up to `s` for the end. */
static bool reap(struct weft_reward_program *p, double s)
{
    double until = weft_clock_s() + s, pause = 0.0005;
    while (p->pid > 0) {
        pid_t got = waitpid(p->pid, &p->status, WNOHANG);
        if (got == p->pid || (got < 0 && errno != EINTR))
            p->pid = 0;
        else if (weft_clock_s() >= until)
            return false;
        else
            nap(pause);
        pause = pause < 0.02 ? pause * 2 : pause;
    }
    return true;
}

/* Ends the process group; its leader's children may outlive it. */
static void stop(struct weft_reward_program *p, double grace_s)
{
    pid_t group = p->pid;
    close_fd(&p->in);
    close_fd(&p->out);
    close_fd(&p->err_fd);
    if (group <= 0)
        return;
    if (!reap(p, grace_s)) {
        kill(-group, SIGTERM);
        if (!reap(p, 1)) {
            kill(-group, SIGKILL);
            reap(p, 5);
        }
    }
    kill(-group, SIGKILL);
}

void weft_reward_program_close(struct weft_reward_program *program)
{
    if (!program)
        return;
    stop(program, 1);
    weft_text_release(&program->answer);
    weft_text_release(&program->words);
    weft_free(program);
}

/* ---- What it says on stderr ------------------------------------------- */

static void pass_on(struct weft_reward_program *p, const char *line, size_t n)
{
    if (n == 0)
        return;
    weft_info("reward %s: %.*s", p->name, (int) (n < 4000 ? n : 4000), line);
    size_t keep = n < LAST_WORDS ? n : LAST_WORDS;
    memcpy(p->last_words, line, keep);
    p->last_words[keep] = 0;
}

/* Takes whole lines from the front of a text. */
static void pass_lines(struct weft_reward_program *p, bool all)
{
    struct weft_text *t = &p->words;
    char *line = t->data, *end;
    if (!line)
        return;
    size_t left = t->n;
    while ((end = memchr(line, '\n', left)) != NULL
           || (left > 0 && (all || left > 4000))) {
        size_t n = end ? (size_t) (end - line) : left;
        pass_on(p, line, n);
        n += end != NULL;
        line += n;
        left -= n;
    }
    memmove(t->data, line, left);
    t->n = left;
}

/* Reads what is there. Returns false at the end of the stream. */
static bool drain(int *fd, struct weft_text *to)
{
    char piece[PIECE];
    ssize_t n = read(*fd, piece, sizeof piece);
    if (n > 0)
        weft_text_add_n(to, piece, (size_t) n);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return true;
    close_fd(fd);
    return false;
}

/* Its last words, after whatever is still on the way. */
static const char *last_words(struct weft_reward_program *p, char out[256])
{
    while (p->err_fd >= 0) {
        struct pollfd f = {p->err_fd, POLLIN, 0};
        if (poll(&f, 1, 0) <= 0 || !drain(&p->err_fd, &p->words))
            break;
        pass_lines(p, false);
    }
    pass_lines(p, true);
    out[0] = 0;
    if (p->last_words[0])
        snprintf(out, 256, "; its last words: %s", p->last_words);
    return out;
}

/* ---- Answers ---------------------------------------------------------- */

WEFT_PRINTF(3, 4)
static int bad(struct batch *b, int code, const char *fmt, ...)
{
    char text[512], words[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return weft_err_set(b->err, code, "reward '%s': program '%s' %s%s",
                        b->p->name, b->p->shown, text,
                        last_words(b->p, words));
}

static int take(struct batch *b, int64_t index, double score,
                const char *line)
{
    if (index < 0 || index >= b->n)
        return bad(b, WEFT_EFORMAT,
                   "answered sample %lld; the samples are 0 to %d: %.100s",
                   (long long) index, b->n - 1, line);
    if (b->answered[index])
        return bad(b, WEFT_EFORMAT, "answered sample %lld twice: %.100s",
                   (long long) index, line);
    if (!isfinite(score))
        return bad(b, WEFT_EFORMAT,
                   "gave sample %lld a score that is no finite number: "
                   "%.100s",
                   (long long) index, line);
    b->answered[index] = true;
    b->score[index] = score;
    b->n_answered++;
    return 0;
}

static int take_object(struct batch *b, const char *line, size_t n)
{
    json_error_t why;
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &why);
    json_t *index = json_object_get(o, "index");
    json_t *score = json_object_get(o, "score");
    int rc;
    if (!o)
        rc = bad(b, WEFT_EFORMAT,
                 "wrote a line that is no answer (%s): "
                 "%.100s",
                 why.text, line);
    else if (!json_is_integer(index) || !json_is_number(score))
        rc = bad(b, WEFT_EFORMAT,
                 "wrote an answer without \"index\" (whole) and \"score\" "
                 "(a number): %.100s",
                 line);
    else
        rc = take(b, json_integer_value(index), json_number_value(score),
                  line);
    json_decref(o);
    return rc;
}

/* line: n characters and a zero byte in place of the line feed */
static int take_line(struct batch *b, char *line, size_t n)
{
    while (n > 0 && strchr(" \t\r", line[n - 1]))
        line[--n] = 0;
    while (*line == ' ' || *line == '\t') {
        line++;
        n--;
    }
    if (n == 0)
        return 0;
    if (b->n_answered == b->n)
        return bad(b, WEFT_EFORMAT,
                   "wrote a line after its last answer: %.100s", line);
    if (*line == '{')
        return take_object(b, line, n);
    char *end;
    double score = strtod(line, &end);
    if (end != line + n)
        return bad(b, WEFT_EFORMAT,
                   "wrote a line that is neither {\"index\": ..., \"score\": "
                   "...} nor a number: %.100s",
                   line);
    return take(b, b->n_bare++, score, line);
}

static int take_lines(struct batch *b)
{
    struct weft_text *t = &b->p->answer;
    char *line = t->data, *end;
    int rc = weft_text_check(t, "a reward program's answers", b->err);
    size_t left = t->n;
    while (!rc && line && (end = memchr(line, '\n', left)) != NULL) {
        size_t n = (size_t) (end - line);
        *end = 0;
        rc = take_line(b, line, n);
        line = end + 1;
        left -= n + 1;
    }
    if (!rc && left > MAX_LINE_BYTES)
        rc = bad(b, WEFT_EFORMAT,
                 "wrote a line of more than 1 MiB: %.100s...", line);
    if (line)
        memmove(t->data, line, left);
    t->n = left;
    return rc;
}

/* ---- A batch ---------------------------------------------------------- */

static int ended(struct batch *b)
{
    struct weft_reward_program *p = b->p;
    char how[64] = "closed its output";
    if (reap(p, 1)) {
        if (WIFEXITED(p->status))
            snprintf(how, sizeof how, "ended with status %d",
                     WEXITSTATUS(p->status));
        else if (WIFSIGNALED(p->status))
            snprintf(how, sizeof how, "was ended by signal %d (%s)",
                     WTERMSIG(p->status), strsignal(WTERMSIG(p->status)));
    }
    return bad(b, WEFT_EIO, "%s after answering %d of %d samples", how,
               b->n_answered, b->n);
}

static void put_question(struct weft_text *t, int32_t index,
                         const struct weft_reward_sample *s)
{
    weft_text_addf(t, "{\"index\": %d, \"prompt\": ", index);
    weft_text_add_json_str(t, s->prompt);
    weft_text_add(t, ", \"response\": ");
    weft_text_add_json_str(t, s->response);
    weft_text_add(t, ", \"label\": ");
    weft_text_add_json_str(t, s->label);
    weft_text_addf(t,
                   ", \"n_tokens\": %d, \"finish_reason\": \"%s\", "
                   "\"row\": ",
                   s->n_tokens, s->ended ? "stop" : "length");
    size_t start = t->n;
    weft_text_add(t, s->row ? s->row : "null");
    for (size_t i = start; i < t->n; i++) /* one line, whatever it was */
        if (t->data[i] == '\n' || t->data[i] == '\r')
            t->data[i] = ' ';
    weft_text_add(t, "}\n");
}

/* Writes what fits. A program that takes no more input may still answer. */
static void write_some(struct batch *b)
{
    struct weft_reward_program *p = b->p;
    size_t left = b->question.n - b->n_written;
    ssize_t n = write(p->in, b->question.data + b->n_written, left);
    if (n > 0)
        b->n_written += (size_t) n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        close_fd(&p->in);
}

/* One round of reading and writing. */
static int turn(struct batch *b)
{
    struct weft_reward_program *p = b->p;
    double left_s = b->deadline_s - weft_clock_s();
    if (left_s <= 0)
        return bad(b, WEFT_ETIMEOUT,
                   "answered %d of %d samples in %g s (timeout_s); it must "
                   "flush every answer",
                   b->n_answered, b->n, p->timeout_s);
    bool writing = p->in >= 0 && b->n_written < b->question.n;
    struct pollfd f[3] = {{p->out, POLLIN, 0},
                          {p->err_fd, POLLIN, 0},
                          {writing ? p->in : -1, POLLOUT, 0}};
    double ms = left_s * 1000 + 1;
    if (poll(f, 3, ms < 1e6 ? (int) ms : 1000000) < 0 && errno != EINTR)
        return weft_err_sys(b->err, "wait for", p->shown);
    if (f[1].revents) {
        drain(&p->err_fd, &p->words);
        pass_lines(p, false);
    }
    if (f[2].revents)
        write_some(b);
    if (!f[0].revents)
        return 0;
    bool open = drain(&p->out, &p->answer);
    if (!open && p->answer.n > 0) /* a last line without a line feed */
        weft_text_add(&p->answer, "\n");
    int rc = take_lines(b);
    if (!rc && !open && b->n_answered < b->n)
        rc = ended(b);
    return rc;
}

/* What came since the last batch belongs to no question. */
static int check_quiet(struct batch *b)
{
    struct weft_reward_program *p = b->p;
    struct pollfd f = {p->out, POLLIN, 0};
    if (p->out < 0)
        return ended(b);
    if (poll(&f, 1, 0) > 0)
        drain(&p->out, &p->answer);
    size_t n = p->answer.n < 100 ? p->answer.n : 100;
    if (n > 0)
        return bad(b, WEFT_EFORMAT, "wrote before it was asked: %.*s",
                   (int) n, p->answer.data);
    return p->out < 0 ? ended(b) : 0;
}

int weft_reward_program_score(struct weft_reward_program *program, int32_t n,
                              const struct weft_reward_sample *sample,
                              double *score_out, struct weft_err *err)
{
    struct batch b = {.p = program,
                      .n = n,
                      .answered = weft_alloc((size_t) n, sizeof(bool)),
                      .score = weft_alloc((size_t) n, sizeof *b.score),
                      .deadline_s = weft_clock_s() + program->timeout_s,
                      .err = err};
    int rc = 0;
    for (int32_t i = 0; i < n; i++)
        put_question(&b.question, i, &sample[i]);
    if (!b.answered || !b.score)
        b.question.failed = true;
    rc = weft_text_check(&b.question, "a reward program's questions", err);
    if (!rc && n > 0)
        rc = check_quiet(&b);
    while (!rc && b.n_answered < n)
        rc = turn(&b);
    if (!rc && n > 0 && program->answer.n > 0)
        rc = bad(&b, WEFT_EFORMAT, "wrote more after its last answer: %.*s",
                 (int) (program->answer.n < 100 ? program->answer.n : 100),
                 program->answer.data);
    if (!rc && n > 0)
        memcpy(score_out, b.score, (size_t) n * sizeof *b.score);
    if (rc)
        stop(program, 0);
    weft_text_release(&b.question);
    weft_free(b.answered);
    weft_free(b.score);
    return rc;
}
