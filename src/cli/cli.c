/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/edit_distance.h"
#include "base/file.h"

/* ---- Words ------------------------------------------------------------ */

int weft_cli_usage(const char *verb, const char *fmt, ...)
{
    va_list ap;
    fflush(stdout);
    fprintf(stderr, "weft %s: ", verb);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nsee 'weft %s --help'\n", verb);
    return WEFT_EXIT_USAGE;
}

int weft_cli_fail(const char *verb, const struct weft_err *err)
{
    fflush(stdout);
    fprintf(stderr, "weft %s: %s\n", verb,
            err->text[0] ? err->text : "failed");
    return WEFT_EXIT_FAILED;
}

int weft_cli_finish(const char *verb)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return WEFT_EXIT_OK;
    if (errno == EPIPE) /* the reader of a pipe has closed it */
        return WEFT_EXIT_OK;
    fprintf(stderr, "weft %s: cannot write the results: %s\n", verb,
            errno ? strerror(errno) : "an earlier write failed");
    return WEFT_EXIT_FAILED;
}

/* ---- Options ---------------------------------------------------------- */

struct parser {
    const char *verb;
    const struct weft_cli_option *option;
    size_t n;
};

static int unknown(const struct parser *p, const char *word, size_t len)
{
    const char *best = NULL;
    char name[64];
    size_t least = 3;
    snprintf(name, sizeof name, "%.*s", (int) len, word);
    for (size_t i = 0; i < p->n; i++) {
        size_t d = weft_edit_distance(name, p->option[i].name);
        if (d < least && d < strlen(p->option[i].name)) {
            least = d;
            best = p->option[i].name;
        }
    }
    if (best)
        return weft_cli_usage(p->verb,
                              "unknown option '--%s'; did you mean '--%s'?",
                              name, best);
    return weft_cli_usage(p->verb, "unknown option '--%s'", name);
}

static int set_whole(const struct parser *p, const struct weft_cli_option *o,
                     const char *text)
{
    char *end;
    errno = 0;
    if (o->type == WEFT_CLI_UINT64) {
        unsigned long long v = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno)
            return weft_cli_usage(p->verb,
                                  "'--%s' must be a whole number from 0, not "
                                  "'%s'",
                                  o->name, text);
        *(uint64_t *) o->value = v;
        return 0;
    }
    long long v = strtoll(text, &end, 10);
    bool digits = strspn(text, "+-0123456789") == strlen(text) && *text;
    bool limits = o->min != 0 || o->max != 0;
    bool small = o->type == WEFT_CLI_INT;
    if (!digits || *end || errno
        || (small && (v < INT32_MIN || v > INT32_MAX)))
        return weft_cli_usage(p->verb,
                              "'--%s' must be a whole number%s, not '%s'",
                              o->name, small ? " of 32 bits" : "", text);
    if (limits && ((double) v < o->min || (double) v > o->max))
        return weft_cli_usage(p->verb,
                              "'--%s' must be from %.10g to %.10g, not %lld",
                              o->name, o->min, o->max, v);
    if (small)
        *(int32_t *) o->value = (int32_t) v;
    else
        *(int64_t *) o->value = v;
    return 0;
}

static int set_real(const struct parser *p, const struct weft_cli_option *o,
                    const char *text)
{
    char *end;
    double v = strtod(text, &end);
    if (!*text || *end || !isfinite(v) || strchr(" \t\n", *text))
        return weft_cli_usage(p->verb, "'--%s' must be a number, not '%s'",
                              o->name, text);
    if ((o->min != 0 || o->max != 0) && (v < o->min || v > o->max))
        return weft_cli_usage(p->verb,
                              "'--%s' must be from %.10g to %.10g, not %s",
                              o->name, o->min, o->max, text);
    if (o->type == WEFT_CLI_FLOAT)
        *(float *) o->value = (float) v;
    else
        *(double *) o->value = v;
    return 0;
}

static int add_word(const struct parser *p, const struct weft_cli_option *o,
                    const char *text)
{
    struct weft_cli_list *list = o->value;
    if (list->n == (int32_t) WEFT_COUNT(list->word))
        return weft_cli_usage(p->verb, "'--%s' is given more than %d times",
                              o->name, list->n);
    list->word[list->n++] = text;
    return 0;
}

/* Refused before work begins that may take hours. */
static int set_output(const struct parser *p, const struct weft_cli_option *o,
                      const char *text)
{
    struct weft_err err;
    *(const char **) o->value = text;
    return weft_file_may_write(text, &err) ? weft_cli_fail(p->verb, &err) : 0;
}

static int set(const struct parser *p, const struct weft_cli_option *o,
               const char *text)
{
    switch (o->type) {
    case WEFT_CLI_FLAG:
        *(bool *) o->value = true;
        return 0;
    case WEFT_CLI_STRING:
        *(const char **) o->value = text;
        return 0;
    case WEFT_CLI_OUTPUT:
        return set_output(p, o, text);
    case WEFT_CLI_LIST:
        return add_word(p, o, text);
    case WEFT_CLI_FLOAT:
    case WEFT_CLI_DOUBLE:
        return set_real(p, o, text);
    default:
        return set_whole(p, o, text);
    }
}

/* Takes "--name", "--name value" or "--name=value" at argv[*i]; moves *i to
 * the last word taken. */
