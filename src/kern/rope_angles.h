/* SPDX-License-Identifier: Apache-2.0 */
/* Angles of rotary embeddings, computed in double by the code below, so that
 * they do not depend on a mathematics library: the same on CPUs and GPUs. */
#ifndef WEFT_KERN_ROPE_ANGLES_H
#define WEFT_KERN_ROPE_ANGLES_H

#include <math.h>

#include "base/compiler.h"

/* Taylor series of sine and cosine on |r| <= pi / 4; error below 1e-13. */
WEFT_INLINE double weft_rope_sine(double r)
{
    double x = r * r, s = 1.0 / 6227020800.0;
    s = s * x + -1.0 / 39916800;
    s = s * x + 1.0 / 362880;
    s = s * x + -1.0 / 5040;
    s = s * x + 1.0 / 120;
    s = s * x + -1.0 / 6;
    s = s * x + 1;
    return s * r;
}

WEFT_INLINE double weft_rope_cosine(double r)
{
    double x = r * r, s = -1.0 / 87178291200.0;
    s = s * x + 1.0 / 479001600;
    s = s * x + -1.0 / 3628800;
    s = s * x + 1.0 / 40320;
    s = s * x + -1.0 / 720;
    s = s * x + 1.0 / 24;
    s = s * x + -1.0 / 2;
    s = s * x + 1;
    return s;
}

/* The largest integer that is not above x, |x| < 2^51; in a form of which
 * compilers make vectors. */
WEFT_INLINE double weft_rope_floor(double x)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    double n = (x + magic) - magic;
    return n > x ? n - 1 : n;
}

/* The cosine and sine of position * frequency. pi / 2 is its first 33 bits and
 * the rest (fdlibm): the reduction is exact for up to 2^20 turns. */
WEFT_INLINE void weft_rope_angle(float frequency, int64_t position,
                                 float *cos_out, float *sin_out)
{
    const double high = 1.57079632673412561417e+00;
    const double low = 6.07710050650619224932e-11;
    double angle = (double) position * (double) frequency;
    double n = weft_rope_floor(angle / (high + low) + 0.5);
    double r = angle - n * high - n * low;
    double s = weft_rope_sine(r), c = weft_rope_cosine(r);
    double quarter = n - 4 * weft_rope_floor(n / 4); /* 0, 1, 2 or 3 */
    double odd = quarter - 2 * weft_rope_floor(quarter / 2);
    double sin = odd > 0 ? c : s, cos = odd > 0 ? s : c;
    *cos_out = (float) (quarter * (3 - quarter) > 0 ? -cos : cos);
    *sin_out = (float) (quarter > 1.5 ? -sin : sin);
}

/* Rotates a pair. */
WEFT_INLINE void weft_rope_rotate(float cos, float sin, float *a, float *b)
{
    float x = *a, y = *b;
    *a = x * cos - y * sin;
    *b = y * cos + x * sin;
}

#endif
