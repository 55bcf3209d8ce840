/* SPDX-License-Identifier: Apache-2.0 */
/* 8 x 8 transpose of 4-byte elements, with AVX where files are compiled for
 * it. */
#ifndef WEFT_KERN_TRANSPOSE_H
#define WEFT_KERN_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#ifdef __AVX__
#include <immintrin.h>
#endif

/* to[j * ldt + i] = from[i * ldf + j], i and j < 8 */
WEFT_INLINE void transpose8(const void *from, int64_t ldf, void *to,
                            int64_t ldt)
{
#ifdef __AVX__
    __m256 r[8], t[8];
    /* First rows i and i + 4 share a register; then the two unpackings
     * interleave pairs of rows, and the shuffles groups of four. */
    for (int i = 0; i < 4; i++) {
        const float *low = (const float *) from + i * ldf;
        const float *high = low + 4 * ldf;
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
        _mm256_storeu_ps((float *) to + i * ldt, r[i]);
#else
    for (int64_t i = 0; i < 8; i++)
        for (int64_t j = 0; j < 8; j++)
            memcpy((char *) to + (j * ldt + i) * 4,
                   (const char *) from + (i * ldf + j) * 4, 4);
#endif
}

#endif
