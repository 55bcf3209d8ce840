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
/* How much memory search number k after the first has, of a device that has
 * `has`. It is that of one order of tasks, of which a run of each finalist can
 * take more: with `high` bytes a plan was found that takes `needed`, with `low`
 * none, 0: that is not known. So much less as it takes too much, but a plan can
 * miss by little: from the second time on at least 4, 8 and 16 % less; and
 * halfway where that is as little as none was found with. */
double weft_find_less_memory(double has, int k, double low, double high,
                             double needed);

#endif
