/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all commands share: options, usage errors, exit statuses.
 *
 *     struct options o = {.n = 1};
 *     const struct weft_cli_option table[] = {
 *         {'o', "output", WEFT_CLI_STRING, &o.output},
 *         {0, "n", WEFT_CLI_INT, &o.n, 1, 1e6},
 *         {0, "json", WEFT_CLI_FLAG, &o.json},
 *     };
 *     int first, status;
 *     if (!weft_cli_parse(argc, argv, weft_help_x, table,
 *                         WEFT_COUNT(table), 1, 1, &first, &status))
 *         return status;
 *
 * Results go to stdout, everything else to stderr.
 */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H

#include <signal.h>

#include "base/err.h"

enum { WEFT_EXIT_OK = 0, WEFT_EXIT_FAILED = 1, WEFT_EXIT_USAGE = 2 };

enum weft_cli_type {
    WEFT_CLI_FLAG,   /* bool; takes no value */
    WEFT_CLI_INT,    /* int32_t within [min, max] */
    WEFT_CLI_INT64,  /* int64_t within [min, max] */
    WEFT_CLI_UINT64, /* uint64_t */
    WEFT_CLI_FLOAT,  /* float within [min, max] */
    WEFT_CLI_DOUBLE, /* double within [min, max] */
    WEFT_CLI_STRING, /* const char *; borrowed from argv */
    WEFT_CLI_OUTPUT, /* the same, a file to write: it must be possible now */
    WEFT_CLI_LIST    /* struct weft_cli_list; each time one more */
};

struct weft_cli_list {
    int32_t n;
    const char *word[16]; /* borrowed from argv */
};

struct weft_cli_option {
    char letter;      /* 0: none */
    const char *name; /* without dashes */
    enum weft_cli_type type;
    void *value;     /* written when the option is given */
    double min, max; /* limits of a number; both 0: none */
};

/* Reads options and moves the operands to the end of argv, in their order.
 * Options may be mixed with operands, `--` ends them, and every command has
 * --help. Returns true when the command goes on: first_out is the first
 * operand, and there are min..max of them (max -1: any number). Otherwise
 * returns false, and the command returns *status_out: 0 after --help, 2 after
 * a usage error, 1 where an output cannot be written; errors were printed on
 * stderr. argv[0] is the command's name. */
bool weft_cli_parse(int argc, char **argv, const char *help,
                    const struct weft_cli_option *option, size_t n,
                    int min_operands, int max_operands, int *first_out,
                    int *status_out);

/* Prints "weft VERB: text" and how to get help; returns 2. */
int weft_cli_usage(const char *verb, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* Prints "weft VERB: text of err"; returns 1. */
int weft_cli_fail(const char *verb, const struct weft_err *err);

/* Call it after the last result: flushes stdout. Returns 0, or prints an error
 * and returns 1 when stdout could not be written (a full disk). */
int weft_cli_finish(const char *verb);

/* From here on a first SIGINT (Ctrl-C), SIGTERM or SIGUSR1 asks the command to
 * stop: its handler prints `line` (borrowed; NULL: nothing) on stderr and sets
 * weft_cli_stop to the signal's number. mpirun passes SIGUSR1 on to the ranks,
 * and batch systems send it ahead of the end. A second signal ends the process
 * at once, with the status that a shell gives to that signal. */
void weft_cli_catch_stop(const char *line);
/* From here on these signals do what they did before that. */
void weft_cli_leave_stop(void);
extern volatile sig_atomic_t weft_cli_stop; /* 0: nobody asked */

/* From here on such a signal ends the process as a second one does, and removes
 * the file at `path` (borrowed; NULL: none), which is not complete. */
void weft_cli_unfinished(const char *path);

/* The status of a command that such a signal stopped: 130 for SIGINT, 143 for
 * SIGTERM, 138 for SIGUSR1. */
int weft_cli_stop_status(int signal_number);

#endif
