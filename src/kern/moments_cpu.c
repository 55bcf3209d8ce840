/* SPDX-License-Identifier: Apache-2.0 */
/* Mean and variance of numbers that lie in several tiles. */
#include "kern/kern.h"

#include <math.h>

/* A second pass over a tile subtracts its mean, so that large numbers do not
 * cancel. Tiles are merged as in Chan, Golub and LeVeque 1983, "Algorithms for
 * computing the sample variance", equation 1.5. */
void weft_k_moments_add(struct weft_k_moments *m, int32_t n, const float *x)
{
    double sum = 0, squares = 0;
    if (n == 0)
        return;
    if (m->n == 0)
        *m = (struct weft_k_moments){.min = INFINITY, .max = -INFINITY};
    for (int32_t i = 0; i < n; i++) {
        sum += (double) x[i];
        m->min = fmin(m->min, (double) x[i]);
        m->max = fmax(m->max, (double) x[i]);
    }
    double mean = sum / n, apart = mean - m->mean;
    for (int32_t i = 0; i < n; i++)
        squares += ((double) x[i] - mean) * ((double) x[i] - mean);
    double before = (double) m->n, after = before + n;
    m->mean += apart * n / after;
    m->squares += squares + apart * apart * before * n / after;
    m->n += n;
}

/* The unbiased variance and the epsilon are those of verl and TRL. */
double weft_k_moments_rstd(const struct weft_k_moments *m)
{
    return 1 / sqrt(m->squares / (double) (m->n - 1) + 1e-8);
}
