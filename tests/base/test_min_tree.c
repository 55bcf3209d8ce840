/* SPDX-License-Identifier: Apache-2.0 */
/* The least of numbers, and the first up to a bound, beside a loop over all. */
#include <math.h>

#include "harness.h"

#include "base/min_tree.h"

enum { MOST = 33, CHANGES = 300 };

static void check(const struct weft_min_tree *l, int32_t n, const double *x)
{
    double least = INFINITY;
    for (int32_t i = 0; i < n; i++)
        least = fmin(least, x[i]);
    CHECK(weft_min_tree_least(l) == least);
    for (int more = 0; more < 3 && least < INFINITY; more++) {
        int32_t first = 0;
        while (x[first] > least + more)
            first++;
        CHECK_INT(weft_min_tree_first(l, least + more), first);
    }
}

/* Numbers of which many are alike, some infinite. */
static void test_changes(void)
{
    for (int32_t n = 1; n <= MOST; n++) {
        struct weft_min_tree l;
        double x[MOST];
        uint32_t state = (uint32_t) n;
        REQUIRE(weft_min_tree_init(&l, (size_t) n) == 0);
        for (int32_t i = 0; i < n; i++)
            x[i] = INFINITY;
        check(&l, n, x);
        for (int k = 0; k < CHANGES; k++) {
            state = state * 1664525 + 1013904223;
            int32_t i = (int32_t) ((state >> 8) % (uint32_t) n);
            x[i] = (state >> 28) < 3 ? INFINITY : (double) (state >> 28);
            weft_min_tree_set(&l, i, x[i]);
            check(&l, n, x);
        }
        weft_min_tree_release(&l);
    }
}

WEFT_TESTS("base/min_tree", {"test_changes", test_changes})
