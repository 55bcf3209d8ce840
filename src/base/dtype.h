/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats, and exact conversions between them. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H

#include <string.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum weft_dtype { WEFT_F32, WEFT_BF16, WEFT_F16 };

WEFT_INLINE size_t weft_dtype_bytes(enum weft_dtype d)
{
    return d == WEFT_F32 ? 4 : 2;
}

const char *weft_dtype_name(enum weft_dtype d); /* "f32", "bf16", "f16" */

WEFT_INLINE float weft_bf16_to_f32(uint16_t b)
{
    uint32_t u = (uint32_t) b << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Round to nearest even; NaN stays NaN. */
WEFT_INLINE uint16_t weft_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t) ((u >> 16) | 0x40u);
    return (uint16_t) ((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float weft_f16_to_f32(uint16_t h);
uint16_t weft_f32_to_f16(float f); /* round to nearest even */

/* Converts n numbers between formats (through f32). */
void weft_convert(void *dst, enum weft_dtype dst_type, const void *src,
                  enum weft_dtype src_type, size_t n);

#ifdef __cplusplus
}
#endif
#endif
