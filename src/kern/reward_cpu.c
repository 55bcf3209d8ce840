/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to a reward before it becomes a score. */
#include "kern/losses.h"

double weft_k_overlong(int32_t length, int32_t max, int32_t cache)
{
    if (length > max)
        return -1;
    if (length <= max - cache)
        return 0;
    return (double) (max - cache - length) / (double) cache;
}

/* Comparisons, as fmin() and fmax() would take the limit for a NaN. */
double weft_k_reward(const struct weft_k_moments *moments, float low,
                     float high, double r)
{
    double x = r;
    if (moments)
        x -= moments->mean;
    if (moments && moments->n > 1)
        x *= weft_k_moments_rstd(moments);
    if (low >= high)
        return x;
    return x < (double) low  ? (double) low
         : x > (double) high ? (double) high
                             : x;
}
