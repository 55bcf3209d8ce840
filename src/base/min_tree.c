/* SPDX-License-Identifier: Apache-2.0 */
#include "base/min_tree.h"

#include <math.h>

#include "base/alloc.h"
#include "base/err.h"

int weft_min_tree_init(struct weft_min_tree *l, size_t n)
{
    *l = (struct weft_min_tree){.n = 1};
    while (l->n < n)
        l->n *= 2;
    l->min = weft_alloc(2 * l->n, sizeof *l->min);
    for (size_t i = 0; l->min && i < 2 * l->n; i++)
        l->min[i] = INFINITY;
    return l->min ? 0 : WEFT_ENOMEM;
}

void weft_min_tree_release(struct weft_min_tree *l)
{
    weft_free(l->min);
    *l = (struct weft_min_tree){.n = 0};
}

void weft_min_tree_set(struct weft_min_tree *l, int32_t i, double x)
{
    size_t at = l->n + (size_t) i;
    l->min[at] = x;
    for (; at > 1; at /= 2) {
        double other = l->min[at ^ 1];
        l->min[at / 2] = l->min[at] < other ? l->min[at] : other;
    }
}

double weft_min_tree_least(const struct weft_min_tree *l)
{
    return l->min[1];
}

int32_t weft_min_tree_first(const struct weft_min_tree *l, double bound)
{
    size_t at = 1;
    weft_assert(l->min[1] <= bound);
    while (at < l->n)
        at = 2 * at + (l->min[2 * at] > bound);
    return (int32_t) (at - l->n);
}
