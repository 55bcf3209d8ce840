/* SPDX-License-Identifier: Apache-2.0 */
/* Additions of trees, and gradient norms. */
#include "kern/ops.h"

#include <math.h>

void weft_k_add(float *dst, const float *src, size_t n)
{
    weft_k_ops()->add(dst, src, n);
}

double weft_k_sum_squares(const float *x, size_t n)
{
    return weft_k_ops()->sum_squares(x, n);
}

float weft_k_clip_scale(double norm, float clip)
{
    return clip > 0 ? (float) fmin((double) clip / (norm + 1e-6), 1) : 1;
}
