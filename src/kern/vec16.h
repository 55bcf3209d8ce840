/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen f32 lanes, for files compiled once per instruction set: one AVX-512
 * register, two AVX2 registers, or an array. Lane i always does the same
 * arithmetic, sums over lanes fold 8, 4, 2, 1: only the presence of fused
 * multiply-adds tells the instruction sets apart.
 */
#ifndef WEFT_KERN_VEC16_H
#define WEFT_KERN_VEC16_H

#include "base/dtype.h"
#include "kern/vec.h"

enum { WEFT_LANES = 16 };

#if defined(__AVX512F__)

#include <immintrin.h>
typedef __m512 weft_v16;
#define v_set1(x) _mm512_set1_ps(x)
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, a) _mm512_storeu_ps(p, a)
#define v_add(a, b) _mm512_add_ps(a, b)
#define v_sub(a, b) _mm512_sub_ps(a, b)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_div(a, b) _mm512_div_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_low(a) _mm512_castps512_ps256(a)
#define v_high(a) _mm512_extractf32x8_ps(a, 1)

/* Lanes from n on are 0; memory behind them is not touched. */
WEFT_INLINE weft_v16 v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16) ((1u << n) - 1u), p);
}
WEFT_INLINE void v_store_n(float *p, weft_v16 a, int64_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16) ((1u << n) - 1u), a);
}
WEFT_INLINE weft_v16 v_load_bf16(const uint16_t *p)
{
    __m512i u = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256((const __m256i *) (const void *) p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}
/* Lanes from n on become x. */
WEFT_INLINE weft_v16 v_keep(weft_v16 a, int64_t n, float x)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(x),
                              (__mmask16) ((1u << n) - 1u), a);
}
WEFT_INLINE weft_v16 v_exp(weft_v16 x)
{
    weft_v16 magic = v_set1(WEFT_EXP_MAGIC);
    weft_v16 shifted = v_fma(x, v_set1(WEFT_EXP_LOG2E), magic);
    weft_v16 n = v_sub(shifted, magic);
    weft_v16 r = v_fma(n, v_set1(-WEFT_EXP_LN2_HI), x);
    r = v_fma(n, v_set1(-WEFT_EXP_LN2_LO), r);
    weft_v16 p = v_set1(WEFT_EXP_C7);
    p = v_fma(p, r, v_set1(WEFT_EXP_C6));
    p = v_fma(p, r, v_set1(WEFT_EXP_C5));
    p = v_fma(p, r, v_set1(WEFT_EXP_C4));
    p = v_fma(p, r, v_set1(WEFT_EXP_C3));
    p = v_fma(p, r, v_set1(WEFT_EXP_C2));
    p = v_add(v_fma(p, v_mul(r, r), r), v_set1(1.0f));
    __m512i scale = _mm512_add_epi32(
        _mm512_slli_epi32(_mm512_castps_si512(shifted), 23),
        _mm512_set1_epi32(0x3f800000));
    p = v_mul(p, _mm512_castsi512_ps(scale));
    p = _mm512_mask_mov_ps(
        p, _mm512_cmp_ps_mask(x, v_set1(WEFT_EXP_MIN), _CMP_LT_OQ),
        _mm512_setzero_ps());
    return _mm512_mask_mov_ps(
        p, _mm512_cmp_ps_mask(x, v_set1(WEFT_EXP_MAX), _CMP_GT_OQ),
        v_set1(INFINITY));
}

#elif defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
typedef struct { __m256 lo, hi; } weft_v16;
#define v_low(a) ((a).lo)
#define v_high(a) ((a).hi)
#define V16_OP(name, op)                                                     \
    WEFT_INLINE weft_v16 name(weft_v16 a, weft_v16 b)                        \
    {                                                                        \
        return (weft_v16) {op(a.lo, b.lo), op(a.hi, b.hi)};                  \
    }
