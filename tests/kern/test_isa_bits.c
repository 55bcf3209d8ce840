/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets with fused multiply-adds give the same bits: tiles of
 * products against fmaf(), with numbers around the smallest normal one and
 * everywhere else. */
#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "harness.h"
#include "kern/ops.h"

enum { STEPS = 7, ROWS = 6 };

static uint64_t state = 88172645463325252u;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t) (state >> 20);
}

/* Finite numbers whose exponents are below `top`. */
static float number(uint32_t top)
{
    uint32_t u = (draw() & 1) << 31 | draw() % top << 23
               | (draw() & 0x7fffff);
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The same as one step of dtype: a number, or two of bf16. */
static float step_number(enum weft_dtype dtype, uint32_t top)
{
    uint32_t u[2];
    float f[2] = {number(top), number(top)};
    memcpy(u, f, sizeof u);
    u[0] = (u[0] & 0xffff0000u) | u[1] >> 16;
    if (dtype == WEFT_BF16)
        memcpy(f, u, sizeof u[0]);
    return f[0];
}

static float flushed(float f)
{
    return fabsf(f) < FLT_MIN ? copysignf(0, f) : f;
}

static float bf16_at(const void *p, size_t i)
{
    return flushed(weft_bf16_to_f32(((const uint16_t *) p)[i]));
}

struct operands {
    float x[ROWS * STEPS], w[STEPS * WEFT_PANEL], c[ROWS * WEFT_PANEL];
};

/* acc + a pair's products, the second first, as the instruction does. */
static float step(enum weft_dtype dtype, const struct operands *o, int row,
                  int s, int j, float acc)
{
    size_t x = (size_t) (row * STEPS + s), w = (size_t) (s * WEFT_PANEL + j);
    if (dtype == WEFT_F32)
        return fmaf(o->x[x], o->w[w], acc);
    acc = flushed(fmaf(bf16_at(o->x, 2 * x + 1), bf16_at(o->w, 2 * w + 1),
                       flushed(acc)));
    return flushed(fmaf(bf16_at(o->x, 2 * x), bf16_at(o->w, 2 * w), acc));
}

static void check_tile(enum weft_dtype dtype, uint32_t top_x, uint32_t top_w)
{
    static struct operands o;
    float expected[ROWS * WEFT_PANEL], got[ROWS * WEFT_PANEL];
    for (size_t i = 0; i < WEFT_COUNT(o.x); i++)
        o.x[i] = step_number(dtype, top_x);
    for (size_t i = 0; i < WEFT_COUNT(o.w); i++)
        o.w[i] = step_number(dtype, top_w);
    for (size_t i = 0; i < WEFT_COUNT(o.c); i++)
        o.c[i] = number(i % 3 ? top_x : 1);
    for (int row = 0; row < ROWS; row++)
        for (int j = 0; j < WEFT_PANEL; j++) {
            float acc = o.c[row * WEFT_PANEL + j];
            for (int s = 0; s < STEPS; s++)
                acc = step(dtype, &o, row, s, j, acc);
            expected[row * WEFT_PANEL + j] = acc;
        }
    for (int i = WEFT_ISA_AVX2; i <= (int) weft_k_isa_detect(); i++) {
        struct weft_err err;
        int wrong = 0;
        REQUIRE_OK(weft_k_init(weft_k_isa_name((enum weft_isa) i), &err),
                   err);
        memcpy(got, o.c, sizeof got);
        weft_k_ops()->tile[dtype](
            ROWS, STEPS, o.x, STEPS * 4, o.w, got, WEFT_PANEL, true,
            (struct weft_k_next){(const char *) o.w, 0});
        for (size_t k = 0; k < WEFT_COUNT(got); k++)
            wrong += memcmp(&got[k], &expected[k], 4) != 0
                  && !(isnan(got[k]) && isnan(expected[k]));
        CHECK_INT(wrong, 0);
        volatile float tiny = FLT_MIN;
        CHECK(tiny / 2 > 0); /* the processor's mode is back */
    }
}

static void test_isa_bits_tiles(void)
{
    static const uint32_t top[] = {1, 3, 60, 70, 128, 140, 254};
    for (int dtype = WEFT_F32; dtype <= WEFT_BF16; dtype++)
        for (size_t i = 0; i < WEFT_COUNT(top); i++)
            for (size_t k = 0; k < WEFT_COUNT(top); k++)
                for (int n = 0; n < 20; n++)
                    check_tile((enum weft_dtype) dtype, top[i], top[k]);
}

static void test_isa_bits_classes(void)
{
    for (int a = 0; a < WEFT_N_ISAS; a++)
        for (int b = 0; b < WEFT_N_ISAS; b++)
            CHECK(weft_k_isa_same_bits((enum weft_isa) a, (enum weft_isa) b)
                  == (a == b || (a > 0 && b > 0)));
}

WEFT_TESTS("kern/isa_bits", {"test_isa_bits_tiles", test_isa_bits_tiles},
           {"test_isa_bits_classes", test_isa_bits_classes})
