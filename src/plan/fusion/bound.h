/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Below what time no schedule of an iteration's generation and inference can
 * stay, whoever generates which samples in which batches, whatever moves when,
 * and whoever infers: what a schedule's time is to be seen beside.
 *
 * In T seconds n instances have n T seconds of work. A sample that must have
 * ended by then has at most T less its reading and its inference for its tokens
 * after the first, and costs as a member of a batch of b samples a b-th of each
 * step. Few in a batch make it fast, and many make it cheap. With any price
 * x >= 0 of its own time, it takes at least
 *
 *     sum over these tokens of  min over b of  step(b) (1 / b + x)   - x T
 *
 * seconds of work. Reading takes its time, but no work: its rows may be in
 * steps that take no longer for them. Where all samples' work is more than n T
 * for some prices, or a sample by itself takes longer than T, there is no
 * schedule of T seconds.
 *
 * It takes moving, loading weights and what the controller does to cost nothing.
 */
#ifndef WEFT_PLAN_FUSION_BOUND_H
#define WEFT_PLAN_FUSION_BOUND_H

#include "plan/fusion/overlap.h"

/* Seconds, at most 1e-6 of them below the largest T for which the above finds
 * no schedule. Of the job it reads neither where samples begin nor slots: a
 * batch that cannot be takes step_s() infinitely long. What costs say must grow
 * with the number of tokens, and of samples, and reading a text in pieces must
 * take no less than at once. Errors: WEFT_ENOMEM. */
int weft_overlap_bound(const struct weft_overlap_job *job, double *out,
                       struct weft_err *err);
/* Seconds of work of all instances together in which no schedule can have
 * generated all tokens after each sample's first. Errors: WEFT_ENOMEM. */
int weft_overlap_work(const struct weft_overlap_job *job, double *out,
                      struct weft_err *err);

#endif
