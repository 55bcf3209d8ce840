/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares of a call's dp members on devices of unlike speed. Samples are dealt
 * to the members of generation and inference, and gradient groups to those of
 * training, in proportion. The numbers do not depend on it: each part of a tree
 * is added by another member then, in the same order.
 */
#ifndef WEFT_PLAN_SHARES_H
#define WEFT_PLAN_SHARES_H

#include "plan/cluster.h"
#include "plan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_SHARE_MOST = 1000, /* a share is 1 to this */
    WEFT_SHARE_FASTEST = 12 /* of the fastest devices, before what all shares
                               have in common is left out */
};

/* Adds a member behind those that are there; false: more than WEFT_MAX_SHARES
 * runs of equal ones. */
bool weft_shares_add(struct weft_shares *shares, int32_t share);
/* A member's share, 1 where all are alike; how many members there are. */
int32_t weft_shares_of(const struct weft_shares *shares, int32_t member);
int32_t weft_shares_members(const struct weft_shares *shares);

/* What a dp member gets of n things that are dealt contiguously, so that the
 * largest part by its member's share is as small as can be; as
 * weft_plan_range() where all members are alike. And the most that one gets. */
struct weft_range weft_plan_share(const struct weft_call_plan *call,
                                  int32_t n, int32_t member);
int32_t weft_plan_most_share(const struct weft_call_plan *call, int32_t n);

/* Gives all calls the shares of their members' speed on a cluster, whose nodes,
 * or equal parts of them, are the plan's: of peak FLOP/s, in generation of
 * memory bandwidth; a member is as fast as its slowest device. A call stays as
 * it is where a member would get nothing. */
void weft_plan_share_by_speed(struct weft_plan *plan,
                              const struct weft_plan_needs *needs,
                              const struct weft_cluster *cluster);
/* No tp group has devices of two kinds. Errors: WEFT_EINVAL, a sentence. */
int weft_plan_check_kinds(const struct weft_plan *plan,
                          const struct weft_cluster *cluster,
                          struct weft_err *err);

#ifdef __cplusplus
}
#endif
#endif
