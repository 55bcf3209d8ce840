/* SPDX-License-Identifier: Apache-2.0 */
/* A search for a plan on all ranks of the job: rank 0 searches, and the restarts
 * of its annealing are dealt to all. Which rank does a restart changes nothing:
 * what is found is what one process finds, unless it is stopped before the
 * end. */
#ifndef WEFT_RUN_PREDICT_SPREAD_H
#define WEFT_RUN_PREDICT_SPREAD_H

#include "plan/search/search.h"

/* The `spread` of searches on rank 0, of problems that weft_finding_place()
 * makes, while the other ranks are in weft_spread_serve(). When one rank is to
 * stop, all do. Errors: WEFT_ENOMEM on any rank. */
int weft_spread_restarts(const struct weft_search *s,
                         const struct weft_search_how *how,
                         const struct weft_search_result *best,
                         struct weft_search_result *own,
                         struct weft_err *err);
/* On rank 0: the others return from weft_spread_serve(). Collective with
 * that. */
void weft_spread_end(void);

/* On the other ranks: does rank 0's restarts until that ends. stop: asked now
 * and then, in any thread, whether rank 0 shall take the best so far; NULL:
 * nobody is asked. */
void weft_spread_serve(bool (*stop)(void *ctx), void *ctx);
/* On rank 0: whether another rank was to stop since it serves. */
bool weft_spread_stopped(void);

#endif
