/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of sixteen f32, for files that are compiled once per instruction
 * set: one AVX-512 register, two AVX2 registers, or an array. Every set does
 * the same arithmetic on element i, and adds elements by the same binary tree
 * (8 pairs, then 4, 2, 1). Results differ only between sets with and without
 * fused multiply-adds.
 */
#ifndef WEFT_KERN_VEC16_H
#define WEFT_KERN_VEC16_H

#include "base/dtype.h"
#include "kern/vec.h"

enum { WEFT_LANES = 16 };

#if defined(__AVX512F__)
#include "kern/vec16_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "kern/vec16_avx2.h"
#else
#include "kern/vec16_c.h"
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

/* Sum and maximum of the elements, by a binary tree: 8 pairs, then 4, 2, 1. */
#ifdef __AVX2__
WEFT_INLINE float v_sum(weft_v16 v)
{
    __m256 a = _mm256_add_ps(v_low(v), v_high(v));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a),
                          _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
WEFT_INLINE float v_max_of(weft_v16 v)
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
WEFT_INLINE float v_max_of(weft_v16 a)
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
