/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reward from an outside program, started once and kept for the run.
 *
 * Per iteration it reads one JSON line per sample,
 *
 *     {"index": 0, "prompt": "...", "response": "...", "label": "...",
 *      "n_tokens": 14, "finish_reason": "stop", "row": {...}}
 *
 * and writes one line per sample: {"index": 0, "score": 0.5} in any order, or
 * a bare number, the k-th of which answers sample k. It must flush what it
 * writes, and end when its input ends. Its stderr is passed on.
 */
#ifndef WEFT_RUN_REWARD_PROGRAM_H
#define WEFT_RUN_REWARD_PROGRAM_H

#include "base/err.h"

struct weft_reward_program;

/* Starts command[0] (found in PATH) in `directory`, in a process group of its
 * own. command: NULL-terminated, borrowed until the close, as is `name` (for
 * messages). SIGPIPE is ignored from here on unless a handler is set. */
int weft_reward_program_open(const char *name, char *const *command,
                             const char *directory, double timeout_s,
                             struct weft_reward_program **out,
                             struct weft_err *err);

/* The scores of n samples. Errors: WEFT_ETIMEOUT, WEFT_EIO when the program
 * ended, WEFT_EFORMAT for an answer that is none (not JSON, not a finite
 * number, an index that is unknown or answered twice, more than was asked).
 * The program is stopped then, and later calls fail. */
int weft_reward_program_score(struct weft_reward_program *program, int32_t n,
                              const struct weft_reward_sample *sample,
                              double *score_out, struct weft_err *err);

/* Closes its input, gives it a second to end, then ends its process group.
 * NULL is allowed. */
void weft_reward_program_close(struct weft_reward_program *program);

#endif
