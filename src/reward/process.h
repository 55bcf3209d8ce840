/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process that is connected to Weft by three pipes.
 *
 * It has a process group of its own, so that Ctrl-C does not reach it, and it
 * ends when Weft ends for any reason. For this Linux is told to signal the
 * child when its parent ends; as it does so when the thread that forked the
 * child ends, a separate thread forks it and lives as long as the child.
 */
#ifndef WEFT_REWARD_PROCESS_H
#define WEFT_REWARD_PROCESS_H

#include "base/err.h"

struct weft_process {
    /* Its stdin, stdout and stderr; reading and writing do not block. The
     * owner may close one and set it to -1. */
    int in, out, err;
    struct weft_keeper *keeper;
};

/* Starts command[0], which is searched in PATH; command ends in NULL.
 * directory: its working directory (NULL: the present one). SIGPIPE is ignored
 * from now on unless it has a handler. Errors: WEFT_ENOTFOUND, WEFT_EIO;
 * `process` is then closed. */
int weft_process_open(char *const *command, const char *directory,
                      struct weft_process *process, struct weft_err *err);

/* Waits up to `s` seconds for the process to end. Returns whether it has
 * ended; how_out: "ended with status 3", "was ended by signal 9 (Killed)". */
bool weft_process_ended(const struct weft_process *process, double s,
                        char how_out[64]);

/* Closes the pipes, waits up to grace_s seconds for the process to end, then
 * kills its process group with all children in it. A second call does
 * nothing. */
void weft_process_close(struct weft_process *process, double grace_s);

#endif
