/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEFT_BENCH_MEDIAN_H
#define WEFT_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int median_order(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Sorts n > 0 numbers, the smallest first, and returns their median. */
static inline double median_sort(double *x, int n)
{
    qsort(x, (size_t) n, sizeof *x, median_order);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

#endif
