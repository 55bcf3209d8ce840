/* SPDX-License-Identifier: Apache-2.0 */
/* The order of micro-batches in a pipeline, and how samples make them. */
#include "plan/layout.h"

void weft_plan_1f1b(int32_t pp, int32_t stage, int32_t n,
                    struct weft_unit *out)
{
    int32_t ahead = (int32_t) weft_min64(pp - 1 - stage, n);
    int32_t forward = 0, backward = 0;
    while (forward < ahead)
        *out++ = (struct weft_unit){forward++, false};
    while (backward < n) {
        if (forward < n)
            *out++ = (struct weft_unit){forward++, false};
        *out++ = (struct weft_unit){backward++, true};
    }
}

/* Fills runs from the left up to `bound` (>= every cost), but leaves an item
 * for each run to come; the last run takes all that is left, whatever its
 * sum. Returns the largest sum. */
static double fill(int32_t n, const double *cost, int32_t runs, double bound,
                   int32_t *first_out)
{
    double largest = 0;
    int32_t i = 0;
    for (int32_t r = 0; r < runs; r++) {
        int32_t end = n - (runs - 1 - r);
        double sum = 0;
        first_out[r] = i;
        for (; i < end; i++) {
            if (r < runs - 1 && sum + cost[i] > bound)
                break;
            sum += cost[i];
        }
        largest = sum > largest ? sum : largest;
    }
    first_out[runs] = n;
    return largest;
}

int32_t weft_plan_split_cost(int32_t n, const double *cost, int32_t parts,
                             int32_t *first_out)
{
    int32_t runs = (int32_t) weft_min64(parts, n);
    double low = 0, high = 0;
    first_out[0] = 0;
    if (runs <= 0)
        return 0;
    for (int32_t i = 0; i < n; i++) {
        low = cost[i] > low ? cost[i] : low;
        high += cost[i];
    }
    /* Bisection: `high` is reached by some cut, below `low` there is none. */
    high = fill(n, cost, runs, high, first_out);
    while (low < high) {
        double middle = low + (high - low) / 2;
        if (middle >= high) /* neighbours, and it was rounded up */
            middle = low;
        double reached = fill(n, cost, runs, middle, first_out);
        if (reached <= middle)
            high = reached;
        else if (middle > low)
            low = middle;
        else
            break;
    }
    fill(n, cost, runs, high, first_out);
    return runs;
}
