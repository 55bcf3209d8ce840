/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp and log of our own, in f32: the same bits on every machine with the
 * same instruction set, whether a compiler makes vectors of them or not.
 * Plain expressions without calls or branches, so loops over them vectorise;
 * fused multiply-adds only where the file is compiled for them.
 */
#ifndef WEFT_KERN_VEC_H
#define WEFT_KERN_VEC_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

/* a * b + c; fused where the instruction set is. */
WEFT_INLINE float weft_fmaf(float a, float b, float c)
{
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#elif defined(WEFT_KERN_CUDA_LANG_H)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

WEFT_INLINE uint32_t weft_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

WEFT_INLINE float weft_f32_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* 1.5 * 2^23: adding it rounds to an integer, found in the low bits. */
#define WEFT_EXP_MAGIC 12582912.0f
#define WEFT_EXP_MIN -87.0f /* below: 0 (never a subnormal) */
#define WEFT_EXP_MAX 88.37f /* above: infinity */
#define WEFT_EXP_LOG2E 1.44269504f
#define WEFT_EXP_LN2_HI 0.693359375f
#define WEFT_EXP_LN2_LO -2.12194440e-4f
/* Minimax of (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2 (Cephes, expf). */
#define WEFT_EXP_C2 5.0000001201e-1f
#define WEFT_EXP_C3 1.6666665459e-1f
#define WEFT_EXP_C4 4.1665795894e-2f
#define WEFT_EXP_C5 8.3334519073e-3f
#define WEFT_EXP_C6 1.3981999507e-3f
#define WEFT_EXP_C7 1.9875691500e-4f

/* Fused, or rounded twice. */
WEFT_INLINE float weft_exp_step(bool fused, float a, float b, float c)
{
    return fused ? weft_fmaf(a, b, c) : a * b + c;
}

WEFT_INLINE float weft_exp_of(bool fused, float x)
{
    float shifted = weft_exp_step(fused, x, WEFT_EXP_LOG2E, WEFT_EXP_MAGIC);
    float n = shifted - WEFT_EXP_MAGIC;
    float r = weft_exp_step(fused, n, -WEFT_EXP_LN2_HI, x);
    r = weft_exp_step(fused, n, -WEFT_EXP_LN2_LO, r);
    float p = WEFT_EXP_C7;
    p = weft_exp_step(fused, p, r, WEFT_EXP_C6);
    p = weft_exp_step(fused, p, r, WEFT_EXP_C5);
    p = weft_exp_step(fused, p, r, WEFT_EXP_C4);
    p = weft_exp_step(fused, p, r, WEFT_EXP_C3);
    p = weft_exp_step(fused, p, r, WEFT_EXP_C2);
    p = weft_exp_step(fused, p, r * r, r) + 1.0f;
    p *= weft_f32_of((weft_f32_bits(shifted) << 23) + 0x3f800000u);
    /* Bits instead of branches: compilers give up on the latter. */
    uint32_t u = weft_f32_bits(p);
    u &= (uint32_t) (x < WEFT_EXP_MIN) - 1u;
    uint32_t over = 0u - (uint32_t) (x > WEFT_EXP_MAX);
    return weft_f32_of((u & ~over) | (over & 0x7f800000u));
}

/* e^x within 2 ulp; 0 below -87, infinity above 88.37, NaN of NaN. */
WEFT_INLINE float weft_expf(float x)
{
    return weft_exp_of(true, x);
}

/* The same with the bits that plain C has, whatever the instruction set. */
WEFT_INLINE float weft_expf_unfused(float x)
{
    return weft_exp_of(false, x);
}

/* log x within 2 ulp; -infinity of 0 (and of subnormal numbers), NaN of
 * negative numbers. Coefficients: Cephes, logf. */
WEFT_INLINE float weft_logf(float x)
{
    uint32_t u = weft_f32_bits(x);
    /* x = m 2^e with m in [sqrt(1/2), sqrt(2)) */
    uint32_t shifted = u - 0x3f3504f3u;
    float e = (float) ((int32_t) shifted >> 23);
    float m = weft_f32_of((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float p = 7.0376836292e-2f;
    p = weft_fmaf(p, m, -1.1514610310e-1f);
    p = weft_fmaf(p, m, 1.1676998740e-1f);
    p = weft_fmaf(p, m, -1.2420140846e-1f);
    p = weft_fmaf(p, m, 1.4249322787e-1f);
    p = weft_fmaf(p, m, -1.6668057665e-1f);
    p = weft_fmaf(p, m, 2.0000714765e-1f);
    p = weft_fmaf(p, m, -2.4999993993e-1f);
    p = weft_fmaf(p, m, 3.3333331174e-1f);
    float m2 = m * m;
    float y = weft_fmaf(e, -2.12194440e-4f, p * m * m2);
    y = weft_fmaf(m2, -0.5f, y) + m;
    y = weft_fmaf(e, 0.693359375f, y);
    y = x < 1.17549435e-38f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x <= 3.40282347e38f ? y : x + x; /* infinity, NaN */
}

#endif
