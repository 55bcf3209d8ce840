/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles and streams for AVX-512 with the dot product of bf16 pairs. */
#include "kern/simd_avx512.h"

#define DOT_BF16(acc, s, w)                                                  \
    _mm512_dpbf16_ps(acc, (__m512bh) (s), (__m512bh) (w))
#include "kern/tile_impl.h"

#include "kern/stream_impl.h"

const struct weft_k_ops weft_k_ops_avx512_bf16 = {
    .isa = WEFT_ISA_AVX512_BF16,
    .tile_rows = MAX_ROWS,
    .tile = {tile_f32, tile_bf16},
    .tile_packed = {tile_packed_f32, tile_packed_bf16},
    STREAM_OPS,
};
