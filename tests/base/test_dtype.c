/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats: every 16-bit value, and every rounding boundary. */
#include "base/dtype.h"

#include <math.h>

#include "tests/harness.h"

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* IEEE 754 binary16 by its definition. */
static double f16_value(uint32_t h)
{
    int exponent = (int) (h >> 10 & 31), mantissa = (int) (h & 1023);
    double m = exponent == 0 ? ldexp(mantissa, -24)
                             : ldexp(1024 + mantissa, exponent - 25);
    return h >> 15 ? -m : m;
}

static void test_f16_all_values(void)
{
    int bad = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = weft_f16_to_f32((uint16_t) h);
        if ((h & 0x7c00) == 0x7c00) {
            bad += (h & 0x3ff) ? !isnan(f)
                               : !isinf(f) || !signbit(f) != !(h >> 15);
            uint16_t back = weft_f32_to_f16(f);
            bad += (h & 0x3ff) ? (back & 0x7fff) <= 0x7c00 : back != h;
            continue;
        }
        bad += (double) f != f16_value(h) || !signbit(f) != !(h >> 15);
        bad += weft_f32_to_f16(f) != h;
    }
    CHECK_INT(bad, 0);
}

static void test_f16_rounds_to_nearest_even(void)
{
    int bad = 0;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        /* the middle of two neighbours is exact in f32 */
        float mid = (float) ((f16_value(h) + f16_value(h + 1)) / 2);
        uint32_t even = h & 1 ? h + 1 : h;
        bad += weft_f32_to_f16(mid) != even;
        bad += weft_f32_to_f16(nextafterf(mid, 1e9f)) != h + 1;
        bad += weft_f32_to_f16(nextafterf(mid, -1e9f)) != h;
        bad += weft_f32_to_f16(-mid) != (even | 0x8000);
    }
    CHECK_INT(bad, 0);
    CHECK_INT(weft_f32_to_f16(65519.996f), 0x7bff);
    CHECK_INT(weft_f32_to_f16(65520.0f), 0x7c00);
    CHECK_INT(weft_f32_to_f16(1e30f), 0x7c00);
    CHECK_INT(weft_f32_to_f16(-1e30f), 0xfc00);
    CHECK_INT(weft_f32_to_f16(1e-30f), 0);
}

static void test_bf16_all_values(void)
{
    int bad = 0;
    for (uint32_t b = 0; b < 65536; b++) {
        float f = weft_bf16_to_f32((uint16_t) b);
        bad += bits(f) != b << 16;
        if ((b & 0x7fff) > 0x7f80)
            bad += (weft_f32_to_bf16(f) & 0x7fff) <= 0x7f80;
        else
            bad += weft_f32_to_bf16(f) != b;
    }
    CHECK_INT(bad, 0);
}

static void test_bf16_rounds_to_nearest_even(void)
{
    int bad = 0;
    for (uint32_t b = 0; b < 0x7f7f; b++) {
        uint32_t u = b << 16 | 0x8000;
        float mid, up, down;
        memcpy(&mid, &u, 4);
        up = nextafterf(mid, INFINITY);
        down = nextafterf(mid, 0);
        uint32_t even = b & 1 ? b + 1 : b;
        bad += weft_f32_to_bf16(mid) != even;
        bad += weft_f32_to_bf16(up) != b + 1;
        bad += weft_f32_to_bf16(down) != b;
        bad += weft_f32_to_bf16(-mid) != (even | 0x8000);
    }
    CHECK_INT(bad, 0);
    CHECK_INT(weft_f32_to_bf16(3.4e38f), 0x7f80);
    /* a NaN whose payload lies in the lower half must not become infinity */
    uint32_t u = 0x7f800001;
    float nan_;
    memcpy(&nan_, &u, 4);
    CHECK(isnan(weft_bf16_to_f32(weft_f32_to_bf16(nan_))));
}

static void test_convert_rows(void)
{
    static const enum weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    enum { N = 37 };
    for (size_t a = 0; a < WEFT_COUNT(types); a++)
        for (size_t b = 0; b < WEFT_COUNT(types); b++) {
            float in[N], out[N];
            unsigned char from[N * 4], to[N * 4 + 1];
            for (int i = 0; i < N; i++)
                in[i] = (float) (i - 18) / 8; /* exact in all formats */
            to[N * weft_dtype_bytes(types[b])] = 0x5a;
            weft_convert(from, types[a], in, WEFT_F32, N);
            weft_convert(to, types[b], from, types[a], N);
            weft_convert(out, WEFT_F32, to, types[b], N);
            CHECK(memcmp(in, out, sizeof in) == 0);
            CHECK_INT(to[N * weft_dtype_bytes(types[b])], 0x5a);
        }
}

static void test_dtype_names(void)
{
    CHECK_STR(weft_dtype_name(WEFT_F32), "f32");
    CHECK_STR(weft_dtype_name(WEFT_BF16), "bf16");
    CHECK_STR(weft_dtype_name(WEFT_F16), "f16");
}

WEFT_TESTS("base/dtype", {"test_f16_all_values", test_f16_all_values},
           {"test_f16_rounds_to_nearest_even",
            test_f16_rounds_to_nearest_even},
           {"test_bf16_all_values", test_bf16_all_values},
           {"test_bf16_rounds_to_nearest_even",
            test_bf16_rounds_to_nearest_even},
           {"test_convert_rows", test_convert_rows},
           {"test_dtype_names", test_dtype_names})
