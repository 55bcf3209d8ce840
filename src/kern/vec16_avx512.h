/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of vec16.h in an AVX-512 register. */
#ifndef WEFT_KERN_VEC16_AVX512_H
#define WEFT_KERN_VEC16_AVX512_H

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

/* Loads n elements; the others become 0, and their memory is not read. */
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
/* Elements from n on become x. */
WEFT_INLINE weft_v16 v_keep(weft_v16 a, int64_t n, float x)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(x), (__mmask16) ((1u << n) - 1u),
                              a);
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

#endif
