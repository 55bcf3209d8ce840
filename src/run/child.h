/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is run to its end, with its words in a file. */
#ifndef WEFT_RUN_CHILD_H
#define WEFT_RUN_CHILD_H

#include <signal.h>

#include "base/err.h"

struct weft_child {
    char *const *argv;                 /* ends in NULL; found on PATH */
    const char *log;                   /* file for its stdout and stderr */
    double timeout_s;                  /* 0: none */
    const volatile sig_atomic_t *stop; /* not 0: ends it; NULL: never */
};

/* Waits. seconds_out: wall time, also of a failure. Errors: WEFT_ENOTFOUND
 * (no such program), WEFT_ETIMEOUT, WEFT_EINTERRUPTED, WEFT_EIO; of a program
 * that failed the sentence is the last that it said as "weft COMMAND: ...",
 * or its first line. */
int weft_child_run(const struct weft_child *child, double *seconds_out,
                   struct weft_err *err);

#endif
