/* SPDX-License-Identifier: Apache-2.0 */
#include "record/told.h"

#include <string.h>

#include "graphs/algorithms.h"

static const struct weft_told *told_of(int a)
{
    const struct weft_config c = {.algorithm = weft_algorithms[a]};
    return weft_algorithm_of(&c)->told;
}

static const struct weft_curve *list_of(int a, bool times)
{
    return times ? told_of(a)->times : told_of(a)->curves;
}

static const struct weft_curve *list_at(int i, bool times)
{
    for (int a = 0; weft_algorithms[a]; a++) {
        const struct weft_curve *list = list_of(a, times);
        int before = 0;
        while (before < a && list_of(before, times) != list)
            before++;
        if (list && before == a && i-- == 0)
            return list;
    }
    return NULL;
}

const struct weft_curve *weft_told_curves(int i)
{
    return list_at(i, false);
}

const struct weft_curve *weft_told_times(int i)
{
    return list_at(i, true);
}

/* Whether an algorithm before, or this one's list before w, has the tag. */
static bool had(int a, const struct weft_watched *w)
{
    for (int b = 0; b <= a; b++)
        for (const struct weft_watched *o = told_of(b)->watched;
             o->tag && (b < a || o != w); o++)
            if (strcmp(o->tag, w->tag) == 0)
                return true;
    return false;
}

const struct weft_watched *weft_told_watched(int i)
{
    for (int a = 0; weft_algorithms[a]; a++)
        for (const struct weft_watched *w = told_of(a)->watched; w->tag; w++)
            if (!had(a, w) && i-- == 0)
                return w;
    return NULL;
}

const struct weft_watched *weft_told_headline(
    const struct weft_config *config)
{
    return weft_algorithm_of(config)->told->watched;
}
