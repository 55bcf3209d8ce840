/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reward from an external program, which is started once per run.
 *
 * In each iteration the program reads one JSON line per sample, in the order
 * of their indices, each as soon as it and those before it have ended,
 *
 *     {"index": 0, "prompt": "...", "response": "...", "label": "...",
 *      "n_tokens": 14, "finish_reason": "stop", "row": {...}}
 *
 * and writes one line per sample: {"index": 0, "score": 0.5} in any order, or
 * only numbers, of which the k-th is the score of sample k. It must flush its
 * output, and end when its input ends. Its stderr is copied to Weft's.
 */
#ifndef WEFT_REWARD_PROGRAM_H
#define WEFT_REWARD_PROGRAM_H

#include "base/err.h"

struct weft_reward_program;

/* Starts command[0], which is searched in PATH, in `directory`, as a process
 * group of its own. command ends in NULL; it and `name`, which is for
 * messages, are borrowed until weft_reward_program_close(). SIGPIPE is ignored
 * from now on unless it has a handler. */
int weft_reward_program_open(const char *name, char *const *command,
                             const char *directory, double timeout_s,
                             struct weft_reward_program **out,
                             struct weft_err *err);

/* A batch of n samples begins; they are asked one after the other, in the order
 * of their indices; move exchanges what the program takes and says without
 * waiting for it, and returns whether it owes answers; end waits for those, at
 * most timeout_s from then on. busy_s: time in which there was something to
 * answer, as far as it was moved.
 *
 * Errors, all told by the end: WEFT_ETIMEOUT; WEFT_EIO when the program ended;
 * WEFT_EFORMAT for an invalid answer (not JSON, not a finite number, an unknown
 * index, a second answer for a sample, too many answers). After an error the
 * program is stopped, and later batches fail. */
void weft_reward_program_begin(struct weft_reward_program *program,
                               int32_t n);
void weft_reward_program_ask(struct weft_reward_program *program,
                             const struct weft_reward_sample *sample);
bool weft_reward_program_move(struct weft_reward_program *program);
int weft_reward_program_end(struct weft_reward_program *program,
                            double *score_out, double *busy_s_out,
                            struct weft_err *err);

/* Closes the program's input, waits a second for it to end, then kills its
 * process group. NULL is allowed. */
void weft_reward_program_close(struct weft_reward_program *program);

#endif
