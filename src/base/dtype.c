/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

const char *weft_dtype_name(enum weft_dtype d)
{
    static const char *const names[] = {"f32", "bf16", "f16"};
    return names[d];
}

static float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

float weft_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t) (h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1f) /* infinity, NaN */
        return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) { /* zero, subnormal: mantissa * 2^-24 */
        float f = (float) mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t weft_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t) ((u >> 16) & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return sign | 0x7e00u;
    if (u >= 0x477ff000u) /* rounds to 65536 or more */
        return sign | 0x7c00u;
    if (u < 0x38800000u) { /* below 2^-14: let the adder round to 2^-24 */
        float a = float_of_bits(u) + 0.5f;
        memcpy(&u, &a, 4);
        return sign | (uint16_t) (u - 0x3f000000u);
    }
    u += 0xfffu + ((u >> 13) & 1u);
    return sign | (uint16_t) ((u - 0x38000000u) >> 13);
}

static float get(const void *p, enum weft_dtype t, size_t i)
{
    switch (t) {
    case WEFT_BF16:
        return weft_bf16_to_f32(((const uint16_t *) p)[i]);
    case WEFT_F16:
        return weft_f16_to_f32(((const uint16_t *) p)[i]);
    default:
        return ((const float *) p)[i];
    }
}

void weft_convert(void *dst, enum weft_dtype dst_type, const void *src,
                  enum weft_dtype src_type, size_t n)
{
    if (dst_type == src_type) {
        memcpy(dst, src, n * weft_dtype_bytes(dst_type));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float f = get(src, src_type, i);
        if (dst_type == WEFT_BF16)
            ((uint16_t *) dst)[i] = weft_f32_to_bf16(f);
        else if (dst_type == WEFT_F16)
            ((uint16_t *) dst)[i] = weft_f32_to_f16(f);
        else
            ((float *) dst)[i] = f;
    }
}
