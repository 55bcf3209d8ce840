/* SPDX-License-Identifier: Apache-2.0 */
/* 8 x 8 transpose of 4-byte elements with AVX. */
#ifndef WEFT_KERN_SIMD_TRANSPOSE_H
#define WEFT_KERN_SIMD_TRANSPOSE_H

#include <immintrin.h>

#include "base/compiler.h"

#define TRANSPOSE8 transpose8

/* to[j * ldt + i] = from[i * ldf + j], i and j < 8 */
WEFT_INLINE void transpose8(const uint32_t *from, int64_t ldf, uint32_t *to,
                            int64_t ldt)
{
    __m256 r[8], t[8];
    /* First rows i and i + 4 share a register; then the two unpackings
     * interleave pairs of rows, and the shuffles groups of four. */
    for (int i = 0; i < 4; i++) {
        const void *at = from + i * ldf, *below = from + (i + 4) * ldf;
        const float *low = at, *high = below;
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)),
                                    _mm_loadu_ps(high), 1);
        r[i + 4] = _mm256_insertf128_ps(
            _mm256_castps128_ps256(_mm_loadu_ps(low + 4)),
            _mm_loadu_ps(high + 4), 1);
    }
    for (int i = 0; i < 8; i += 4) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
        t[i + 2] = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        t[i + 3] = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 8; i++)
        _mm256_storeu_ps((float *) (void *) (to + i * ldt), r[i]);
}

#endif
