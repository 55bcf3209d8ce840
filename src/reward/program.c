/* SPDX-License-Identifier: Apache-2.0 */
#include "reward/program.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/string.h"
#include "base/utf8.h"
#include "reward/process.h"

enum {
    MAX_LINE_BYTES = 1 << 20, /* of an answer */
    LINE_BYTES = 1000,        /* shown of a line of its stderr */
    SHOWN_BYTES = 1 << 18,    /* shown of its stderr per batch ... */
    LINE_COST = 64,           /* ... where each line has some in front */
    LAST_BYTES = 1 << 20,     /* read of its stderr after its end, at most */
    PIECE = 16384,
    END_S = 10 /* time to end after it closes its output */
};

struct weft_reward_program {
    const char *name;
    char shown[80]; /* the command, for messages */
    double timeout_s;
    struct weft_process process;
    struct weft_string answer; /* read so far of an incomplete line */
    struct weft_string words;  /* the same for its stderr */
    char last_words[200];      /* the last line of its stderr */
    size_t n_shown;            /* bytes of its stderr in this batch */
    int64_t n_dropped;         /* lines of it that were not shown */
    struct batch *batch;       /* NULL: none has begun */
};

enum { ASKED = 1, ANSWERED };

/* Samples that are scored together. */
struct batch {
    struct weft_reward_program *p;
    struct weft_string question;
    size_t n_written;
    int32_t n, n_asked, n_answered, n_bare;
    int32_t *asked;    /* (n) the indices of the questions, in order */
    uint8_t *state;    /* (n) by index: ASKED, ANSWERED, or neither */
    double *score;     /* (n) by index */
    double deadline_s; /* 0: nobody waits */
    double since_s;    /* it has had something to answer; 0: it has not */
    double busy_s;     /* and before that */
    int rc;            /* the first error, told at the end */
    struct weft_err why, *err;
};

static void batch_free(struct weft_reward_program *p)
{
    if (!p->batch)
        return;
    weft_string_release(&p->batch->question);
    weft_free(p->batch->asked);
    weft_free(p->batch->state);
    weft_free(p->batch->score);
    weft_free(p->batch);
    p->batch = NULL;
}

/* ---- Starting and ending ---------------------------------------------- */

/* Writes the words of a command in one line, which may be cut off. */
static void show(char *const *command, char *out, size_t room)
{
    struct weft_string t = {0};
    for (size_t i = 0; command[i]; i++)
        weft_string_addf(&t, "%s%s", i > 0 ? " " : "", command[i]);
    weft_utf8_printable(t.data ? t.data : "", t.n, out, room);
    weft_string_release(&t);
}

int weft_reward_program_open(const char *name, char *const *command,
                             const char *directory, double timeout_s,
                             struct weft_reward_program **out,
                             struct weft_err *err)
{
    struct weft_reward_program *p = weft_alloc(1, sizeof *p);
    if (!p)
        return weft_err_nomem(err, name, sizeof *p);
    *p = (struct weft_reward_program){.name = name, .timeout_s = timeout_s};
    show(command, p->shown, sizeof p->shown);
    int rc = weft_process_open(command, directory, &p->process, err);
    if (rc) {
        weft_err_prefix(err, "reward '%s'", name);
        weft_reward_program_close(p);
    } else {
        *out = p;
    }
    return rc;
}

void weft_reward_program_close(struct weft_reward_program *program)
{
    if (!program)
        return;
    weft_process_close(&program->process, 1);
    batch_free(program);
    weft_string_release(&program->answer);
    weft_string_release(&program->words);
    weft_free(program);
}

/* ---- What it says on stderr ------------------------------------------- */

static void pass_on(struct weft_reward_program *p, const char *line, size_t n)
{
    char shown[LINE_BYTES];
    if (n == 0)
        return;
    weft_utf8_printable(line, n, p->last_words, sizeof p->last_words);
    if (p->n_shown >= SHOWN_BYTES) {
        p->n_dropped++;
        return;
    }
    p->n_shown += LINE_COST
                + weft_utf8_printable(line, n, shown, sizeof shown);
    weft_info("reward %s: %s", p->name, shown);
}

/* Logs how many lines of stderr were not shown. There is a limit, so that a
 * program cannot fill the log. */
static void tell_dropped(struct weft_reward_program *p)
{
    if (p->n_dropped > 0)
        weft_info("reward %s: %lld more lines of its stderr are not shown",
                  p->name, (long long) p->n_dropped);
    p->n_dropped = 0;
    p->n_shown = 0;
}

