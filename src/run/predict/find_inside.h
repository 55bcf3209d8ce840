/* SPDX-License-Identifier: Apache-2.0 */
/* The problems of a search, and what it finds of them; of find.c alone. */
#ifndef WEFT_RUN_PREDICT_FIND_INSIDE_H
#define WEFT_RUN_PREDICT_FIND_INSIDE_H

#include "run/predict/options_inside.h"

/* The calls with training apart, and with that fused; both once more, of plans
 * whose last samples move. Not all may be there. */
enum { WEFT_MOVED = 2, WEFT_PROBLEMS = 4 };
struct weft_find_problems {
    struct weft_search_problem p[WEFT_PROBLEMS];
    bool has[WEFT_PROBLEMS];
};

/* Makes them of the layouts that were priced; counts these in out. Errors: fused
 * training is asked for and there is none; WEFT_ENOMEM. */
int weft_find_make_problems(struct weft_finding *f,
                            struct weft_find_problems *all,
                            struct weft_found *out, struct weft_err *err);
/* Searches them: the best choice, bounds and finalists, into out. */
int weft_find_search(const struct weft_finding *f,
                     const struct weft_find_problems *all,
                     struct weft_found *out, struct weft_err *err);

#endif
