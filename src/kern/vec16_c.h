/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of vec16.h in an array, in plain C. */
#ifndef WEFT_KERN_VEC16_C_H
#define WEFT_KERN_VEC16_C_H

typedef struct {
    float f[WEFT_LANES];
} weft_v16;
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
