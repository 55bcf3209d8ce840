/* SPDX-License-Identifier: Apache-2.0 */
/* Every choice, one after the other. */
#include <math.h>

#include "plan/search/inside.h"

enum { ASK_EVERY = 1 << 12 };

static double n_choices(const struct weft_search *s)
{
    double n = 1;
    for (int32_t c = 0; c < s->p->n_calls; c++)
        n *= s->p->call[c].n_options;
    return n;
}

/* The next choice, the first call's option first; false: that was the last. */
static bool go_on(const struct weft_search *s, int32_t *choice)
{
    for (int32_t c = 0; c < s->p->n_calls; c++) {
        if (++choice[c] < s->p->call[c].n_options)
            return true;
        choice[c] = 0;
    }
    return false;
}

/* One that can neither be the best nor a finalist by its bound is not
 * played. */
static void look(const struct weft_search *s, const int32_t *choice,
                 struct weft_search_result *best)
{
    struct weft_search_value v = weft_search_unplayed(s, choice);
    if (v.bytes <= s->p->device_bytes)
        best->any_order = fmin(best->any_order, v.bound);
    if (!weft_search_counts(s, &v, best)) {
        best->evaluations++;
        return;
    }
    weft_search_set_period(s, choice, &v);
    weft_search_consider(s, choice, &v, best);
}

int weft_search_every(const struct weft_search *s,
                      const struct weft_search_how *how,
                      struct weft_search_result *best, struct weft_err *err)
{
    int32_t choice[WEFT_MAX_CALLS] = {0};
    double n = n_choices(s), bound = INFINITY;
    if (n > WEFT_SEARCH_CHOICES)
        return weft_err_set(
            err, WEFT_EINVAL,
            "an exhaustive search looks at %d choices at "
            "most, and calls have %.4g: search with branches, "
            "or say with 'layout' what calls must have",
            WEFT_SEARCH_CHOICES, n);
    if (best->stopped)
        return 0;
    for (int64_t i = 1; look(s, choice, best), go_on(s, choice); i++)
        if (i % ASK_EVERY == 0 && how->stop && how->stop(how->ctx)) {
            best->stopped = true;
            return 0;
        }
    if (best->value.bytes <= s->p->device_bytes)
        bound = best->value.period;
    if (how->known > 0)
        bound = fmin(bound, how->known);
    if (s->p->left_out_s > 0)
        bound = fmin(bound, s->p->left_out_s);
    best->bound = bound;
    return 0;
}
