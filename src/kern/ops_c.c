/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles and streams in plain C, for every machine. */
#include <math.h>

#define SQRT16(x)                                                            \
    do {                                                                     \
        for (int q = 0; q < 16; q++)                                         \
            (x)[q] = sqrtf((x)[q]);                                          \
    } while (0)
#include "kern/stream_impl.h"

enum { C_TILE_ROWS = 4, PACKED_STRIDE = WEFT_STEP_BYTES * C_TILE_ROWS };

WEFT_INLINE void step_f32(float *acc, const char *x, const char *w)
{
    const float *wf = (const float *) w;
    float s;
    memcpy(&s, x, sizeof s);
    for (int j = 0; j < WEFT_PANEL; j++)
        acc[j] += s * wf[j];
}

WEFT_INLINE void step_bf16(float *acc, const char *x, const char *w)
{
    const uint16_t *wp = (const uint16_t *) w;
    uint16_t pair[2];
    memcpy(pair, x, sizeof pair);
    float even = weft_bf16_to_f32(pair[0]), odd = weft_bf16_to_f32(pair[1]);
    for (int j = 0; j < WEFT_PANEL; j++) {
        acc[j] += odd * weft_bf16_to_f32(wp[2 * j + 1]);
        acc[j] += even * weft_bf16_to_f32(wp[2 * j]);
    }
}

#define TILE(name, step, ldx_bytes, stride_bytes)                            \
    static void name(int rows, int64_t steps, const void *x, int64_t ldx,    \
                     const void *w, float *c, int64_t ldc, bool cont,        \
                     struct weft_k_next next)                                \
    {                                                                        \
        (void) ldx;                                                          \
        (void) next;                                                         \
        for (int i = 0; i < rows; i++) {                                     \
            float acc[WEFT_PANEL] = {0};                                     \
            if (cont)                                                        \
                memcpy(acc, c + i * ldc, sizeof acc);                        \
            const char *xs = (const char *) x + i * (ldx_bytes);             \
            const char *ws = w;                                              \
            for (int64_t s = 0; s < steps; s++) {                            \
                step(acc, xs, ws);                                           \
                xs += (stride_bytes);                                        \
                ws += WEFT_PANEL_BYTES;                                      \
            }                                                                \
            memcpy(c + i * ldc, acc, sizeof acc);                            \
        }                                                                    \
    }
TILE(tile_f32, step_f32, ldx, WEFT_STEP_BYTES)
TILE(tile_bf16, step_bf16, ldx, WEFT_STEP_BYTES)
TILE(tile_packed_f32, step_f32, WEFT_STEP_BYTES, PACKED_STRIDE)
TILE(tile_packed_bf16, step_bf16, WEFT_STEP_BYTES, PACKED_STRIDE)

const struct weft_k_ops weft_k_ops_c = {
    .isa = WEFT_ISA_C,
    .tile_rows = C_TILE_ROWS,
    .tile = {tile_f32, tile_bf16},
    .tile_packed = {tile_packed_f32, tile_packed_bf16},
    STREAM_OPS,
};
