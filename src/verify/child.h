/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program to its end, with its output in a file. */
#ifndef WEFT_VERIFY_CHILD_H
#define WEFT_VERIFY_CHILD_H

#include <signal.h>

#include "base/err.h"

struct weft_child {
    char *const *argv;                 /* ends in NULL; found on PATH */
    const char *log;                   /* file for its stdout and stderr */
    double timeout_s;                  /* 0: none */
    const volatile sig_atomic_t *stop; /* not 0: end the program; or NULL */
};

/* Runs the program and waits for its end. seconds_out: wall time, also after a
 * failure. Errors: WEFT_ENOTFOUND (no such program), WEFT_ETIMEOUT,
 * WEFT_EINTERRUPTED, WEFT_EIO. If the program fails, the error's text is the
 * last line that it printed as "weft COMMAND: ...", else its first line. */
int weft_child_run(const struct weft_child *child, double *seconds_out,
                   struct weft_err *err);

#endif
