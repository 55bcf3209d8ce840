/* SPDX-License-Identifier: Apache-2.0 */
/* The macros that tile_impl.h and stream_impl.h need, for AVX-512. */
#ifndef WEFT_KERN_SIMD_AVX512_H
#define WEFT_KERN_SIMD_AVX512_H

#include <immintrin.h>

#define VEC __m512
#define LANES 16
#define MAX_ROWS 12
#define ZERO _mm512_setzero_ps()
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define STORE_PAST(p, v) _mm512_stream_ps(p, v)
#define SPLAT(p) _mm512_castsi512_ps(_mm512_set1_epi32(step_of(p)))
#define PREFETCH(p) _mm_prefetch(p, _MM_HINT_T0)
#define DOT_F32(acc, s, w) _mm512_fmadd_ps(s, w, acc)
#define SQRT16(x) STORE((x), _mm512_sqrt_ps(LOAD(x)))

#endif