V16_OP(v_add, _mm256_add_ps)
V16_OP(v_sub, _mm256_sub_ps)
V16_OP(v_mul, _mm256_mul_ps)
V16_OP(v_div, _mm256_div_ps)
V16_OP(v_max, _mm256_max_ps)
WEFT_INLINE weft_v16 v_set1(float x)
{
    return (weft_v16) {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
WEFT_INLINE weft_v16 v_load(const float *p)
{
    return (weft_v16) {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
WEFT_INLINE void v_store(float *p, weft_v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
WEFT_INLINE weft_v16 v_fma(weft_v16 a, weft_v16 b, weft_v16 c)
{
    return (weft_v16) {_mm256_fmadd_ps(a.lo, b.lo, c.lo),
                       _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
WEFT_INLINE __m256 v_bf16_half(const uint16_t *p)
{
    __m256i u = _mm256_cvtepu16_epi32(
        _mm_loadu_si128((const __m128i *) (const void *) p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
WEFT_INLINE weft_v16 v_load_bf16(const uint16_t *p)
{
    return (weft_v16) {v_bf16_half(p), v_bf16_half(p + 8)};
}
WEFT_INLINE __m256 v_exp_half(__m256 x)
{
    __m256 magic = _mm256_set1_ps(WEFT_EXP_MAGIC);
    __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(WEFT_EXP_LOG2E),
                                     magic);
    __m256 n = _mm256_sub_ps(shifted, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-WEFT_EXP_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-WEFT_EXP_LN2_LO), r);
    __m256 p = _mm256_set1_ps(WEFT_EXP_C7);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(WEFT_EXP_C6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(WEFT_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(WEFT_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(WEFT_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(WEFT_EXP_C2));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i scale = _mm256_add_epi32(
        _mm256_slli_epi32(_mm256_castps_si256(shifted), 23),
        _mm256_set1_epi32(0x3f800000));
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(scale));
    p = _mm256_andnot_ps(
        _mm256_cmp_ps(x, _mm256_set1_ps(WEFT_EXP_MIN), _CMP_LT_OQ), p);
    return _mm256_blendv_ps(
        p, _mm256_set1_ps(INFINITY),
        _mm256_cmp_ps(x, _mm256_set1_ps(WEFT_EXP_MAX), _CMP_GT_OQ));
}
WEFT_INLINE weft_v16 v_exp(weft_v16 x)
{
    return (weft_v16) {v_exp_half(x.lo), v_exp_half(x.hi)};
}

#else

typedef struct { float f[WEFT_LANES]; } weft_v16;
#define V16_OP(name, expr)                                                   \
    WEFT_INLINE weft_v16 name(weft_v16 a, weft_v16 b)                        \
    {                                                                        \
        weft_v16 r;                                                          \
        for (int i = 0; i < WEFT_LANES; i++)                                 \
            r.f[i] = expr;                                                   \
        return r;                                                            \
    }
V16_OP(v_add, a.f[i] + b.f[i])
V16_OP(v_sub, a.f[i] - b.f[i])
V16_OP(v_mul, a.f[i] * b.f[i])
V16_OP(v_div, a.f[i] / b.f[i])
V16_OP(v_max, a.f[i] > b.f[i] ? a.f[i] : b.f[i])
WEFT_INLINE weft_v16 v_set1(float x)
{
    weft_v16 r;
    for (int i = 0; i < WEFT_LANES; i++)
        r.f[i] = x;
    return r;
}
WEFT_INLINE weft_v16 v_load(const float *p)
{
    weft_v16 r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
WEFT_INLINE void v_store(float *p, weft_v16 a)
{
    memcpy(p, a.f, sizeof a.f);
}
WEFT_INLINE weft_v16 v_fma(weft_v16 a, weft_v16 b, weft_v16 c)
{
    weft_v16 r;
    for (int i = 0; i < WEFT_LANES; i++)
        r.f[i] = weft_fmaf(a.f[i], b.f[i], c.f[i]);
    return r;
}
WEFT_INLINE weft_v16 v_load_bf16(const uint16_t *p)
{
    weft_v16 r;
    for (int i = 0; i < WEFT_LANES; i++)
        r.f[i] = weft_bf16_to_f32(p[i]);
    return r;
}
WEFT_INLINE weft_v16 v_exp(weft_v16 x)
{
    for (int i = 0; i < WEFT_LANES; i++)
        x.f[i] = weft_expf(x.f[i]);
    return x;
}

#endif

#ifndef __AVX512F__
WEFT_INLINE weft_v16 v_load_n(const float *p, int64_t n)
{
    float f[WEFT_LANES] = {0};
    memcpy(f, p, (size_t) n * sizeof f[0]);
    return v_load(f);
}
WEFT_INLINE void v_store_n(float *p, weft_v16 a, int64_t n)
{
    float f[WEFT_LANES];
    v_store(f, a);
    memcpy(p, f, (size_t) n * sizeof f[0]);
}
WEFT_INLINE weft_v16 v_keep(weft_v16 a, int64_t n, float x)
{
    float f[WEFT_LANES];
    v_store(f, a);
    for (int64_t i = n; i < WEFT_LANES; i++)
        f[i] = x;
    return v_load(f);
}
#endif

WEFT_INLINE weft_v16 v_load_bf16_n(const uint16_t *p, int64_t n)
{
    uint16_t h[WEFT_LANES] = {0};
    memcpy(h, p, (size_t) n * sizeof h[0]);
    return v_load_bf16(h);
}

/* Folds: 8, 4, 2, 1. */
#ifdef __AVX2__
WEFT_INLINE float v_sum(weft_v16 v)
{
    __m256 a = _mm256_add_ps(v_low(v), v_high(v));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a),
                          _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
WEFT_INLINE float v_max_lane(weft_v16 v)
{
    __m256 a = _mm256_max_ps(v_low(v), v_high(v));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a),
                          _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
#else
WEFT_INLINE float v_sum(weft_v16 a)
{
    for (int n = WEFT_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] += a.f[i + n];
    return a.f[0];
}
WEFT_INLINE float v_max_lane(weft_v16 a)
{
    for (int n = WEFT_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] = a.f[i] > a.f[i + n] ? a.f[i] : a.f[i + n];
    return a.f[0];
}
#endif

/* Rounds to bf16 as weft_f32_to_bf16() does. */
WEFT_INLINE void v_store_bf16_n(uint16_t *p, weft_v16 a, int64_t n)
{
    float f[WEFT_LANES];
    v_store(f, a);
    for (int64_t i = 0; i < n; i++)
        p[i] = weft_f32_to_bf16(f[i]);
}
WEFT_INLINE void v_store_bf16(uint16_t *p, weft_v16 a)
{
#ifdef __AVX512F__
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16),
                                   _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(
        u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), u,
                             _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *) (void *) p,
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
#else
    v_store_bf16_n(p, a, WEFT_LANES);
#endif
}

#endif
