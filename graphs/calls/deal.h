/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which samples of a mini-batch a gradient group has, and in which
 * micro-batches (plan/deal.h). Samples of a unit, like chosen and rejected of
 * a pair, follow one another and stay together.
 */
#ifndef WEFT_CALLS_DEAL_H
#define WEFT_CALLS_DEAL_H

#include "base/err.h"
#include "codelets/codelets.h"

struct weft_g_deal {
    int32_t n, unit;
    int32_t *order;       /* (n) samples by group, in a group by index */
    int32_t *group_first; /* (groups + 1) in `order` */
    double *cost;         /* (n) of each sample */
    const struct weft_pack_sample *sample;
    double *unit_cost; /* (n / unit) for a group's units */
    int32_t *unit_rows;
};

/* unit: samples of a unit, which divides n; 0: 1. `sample` is borrowed.
 * Release also after an error. Errors: WEFT_ENOMEM. */
int weft_g_deal_init(const struct weft_shape *shape, int32_t n_groups,
                     int32_t unit, int32_t n,
                     const struct weft_pack_sample *sample,
                     struct weft_g_deal *out, struct weft_err *err);
void weft_g_deal_release(struct weft_g_deal *deal);

/* The samples of a group. */
const int32_t *weft_g_deal_group(const struct weft_g_deal *deal,
                                 int32_t group, int32_t *n_out);
/* Cuts them into `parts` micro-batches of about the same cost; or, if that is
 * 0, into ones of at most max_rows rows. first_out (n + 1): the first sample
 * of each, then the number of all. Returns how many. */
int32_t weft_g_deal_cut(struct weft_g_deal *deal, int32_t group,
                        int32_t parts, int32_t max_rows, int32_t *first_out);

#endif
