/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of ops.h with vectors of one instruction set. The including file
 * defines VEC (a type of LANES floats), LANES, MAX_ROWS, ZERO, LOAD, STORE,
 * SPLAT (copies step_of(p) to every element), PREFETCH, and DOT_F32 and
 * DOT_BF16 (return acc + step).
 *
 * The instruction for pairs of bf16 treats inputs below 2^-126 as zero and
 * replaces such results by zero, whatever mode the processor is in. An
 * instruction set without it defines BF16_BY_FMA; the processor is then set to
 * a mode in which multiply-adds do the same, so that the bits are the same.
 *
 * Accumulators are named variables and not arrays, as compilers then keep them
 * in registers. A pass computes 2 * LANES columns of all rows.
 */
#include <string.h>

#include "kern/ops.h"

/* The 4 bytes at p; rows of bf16 may begin at any even address. */
WEFT_INLINE int32_t step_of(const char *p)
{
    int32_t step;
    memcpy(&step, p, sizeof step);
    return step;
}

/* clang-format off */
#define EACH_ROW(op)                                                         \
    op(0, x0, 0) op(1, x0, 1) op(2, x0, 2) op(3, x3, 0) op(4, x3, 1)         \
    op(5, x3, 2) op(6, x6, 0) op(7, x6, 1) op(8, x6, 2) op(9, x9, 0)         \
    op(10, x9, 1) op(11, x9, 2)
/* clang-format on */

#define ROW_BEGIN(i, base, off)                                              \
    VEC a##i = ZERO, b##i = ZERO;                                            \
    if (rows > i && cont) {                                                  \
        a##i = LOAD(c + i * ldc);                                            \
        b##i = LOAD(c + i * ldc + LANES);                                    \
    }
#define ROW_STEP(dot, i, base, off)                                          \
    if (rows > i) {                                                          \
        VEC s = SPLAT(base + off * ldx);                                     \
        a##i = dot(a##i, s, w0);                                             \
        b##i = dot(b##i, s, w1);                                             \
    }
#define ROW_F32(i, base, off) ROW_STEP(DOT_F32, i, base, off)
#define ROW_BF16(i, base, off) ROW_STEP(DOT_BF16, i, base, off)
#define ROW_END(i, base, off)                                                \
    if (rows > i) {                                                          \
        STORE(c + i * ldc, a##i);                                            \
        STORE(c + i * ldc + LANES, b##i);                                    \
    }

#define PASS(name, row)                                                      \
    WEFT_INLINE void name(const int rows, int64_t steps, const char *x,      \
                          int64_t ldx, const int64_t stride, const char *w,  \
                          float *c, int64_t ldc, bool cont,                  \
                          struct weft_k_next next)                           \
    {                                                                        \
        const char *x0 = x, *x3 = x + 3 * ldx, *x6 = x + 6 * ldx;            \
        const char *x9 = x + 9 * ldx;                                        \
        EACH_ROW(ROW_BEGIN)                                                  \
        for (int64_t s_ = 0; s_ < steps; s_++) {                             \
            PREFETCH(next.at);                                               \
            PREFETCH(next.at + 64);                                          \
            VEC w0 = LOAD((const float *) w);                                \
            VEC w1 = LOAD((const float *) w + LANES);                        \
            EACH_ROW(row)                                                    \
            x0 += stride;                                                    \
            x3 += stride;                                                    \
            x6 += stride;                                                    \
            x9 += stride;                                                    \
            w += WEFT_PANEL_BYTES;                                           \
            next.at += next.step;                                            \
        }                                                                    \
        EACH_ROW(ROW_END)                                                    \
    }
PASS(pass_f32, ROW_F32)
PASS(pass_bf16, ROW_BF16)

#define CASE(pass, n)                                                        \
    case n:                                                                  \
        pass(n, steps, x, ldx, stride, w, c, ldc, cont, next);               \
        break;
/* clang-format off */
#if MAX_ROWS == 12
#define CASES(pass)                                                          \
    CASE(pass, 1) CASE(pass, 2) CASE(pass, 3) CASE(pass, 4) CASE(pass, 5)    \
    CASE(pass, 6) CASE(pass, 7) CASE(pass, 8) CASE(pass, 9) CASE(pass, 10)   \
    CASE(pass, 11) CASE(pass, 12)
#else
#define CASES(pass)                                                          \
    CASE(pass, 1) CASE(pass, 2) CASE(pass, 3) CASE(pass, 4) CASE(pass, 5)    \
    CASE(pass, 6)
#endif
/* clang-format on */

enum { PACKED_STRIDE = WEFT_STEP_BYTES * MAX_ROWS };

#define TILE(name, pass, ldx_bytes, stride_bytes)                            \
    WEFT_NOINLINE static void name(int rows, int64_t steps, const void *x_,  \
                                   int64_t ldx_, const void *w_, float *c,   \
                                   int64_t ldc, bool cont,                   \
                                   struct weft_k_next next)                  \
    {                                                                        \
        const int64_t ldx = ldx_bytes, stride = stride_bytes;                \
        const char *x = x_, *w = w_;                                         \
        (void) ldx_;                                                         \
        for (int j = 0; j < WEFT_PANEL; j += 2 * LANES) {                    \
            switch (rows) {                                                  \
                CASES(pass)                                                  \
            }                                                                \
            w += 2 * LANES * sizeof(float);                                  \
            c += 2 * LANES;                                                  \
        }                                                                    \
    }
TILE(tile_f32, pass_f32, ldx_, WEFT_STEP_BYTES)
TILE(tile_packed_f32, pass_f32, WEFT_STEP_BYTES, PACKED_STRIDE)

#ifndef BF16_BY_FMA
TILE(tile_bf16, pass_bf16, ldx_, WEFT_STEP_BYTES)
TILE(tile_packed_bf16, pass_bf16, WEFT_STEP_BYTES, PACKED_STRIDE)
#else
TILE(rows_bf16, pass_bf16, ldx_, WEFT_STEP_BYTES)
TILE(rows_packed_bf16, pass_bf16, WEFT_STEP_BYTES, PACKED_STRIDE)

/* rows_of is never inlined, so that the compiler cannot move its arithmetic
 * out of the part between the two changes of the mode. */
#define FLUSHED(name, rows_of)                                               \
    static void name(int rows, int64_t steps, const void *x, int64_t ldx,    \
                     const void *w, float *c, int64_t ldc, bool cont,        \
                     struct weft_k_next next)                                \
    {                                                                        \
        enum { DENORMALS_ARE_ZERO = 0x40, FLUSH_TO_ZERO = 0x8000 };          \
        const unsigned mode = _mm_getcsr();                                  \
        _mm_setcsr(mode | DENORMALS_ARE_ZERO | FLUSH_TO_ZERO);               \
        rows_of(rows, steps, x, ldx, w, c, ldc, cont, next);                 \
        _mm_setcsr(mode);                                                    \
    }
FLUSHED(tile_bf16, rows_bf16)
FLUSHED(tile_packed_bf16, rows_packed_bf16)
#endif
