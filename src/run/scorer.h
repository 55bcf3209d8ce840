/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules and reward programs, on samples as these end. Every rank has a thread,
 * which is no worker's, and programs of its own: it scores the samples whose
 * tokens are there, which are those that its instances end (of an instance on
 * several ranks, they are at its last stage's first member). A program is asked
 * about a sample when it has ended; on a single rank in the order of their
 * indices, with train.as_completed in that in which mini-batches need them.
 *
 * The thread of rank 0 also decodes the samples of others, which come there for
 * their advantages in any case: callbacks and files of samples want the texts.
 * Callbacks are called when all have ended, by the thread that runs the
 * iterations of rank 0.
 */
#ifndef WEFT_RUN_SCORER_H
#define WEFT_RUN_SCORER_H

#include "run/iteration.h"

struct weft_scorer;

/* Whether the run has rules or programs. */
bool weft_scorer_wanted(const struct weft_iteration *p);
/* A round's samples are going to end. Errors: WEFT_ENOMEM, no thread. */
int weft_scorer_begin(struct weft_iteration *p);
/* Sample i, which has its number in the round, has been generated. All ranks
 * submit its copy. Errors: WEFT_ENOMEM. */
int weft_scorer_expect(struct weft_iteration *p, int32_t i);
/* Whether this rank scores sample i. */
bool weft_scorer_has(const struct weft_iteration *p, int32_t i);
/* Waits until the thread is done with sample i. Returns whether it decoded it.
 * NULL is allowed. */
bool weft_scorer_wait(struct weft_scorer *scorer, int32_t i);
/* weft_rewards_end() for n of the samples that this rank scores, index (n):
 * their texts are there, and the thread is done with them. It goes on with
 * others afterwards. */
int weft_scorer_end(struct weft_iteration *p, int32_t n, const int32_t *index,
                    double (*part)[WEFT_MAX_REWARDS]);
/* Forgets the round, if it is that iteration's. NULL is allowed. */
void weft_scorer_forget(struct weft_scorer *scorer,
                        const struct weft_iteration *p);
/* After the runtime has ended. NULL is allowed. */
void weft_scorer_free(struct weft_scorer *scorer);

#endif
