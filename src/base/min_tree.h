/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that change one at a time, of which the least one, and the first one
 * up to a bound, are found in steps that grow with the logarithm of how many
 * there are.
 */
#ifndef WEFT_BASE_MIN_TREE_H
#define WEFT_BASE_MIN_TREE_H

#include <stddef.h>
#include <stdint.h>

struct weft_min_tree {
    size_t n;    /* a power of 2 */
    double *min; /* (2 n) a binary tree: [1] is of all, [n + i] number i */
};

/* n numbers, all INFINITY. Returns 0 or WEFT_ENOMEM. */
int weft_min_tree_init(struct weft_min_tree *l, size_t n);
void weft_min_tree_release(struct weft_min_tree *l);
void weft_min_tree_set(struct weft_min_tree *l, int32_t i, double x);
/* The least of all. */
double weft_min_tree_least(const struct weft_min_tree *l);
/* The lowest index of a number that is at most `bound`, which the least is. */
int32_t weft_min_tree_first(const struct weft_min_tree *l, double bound);

#endif
