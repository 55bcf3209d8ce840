/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that runs beside Weft, at the other end of three pipes.
 *
 * It is a process group of its own, so that Ctrl-C does not reach it, and it
 * does not outlive Weft, however that ends. Linux ends a child when the thread
 * that forked it ends; so a thread is kept for that as long as the program
 * runs, whichever thread started it.
 */
#ifndef WEFT_RUN_PROCESS_H
#define WEFT_RUN_PROCESS_H

#include "base/err.h"

struct weft_process {
    /* Its stdin, stdout and stderr; reading and writing do not block. The
     * owner may close one and set it to -1. */
    int in, out, err;
    struct weft_keeper *keeper;
};

/* Starts command[0] (found on PATH, NULL at the end) in `directory` (NULL:
 * here). SIGPIPE is ignored from here on unless a handler is set. Errors:
 * WEFT_ENOTFOUND, WEFT_EIO; `process` is closed then. */
int weft_process_open(char *const *command, const char *directory,
                      struct weft_process *process, struct weft_err *err);

/* Waits up to `s` for its end. Returns whether it has ended, and how: "ended
 * with status 3", "was ended by signal 9 (Killed)". */
bool weft_process_ended(const struct weft_process *process, double s,
                        char how_out[64]);

/* Closes the pipes, waits up to grace_s for the end, then ends the process
 * group, children of the program too. A second call does nothing. */
void weft_process_close(struct weft_process *process, double grace_s);

#endif
