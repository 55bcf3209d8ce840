/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles and streams for AVX2 with FMA. */
#include <immintrin.h>

#define VEC __m256
#define LANES 8
#define MAX_ROWS 6
#define ZERO _mm256_setzero_ps()
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define STORE_PAST(p, v) _mm256_stream_ps(p, v)
#define SPLAT(p) _mm256_castsi256_ps(_mm256_set1_epi32(step_of(p)))
#define PREFETCH(p) _mm_prefetch(p, _MM_HINT_T0)
#define DOT_F32(acc, s, w) _mm256_fmadd_ps(s, w, acc)
#define DOT_BF16(acc, s, w)                                                  \
    _mm256_fmadd_ps(EVEN(s), EVEN(w), _mm256_fmadd_ps(ODD(s), ODD(w), acc))
#define ODD(v)                                                               \
    _mm256_castsi256_ps(_mm256_and_si256(                                    \
        _mm256_castps_si256(v), _mm256_set1_epi32((int) 0xffff0000u)))
#define EVEN(v)                                                              \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 16))
#define BF16_BY_FMA
#include "kern/tile_impl.h"

#define SQRT16(x)                                                            \
    do {                                                                     \
        STORE((x), _mm256_sqrt_ps(LOAD(x)));                                 \
        STORE((x) + LANES, _mm256_sqrt_ps(LOAD((x) + LANES)));               \
    } while (0)
#include "kern/stream_impl.h"

const struct weft_k_ops weft_k_ops_avx2 = {
    .isa = WEFT_ISA_AVX2,
    .tile_rows = MAX_ROWS,
    .tile = {tile_f32, tile_bf16},
    .tile_packed = {tile_packed_f32, tile_packed_bf16},
    STREAM_OPS,
};
