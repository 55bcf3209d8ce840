/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dealing samples: to gradient groups (part of the numbers: knows lengths and
 * G only), and a group's samples to micro-batches (placement).
 */
#ifndef WEFT_PLAN_DEAL_H
#define WEFT_PLAN_DEAL_H

#include "base/shape.h"

/* Work of training one sample of `len` tokens: linear in the parameters plus
 * quadratic attention, in multiply-adds of one forward pass. */
double weft_plan_sample_cost(const struct weft_shape *shape, int32_t len);
/* What of a token's cost (without attention) is in so many layers and, where
 * asked, the head. */
double weft_plan_stage_share(const struct weft_shape *shape, int32_t n_layers,
                             bool head);

/* Deals n samples to n_groups: in descending cost (ties by index) each to that
 * half of the groups which has less cost for its groups, while there is room,
 * and so on within the halves. So every half, quarter and so on of the groups,
 * which is what a dp member has, has about the same cost, and all have as many
 * samples, or one fewer: which have fewer, or none, depends on n and n_groups,
 * not on costs. Ties: the half with less room, then the first.
 * group_out[i] in 0..n_groups-1. Deterministic. Errors: WEFT_ENOMEM. */
int weft_plan_deal(int32_t n, const double *cost, int32_t n_groups,
                   int32_t *group_out, struct weft_err *err);

/* Cuts samples 0..n-1 into contiguous micro-batches of at most max_rows rows
 * (at least one sample each). first_out (n + 1): first sample of each, then
 * n. Returns how many. */
int32_t weft_plan_split(int32_t n, const int32_t *n_rows, int32_t max_rows,
                        int32_t *first_out);

#endif
