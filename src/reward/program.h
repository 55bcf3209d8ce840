/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reward from an external program, which is started once per run and rank.
 *
 * In each iteration the program reads one JSON line per sample,
 *
 *     {"index": 0, "prompt": "...", "response": "...", "label": "...",
 *      "n_tokens": 14, "finish_reason": "stop", "row": {...}}
 *
 * and writes one line per sample: {"index": 0, "score": 0.5} in any order, or
 * only numbers, of which the k-th answers the k-th question. It must flush its
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

/* A batch of samples with the indices 0 to n - 1 begins. The program is asked
 * about any of them, one after the other, about each once; move exchanges what
 * it takes and says without waiting for it, and returns whether it owes
 * answers; end waits for the answers to n questions that were asked, index (n),
 * at most timeout_s from then on, and may be called for others then.
 * *busy_s_out: time since the end before in which there was something to
 * answer, as far as it was moved.
 *
 * Errors, all told by the end: WEFT_ETIMEOUT; WEFT_EIO when the program ended;
 * WEFT_EFORMAT for an invalid answer (not JSON, not a finite number, an unknown
 * index, a second answer for a sample, too many answers). After an error the
 * program is stopped, and later batches fail. */
void weft_reward_program_begin(struct weft_reward_program *program,
                               int32_t n);
void weft_reward_program_ask(struct weft_reward_program *program,
                             int32_t index,
                             const struct weft_reward_sample *sample);
bool weft_reward_program_move(struct weft_reward_program *program);
int weft_reward_program_end(struct weft_reward_program *program, int32_t n,
                            const int32_t *index, double *score_out,
                            double *busy_s_out, struct weft_err *err);

/* Closes the program's input, waits a second for it to end, then kills its
 * process group. NULL is allowed. */
void weft_reward_program_close(struct weft_reward_program *program);

#endif