static int take_long(const struct parser *p, int argc, char **argv, int *i)
{
    const char *word = argv[*i] + 2;
    size_t len = strcspn(word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;
    const struct weft_cli_option *o = NULL;
    for (size_t k = 0; k < p->n; k++)
        if (strlen(p->option[k].name) == len
            && memcmp(p->option[k].name, word, len) == 0)
            o = &p->option[k];
    if (!o)
        return unknown(p, word, len);
    if (o->type == WEFT_CLI_FLAG && value)
        return weft_cli_usage(p->verb, "'--%s' takes no value", o->name);
    if (o->type != WEFT_CLI_FLAG && !value) {
        if (*i + 1 >= argc)
            return weft_cli_usage(p->verb, "'--%s' needs a value", o->name);
        value = argv[++*i];
    }
    return set(p, o, value);
}

/* Takes "-q", "-qj", "-o value" or "-ovalue". */
static int take_short(const struct parser *p, int argc, char **argv, int *i)
{
    for (const char *c = argv[*i] + 1; *c; c++) {
        const struct weft_cli_option *o = NULL;
        for (size_t k = 0; k < p->n; k++)
            if (p->option[k].letter == *c)
                o = &p->option[k];
        if (!o)
            return weft_cli_usage(p->verb, "unknown option '-%c'", *c);
        if (o->type == WEFT_CLI_FLAG) {
            set(p, o, NULL);
            continue;
        }
        if (!c[1] && *i + 1 >= argc)
            return weft_cli_usage(p->verb, "'-%c' needs a value", *c);
        return set(p, o, c[1] ? c + 1 : argv[++*i]);
    }
    return 0;
}

/* Checks the number of operands; the error shows the usage lines of the help,
 * which say what is wanted. */
static int count_operands(const char *verb, const char *help, int n, int min,
                          int max)
{
    const char *end = strstr(help, "\n\n");
    if (n >= min && (max < 0 || n <= max))
        return 0;
    fflush(stdout);
    fprintf(stderr, "weft %s: %s\n%.*s\n", verb,
            n < min ? "an argument is missing" : "too many arguments",
            end ? (int) (end - help) : 0, help);
    return WEFT_EXIT_USAGE;
}

bool weft_cli_parse(int argc, char **argv, const char *help,
                    const struct weft_cli_option *option, size_t n,
                    int min_operands, int max_operands, int *first_out,
                    int *status_out)
{
    struct parser p = {argv[0], option, n};
    char **operand = weft_alloc(2 * (size_t) argc, sizeof *operand);
    /* options and their values */
    char **word = operand ? operand + argc : NULL;
    int n_operands = 0, n_words = 0, status = 0;
    bool options = true, help_asked = false;
    if (!operand) {
        fprintf(stderr, "weft %s: out of memory\n", argv[0]);
        *status_out = WEFT_EXIT_FAILED;
        return false;
    }
    for (int i = 1; i < argc && !status && !help_asked; i++) {
        int from = i;
        if (!options || argv[i][0] != '-' || !argv[i][1]) {
            operand[n_operands++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0)
            options = false;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            help_asked = true;
        else if (argv[i][1] == '-')
            status = take_long(&p, argc, argv, &i);
        else
            status = take_short(&p, argc, argv, &i);
        while (from <= i && from < argc)
            word[n_words++] = argv[from++];
    }
    if (help_asked) {
        fputs(help, stdout);
        status = weft_cli_finish(argv[0]);
    } else if (!status) {
        status = count_operands(argv[0], help, n_operands, min_operands,
                                max_operands);
    }
    /* Puts options first, so that the command line can be given to another
     * program. */
    for (int i = 0; i < n_words && !status; i++)
        argv[1 + i] = word[i];
    for (int i = 0; i < n_operands && !status; i++)
        argv[argc - n_operands + i] = operand[i];
    weft_free(operand);
    *first_out = argc - n_operands;
    *status_out = status;
    return !help_asked && !status;
}

/* ---- Stopping --------------------------------------------------------- */

volatile sig_atomic_t weft_cli_stop;
static const char *stop_line;
static const int stop_signal[] = {SIGINT, SIGTERM, SIGUSR1};
static struct sigaction before_stop[WEFT_COUNT(stop_signal)];

int weft_cli_stop_status(int signal_number)
{
    return 128 + signal_number;
}

/* Calls only what a signal handler may call. It uses _exit() as the first
 * process of a container has no default action for signals. */
static void on_stop(int signal_number)
{
    int saved = errno;
    if (weft_cli_stop)
        _exit(weft_cli_stop_status(signal_number));
    weft_cli_stop = signal_number;
    ssize_t n = stop_line ? write(2, stop_line, strlen(stop_line)) : 0;
    (void) n;
    errno = saved;
}

void weft_cli_catch_stop(const char *line)
{
    const struct sigaction act = {.sa_handler = on_stop};
    stop_line = line;
    for (size_t i = 0; i < WEFT_COUNT(stop_signal); i++)
        sigaction(stop_signal[i], &act, &before_stop[i]);
}

static const char *volatile unfinished;

static void on_end(int signal_number)
{
    if (unfinished)
        unlink(unfinished);
    _exit(weft_cli_stop_status(signal_number));
}

void weft_cli_unfinished(const char *path)
{
    const struct sigaction act = {.sa_handler = on_end};
    unfinished = path;
    for (size_t i = 0; i < WEFT_COUNT(stop_signal); i++)
        sigaction(stop_signal[i], &act, NULL);
}

void weft_cli_leave_stop(void)
{
    for (size_t i = 0; i < WEFT_COUNT(stop_signal); i++)
        sigaction(stop_signal[i], &before_stop[i], NULL);
}
