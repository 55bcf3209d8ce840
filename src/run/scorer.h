/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewards of samples as these end: a thread of rank 0 decodes their responses,
 * computes rules and asks programs, while others are still generated. It is no
 * worker's, and rank 0's because a program is one process there, as are the
 * rows of the data; a sample's copy to rank 0, which its advantage needs in any
 * case, is made when it ends. The caller's functions are called when all have
 * ended, by the thread that runs the iterations. With train.as_completed there
 * is no such thread: rewards are asked for by mini-batches as these complete.
 */
#ifndef WEFT_RUN_SCORER_H
#define WEFT_RUN_SCORER_H

#include "run/iteration.h"

struct weft_scorer;

/* A round's samples are going to end. Errors: WEFT_ENOMEM, no thread. */
int weft_scorer_begin(struct weft_iteration *p);
/* Sample i, number k of the round by index, has been generated. All ranks
 * submit its copy. Errors: WEFT_ENOMEM. */
int weft_scorer_expect(struct weft_iteration *p, int32_t i, int32_t k);
/* Waits until sample i has been decoded. False: it was not, or is not the
 * scorer's. NULL is allowed. */
bool weft_scorer_wait(struct weft_scorer *scorer, int32_t i);
/* The round's samples have all been added to weft_rewards, if they could, and
 * the thread lets go of it. Returns how long it was at work. NULL is
 * allowed. */
double weft_scorer_end(struct weft_scorer *scorer);
/* Forgets the round, if it is that iteration's. NULL is allowed. */
void weft_scorer_forget(struct weft_scorer *scorer,
                        const struct weft_iteration *p);
/* After the runtime has ended. NULL is allowed. */
void weft_scorer_free(struct weft_scorer *scorer);

#endif
