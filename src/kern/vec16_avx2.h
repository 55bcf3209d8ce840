/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of vec16.h in two AVX2 registers. */
#ifndef WEFT_KERN_VEC16_AVX2_H
#define WEFT_KERN_VEC16_AVX2_H

#include <immintrin.h>
typedef struct {
    __m256 lo, hi;
} weft_v16;
#define v_low(a) ((a).lo)
#define v_high(a) ((a).hi)
#define V16_OP(name, op)                                                     \
    WEFT_INLINE weft_v16 name(weft_v16 a, weft_v16 b)                        \
    {                                                                        \
        return (weft_v16){op(a.lo, b.lo), op(a.hi, b.hi)};                   \
    }
V16_OP(v_add, _mm256_add_ps)
V16_OP(v_sub, _mm256_sub_ps)
V16_OP(v_mul, _mm256_mul_ps)
V16_OP(v_div, _mm256_div_ps)
V16_OP(v_max, _mm256_max_ps)
WEFT_INLINE weft_v16 v_set1(float x)
{
    return (weft_v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
WEFT_INLINE weft_v16 v_load(const float *p)
{
    return (weft_v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
WEFT_INLINE void v_store(float *p, weft_v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
WEFT_INLINE weft_v16 v_fma(weft_v16 a, weft_v16 b, weft_v16 c)
{
    return (weft_v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo),
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
    return (weft_v16){v_bf16_half(p), v_bf16_half(p + 8)};
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
    return (weft_v16){v_exp_half(x.lo), v_exp_half(x.hi)};
}

#endif
