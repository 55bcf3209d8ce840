/* SPDX-License-Identifier: Apache-2.0 */
/* How layouts are priced, one after the other or in threads; of candidates.c
 * alone. */
#ifndef WEFT_RUN_PREDICT_CANDIDATES_INSIDE_H
#define WEFT_RUN_PREDICT_CANDIDATES_INSIDE_H

#include <stdatomic.h>

#include "run/predict/options_inside.h"

/* Layouts of a call, and of all, that are neither priced nor left out. */
int32_t weft_candidates_open(const struct weft_finding *f, int32_t call);
int32_t weft_candidates_all_open(const struct weft_finding *f);

/* Prices a layout, which then is a variant of its call, unless that takes too
 * much memory or it is not needed; it is closed then. Errors: those of
 * weft_pricer_price(). */
int weft_candidate_price(struct weft_finding *f, int32_t call,
                         struct weft_candidate *c, struct weft_err *err);

/* Layouts to be priced. Several threads price them ahead of time. What becomes
 * of a price, and whether it is needed, is decided afterwards, of one layout
 * after the other as with one thread: so the result is the same. */
struct weft_pricing_item {
    int32_t call;
    struct weft_candidate *c;
};
struct weft_pricing {
    struct weft_finding *f;
    struct weft_pricing_item *at; /* to be freed */
    int32_t n, room;
    atomic_bool over; /* the search is to stop, as a thread has asked */
};

/* Errors: WEFT_ENOMEM. */
int weft_pricing_add(struct weft_pricing *l, int32_t call,
                     struct weft_candidate *c, struct weft_err *err);
/* Prices those from the first on ahead which no earlier one can make needless,
 * in the threads of the search. Errors: WEFT_ENOMEM. */
int weft_pricing_ahead(struct weft_pricing *l, int32_t first,
                       struct weft_err *err);
/* Prices all, in their order, until the search is to stop; those that are left
 * stay open. Errors: those of weft_candidate_price(). */
int weft_pricing_run(struct weft_pricing *l, struct weft_err *err);

#endif