/* Logs and removes the complete lines of a program's stderr. */
static void pass_lines(struct weft_reward_program *p, bool all)
{
    struct weft_string *t = &p->words;
    char *line = t->data, *end;
    if (!line)
        return;
    size_t left = t->n;
    while ((end = memchr(line, '\n', left)) != NULL
           || (left > 0 && (all || left > MAX_LINE_BYTES))) {
        size_t n = end ? (size_t) (end - line) : left;
        pass_on(p, line, n);
        n += end != NULL;
        line += n;
        left -= n;
    }
    memmove(t->data, line, left);
    t->n = left;
}

/* Reads what is available, at most a piece; returns how many bytes. 0: nothing
 * is available; at the end of the stream *fd is also closed. */
static size_t drain(int *fd, struct weft_string *to)
{
    char piece[PIECE];
    ssize_t n = read(*fd, piece, sizeof piece);
    if (n > 0)
        weft_string_add_n(to, piece, (size_t) n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
    return n > 0 ? (size_t) n : 0;
}

/* The last line of its stderr, after reading what is still in the pipe, up to
 * a limit, as the program may never stop writing. */
static const char *last_words(struct weft_reward_program *p, char out[256])
{
    size_t n = 0, piece = 1;
    while (p->process.err >= 0 && piece > 0 && n < LAST_BYTES) {
        piece = drain(&p->process.err, &p->words);
        pass_lines(p, false);
        n += piece;
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
    if (b->state[index] == 0)
        return bad(b, WEFT_EFORMAT,
                   "answered sample %lld, which it was not asked about: "
                   "%.100s",
                   (long long) index, line);
    if (b->state[index] == ANSWERED)
        return bad(b, WEFT_EFORMAT, "answered sample %lld twice: %.100s",
                   (long long) index, line);
    if (!isfinite((float) score))
        return bad(b, WEFT_EFORMAT,
                   "gave sample %lld a score that is no finite f32 number: "
                   "%.100s",
                   (long long) index, line);
    b->state[index] = ANSWERED;
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
    if (b->n_answered == b->n_asked)
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
    return take(b, b->asked[b->n_bare++], score, line);
}

static int take_lines(struct batch *b)
{
    struct weft_string *t = &b->p->answer;
    char *line = t->data, *end;
    int rc = weft_string_check(t, "a reward program's answers", b->err);
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

/* The error when the program has closed its output, usually because it has
 * ended. */
static int ended(struct batch *b)
{
    char how[64] = "closed its output";
    double left_s = b->deadline_s > 0 ? b->deadline_s - weft_clock_s()
                                      : END_S;
    (void) weft_process_ended(&b->p->process, left_s < END_S ? left_s : END_S,
                              how);
    return bad(b, WEFT_EIO, "%s after answering %d of %d samples", how,
               b->n_answered, b->n_asked);
}

static void put_question(struct weft_string *t, int32_t index,
                         const struct weft_reward_sample *s)
{
    weft_string_addf(t, "{\"index\": %d, \"prompt\": ", index);
    weft_string_add_json_str(t, s->prompt);
    weft_string_add(t, ", \"response\": ");
    weft_string_add_json_str(t, s->response);
    weft_string_add(t, ", \"label\": ");
    weft_string_add_json_str(t, s->label);
    weft_string_addf(t,
                     ", \"n_tokens\": %d, \"finish_reason\": \"%s\", "
                     "\"row\": ",
                     s->n_tokens, s->ended ? "stop" : "length");
    size_t start = t->n;
    weft_string_add(t, s->row ? s->row : "null");
    for (size_t i = start; i < t->n; i++) /* keep it on one line */
        if (t->data[i] == '\n' || t->data[i] == '\r')
            t->data[i] = ' ';
    weft_string_add(t, "}\n");
}

/* Writes as much as the pipe takes. If the program has closed its input, it
 * may still answer. */
static void write_some(struct batch *b)
{
    int *in = &b->p->process.in;
    size_t left = b->question.n - b->n_written;
    ssize_t n = write(*in, b->question.data + b->n_written, left);
    if (n > 0) {
        b->n_written += (size_t) n;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        close(*in);
        *in = -1;
    }
}

static void note_busy(struct batch *b)
{
    bool busy = b->n_answered < b->n_asked;
    double now = busy == (b->since_s > 0) ? 0 : weft_clock_s();
    if (now == 0)
        return;
    b->busy_s += busy ? 0 : now - b->since_s;
    b->since_s = busy ? now : 0;
}

/* One round of reading and writing with a program that owes answers, which
 * waits for it if somebody waits for these. */
static int turn(struct batch *b)
{
    struct weft_reward_program *p = b->p;
    struct weft_process *x = &p->process;
    bool waits = b->deadline_s > 0;
    double left_s = waits ? b->deadline_s - weft_clock_s() : 0;
    if (x->out < 0)
        return ended(b);
    if (waits && left_s <= 0)
        return bad(b, WEFT_ETIMEOUT,
                   "answered %d of %d samples in %g s (timeout_s); it must "
                   "flush every answer",
                   b->n_answered, b->n_asked, p->timeout_s);
    bool writing = x->in >= 0 && b->n_written < b->question.n;
    struct pollfd f[3] = {{x->out, POLLIN, 0},
                          {x->err, POLLIN, 0},
                          {writing ? x->in : -1, POLLOUT, 0}};
    double ms = waits ? left_s * 1000 + 1 : 0;
    if (poll(f, 3, ms < 1e6 ? (int) ms : 1000000) < 0 && errno != EINTR)
        return weft_err_sys(b->err, "wait for", p->shown);
    if (f[1].revents) {
        drain(&x->err, &p->words);
        pass_lines(p, false);
    }
    if (f[2].revents)
        write_some(b);
    if (!f[0].revents)
        return 0;
    drain(&x->out, &p->answer);
    if (x->out < 0 && p->answer.n > 0) /* a last line without a line feed */
        weft_string_add(&p->answer, "\n");
    int rc = take_lines(b);
    note_busy(b);
    return rc;
}

/* Checks that the program has written nothing since the last batch. If it has
 * ended, that is told when it is asked. */
static int check_quiet(struct batch *b)
{
    struct weft_reward_program *p = b->p;
    if (p->process.out >= 0)
        drain(&p->process.out, &p->answer);
    size_t n = p->answer.n < 100 ? p->answer.n : 100;
    if (n > 0)
        return bad(b, WEFT_EFORMAT, "wrote before it was asked: %.*s",
                   (int) n, p->answer.data);
    return 0;
}

void weft_reward_program_begin(struct weft_reward_program *program, int32_t n)
{
    struct batch *b = weft_alloc(1, sizeof *b);
    batch_free(program);
    program->batch = b;
    if (!b)
        return; /* said at the end */
    *b = (struct batch){.p = program,
                        .n = n,
                        .asked = weft_alloc((size_t) n, sizeof *b->asked),
                        .state = weft_alloc((size_t) n, 1),
                        .score = weft_alloc((size_t) n, sizeof *b->score)};
    b->err = &b->why;
    if (!b->asked || !b->state || !b->score)
        b->rc = weft_err_nomem(b->err, "a reward program's questions",
                               (size_t) n * sizeof *b->score);
    else if (!program->process.keeper)
        b->rc = weft_err_set(b->err, WEFT_ESTATE,
                             "reward '%s': program '%s' was ended after an "
                             "error",
                             program->name, program->shown);
    else if (n > 0)
        b->rc = check_quiet(b);
}

void weft_reward_program_ask(struct weft_reward_program *program,
                             int32_t index,
                             const struct weft_reward_sample *sample)
{
    struct batch *b = program->batch;
    if (!b || b->rc)
        return;
    weft_assert(index >= 0 && index < b->n && b->state[index] == 0);
    put_question(&b->question, index, sample);
    b->asked[b->n_asked++] = index;
    b->state[index] = ASKED;
    note_busy(b);
}

bool weft_reward_program_move(struct weft_reward_program *program)
{
    struct batch *b = program->batch;
    if (!b || b->rc || b->n_answered == b->n_asked)
        return false;
    b->rc = weft_string_check(&b->question, "a reward program's questions",
                              b->err);
    if (!b->rc)
        b->rc = turn(b);
    return !b->rc && b->n_answered < b->n_asked;
}

/* Waits for the answers to n questions. */
static void await(struct batch *b, int32_t n, const int32_t *index)
{
    struct weft_reward_program *p = b->p;
    int32_t k = 0;
    b->deadline_s = weft_clock_s() + p->timeout_s;
    if (!b->rc)
        b->rc = weft_string_check(&b->question,
                                  "a reward program's questions", b->err);
    while (!b->rc && k < n) {
        weft_assert(b->state[index[k]] != 0);
        if (b->state[index[k]] == ANSWERED)
            k++;
        else
            b->rc = turn(b);
    }
    b->deadline_s = 0;
    if (!b->rc && b->n_answered == b->n_asked && p->answer.n > 0)
        b->rc = bad(b, WEFT_EFORMAT, "wrote more after its last answer: %.*s",
                    (int) (p->answer.n < 100 ? p->answer.n : 100),
                    p->answer.data);
}

int weft_reward_program_end(struct weft_reward_program *program, int32_t n,
                            const int32_t *index, double *score_out,
                            double *busy_s_out, struct weft_err *err)
{
    struct batch *b = program->batch;
    if (!b)
        return weft_err_nomem(err, "a reward program's questions", sizeof *b);
    await(b, n, index);
    *busy_s_out = b->busy_s;
    b->busy_s = 0;
    if (b->rc && err)
        *err = b->why;
    for (int32_t k = 0; k < n && !b->rc; k++)
        score_out[k] = b->score[index[k]];
    tell_dropped(program);
    if (b->rc)
        weft_process_close(&program->process, 0);
    return b->rc;
}
