/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying numbers into the order that products read: bf16 pairs, steps of
 * columns, transposes. Included by stream_impl.h. The first bf16 of a pair is
 * the low half of 4 bytes, as on little-endian machines.
 */
#include <string.h>

#include "kern/ops.h"
#include "kern/transpose.h"

enum { LANES_16 = 16 };

WEFT_INLINE uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

WEFT_INLINE uint32_t bf16_bits(float f)
{
    uint32_t u = bits_of(f);
    uint32_t nan = (u >> 16) | 0x40u;
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}

static void stream_to_bf16(const float *restrict src, size_t n,
                           uint16_t *restrict dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint16_t) bf16_bits(src[i]);
}

/* n columns of one step; x1 NULL: the pair has no second token. */
WEFT_INLINE void pack_f32(const char *x, int64_t n, char *dst)
{
    memcpy(dst, x, (size_t) n * sizeof(float));
}

WEFT_INLINE void pack_bf16(const char *x0, const char *x1, int64_t n,
                           char *dst)
{
    uint32_t step[WEFT_PANEL];
    uint16_t low[WEFT_PANEL], high[WEFT_PANEL] = {0};
    memcpy(low, x0, (size_t) n * sizeof low[0]);
    if (x1)
        memcpy(high, x1, (size_t) n * sizeof high[0]);
    for (int64_t j = 0; j < n; j++)
        step[j] = low[j] | (uint32_t) high[j] << 16;
    memcpy(dst, step, (size_t) n * sizeof step[0]);
}

/* Packs `copy` columns of every step; callers give a constant, so that the
 * compiler unrolls. */
WEFT_INLINE void pack_columns(enum weft_dtype dtype, int64_t steps,
                              const int32_t *row0, const int32_t *row1,
                              const char *x, int64_t ldx, const int64_t copy,
                              int64_t width, char *dst)
{
    for (int64_t s = 0; s < steps; s++, dst += width * WEFT_STEP_BYTES) {
        if (dtype == WEFT_F32)
            pack_f32(x + row0[s] * ldx * 4, copy, dst);
        else if (row1[s] >= 0)
            pack_bf16(x + row0[s] * ldx * 2, x + row1[s] * ldx * 2, copy,
                      dst);
        else
            pack_bf16(x + row0[s] * ldx * 2, NULL, copy, dst);
    }
}

static void stream_pack_steps(enum weft_dtype dtype, int64_t steps,
                              const int32_t *row0, const int32_t *row1,
                              const void *x, int64_t ldx, int64_t n,
                              int64_t width, void *dst)
{
    if (n >= WEFT_PANEL && width == WEFT_PANEL) {
        pack_columns(dtype, steps, row0, row1, x, ldx, WEFT_PANEL, width,
                     dst);
    } else if (n >= LANES_16 && width <= LANES_16) {
        /* A whole vector is written per step, past the end of the step. The
         * steps after it overwrite that, so only the last ones must stop
         * short. */
        int64_t exact = weft_ceil_div(LANES_16, width) - 1;
        int64_t over = weft_max64(steps - exact, 0);
        pack_columns(dtype, over, row0, row1, x, ldx, LANES_16, width, dst);
        pack_columns(dtype, steps - over, row0 + over, row1 + over, x, ldx,
                     width, width,
                     (char *) dst + over * width * WEFT_STEP_BYTES);
    } else {
        memset(dst, 0, (size_t) (steps * width) * WEFT_STEP_BYTES);
        pack_columns(dtype, steps, row0, row1, x, ldx, weft_min64(n, width),
                     width, dst);
    }
}

static void stream_pair_bf16(const float *restrict src, int64_t k,
                             uint16_t *restrict dst)
{
    for (int64_t i = 0; i < k; i += 2) {
        const float *even = src + i * WEFT_PANEL, *odd = even + WEFT_PANEL;
        uint32_t pair[WEFT_PANEL];
        for (int j = 0; j < WEFT_PANEL; j++)
            pair[j] = bf16_bits(even[j]) | bf16_bits(odd[j]) << 16;
        memcpy(dst + i * WEFT_PANEL, pair, sizeof pair);
    }
}

/* (rows, 32) to (32, rows) */
WEFT_INLINE void transpose_words(const void *src, int rows, uint32_t *to)
{
    const uint32_t *from = src;
    for (int i = 0; i < rows; i += 8)
        for (int j = 0; j < WEFT_PANEL; j += 8)
            transpose8(from + i * WEFT_PANEL + j, WEFT_PANEL,
                       to + j * rows + i, rows);
}

static void stream_transpose(enum weft_dtype dtype, const void *src,
                             void *dst)
{
    uint32_t *to = dst;
    if (dtype == WEFT_F32) {
        transpose_words(src, WEFT_PANEL, to);
        return;
    }
    /* Words are pairs of what becomes the second index: rows of one index,
     * and two of these rows make a row of pairs. */
    enum { N_PAIRS = WEFT_PANEL / 2 };
    uint32_t rows[WEFT_PANEL * N_PAIRS];
    transpose_words(src, N_PAIRS, rows);
    for (int i = 0; i < WEFT_PANEL; i += 2, to += WEFT_PANEL) {
        uint16_t even[WEFT_PANEL], odd[WEFT_PANEL];
        uint32_t pair[WEFT_PANEL];
        memcpy(even, rows + i * N_PAIRS, sizeof even);
        memcpy(odd, rows + (i + 1) * N_PAIRS, sizeof odd);
        for (int j = 0; j < WEFT_PANEL; j++)
            pair[j] = even[j] | (uint32_t) odd[j] << 16;
        memcpy(to, pair, sizeof pair);
    }
}
