/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles and streams for AVX-512 without bf16 products. */
#include "kern/simd_avx512.h"

#define ODD(v)                                                               \
    _mm512_castsi512_ps(_mm512_and_si512(                                    \
        _mm512_castps_si512(v), _mm512_set1_epi32((int) 0xffff0000u)))
#define EVEN(v)                                                              \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16))
#define DOT_BF16(acc, s, w)                                                  \
    _mm512_fmadd_ps(EVEN(s), EVEN(w), _mm512_fmadd_ps(ODD(s), ODD(w), acc))
#define BF16_BY_FMA
#include "kern/tile_impl.h"

#include "kern/stream_impl.h"

const struct weft_k_ops weft_k_ops_avx512 = {
    .isa = WEFT_ISA_AVX512,
    .tile_rows = MAX_ROWS,
    .tile = {tile_f32, tile_bf16},
    .tile_packed = {tile_packed_f32, tile_packed_bf16},
    STREAM_OPS,
};
