/* SPDX-License-Identifier: Apache-2.0 */
/* Additions, sums of squares, broken numbers: the same in every set. */
#include "products.h"

static const int64_t sizes[] = {0,   1,    15,   16,   17,
                                100, 4095, 4096, 4097, 12300};

static float *random_vector(int64_t n, uint32_t seed)
{
    float *x = test_alloc(n, sizeof(float));
    for (int64_t i = 0; i < n; i++)
        x[i] = test_uniform(seed, i) * (i % 3 ? 1e-3f : 1e3f);
    return x;
}

static void test_reduce_add(void)
{
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
            int64_t n = sizes[s], bad = 0;
            float *a = random_vector(n + 1, 1), *b = random_vector(n + 1, 2);
            float *was = random_vector(n + 1, 1);
            weft_k_add(a, b, (size_t) n);
            for (int64_t i = 0; i < n; i++)
                bad += a[i] != was[i] + b[i];
            bad += a[n] != was[n];
            CHECK_INT(bad, 0);
            weft_free(a);
            weft_free(b);
            weft_free(was);
        }
    }
}

/* The order of kern.h, written out. */
static double sum_squares(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t at = 0; at < n; at += 4096) {
        double lane[16] = {0};
        for (int64_t i = at; i < n && i < at + 4096; i++)
            lane[(i - at) % 16] += (double) x[i] * x[i];
        for (int half = 8; half > 0; half /= 2)
            for (int j = 0; j < half; j++)
                lane[j] += lane[j + half];
        total += lane[0];
    }
    return total;
}

/* Tolerance of the plain sum: n additions in double. */
static void test_reduce_sum_squares(void)
{
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
            int64_t n = sizes[s];
            float *x = random_vector(n, 3);
            long double plain = 0;
            for (int64_t i = 0; i < n; i++)
                plain += (long double) x[i] * x[i];
            double got = weft_k_sum_squares(x, (size_t) n);
            CHECK(got == sum_squares(x, n));
            CHECK(fabsl(got - plain) <= (long double) n * 0x1p-53L * plain);
            weft_free(x);
        }
    }
}

static void test_reduce_clip_scale(void)
{
    CHECK(weft_k_clip_scale(0.5, 1) == 1);
    CHECK(weft_k_clip_scale(1e30, 0) == 1);
    CHECK(weft_k_clip_scale(0, 2) == 1);
    CHECK(weft_k_clip_scale(8, 2) == (float) (2 / 8.000001));
    CHECK(weft_k_clip_scale(2, 2) == (float) (2 / 2.000001));
}

WEFT_TESTS("kern/reduce", {"test_reduce_add", test_reduce_add},
           {"test_reduce_sum_squares", test_reduce_sum_squares},
           {"test_reduce_clip_scale", test_reduce_clip_scale})
