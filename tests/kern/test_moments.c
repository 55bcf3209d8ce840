/* SPDX-License-Identifier: Apache-2.0 */
/* Moments against closed forms. */
#include "kern/kern.h"

#include <math.h>

#include "tests/harness.h"

/* first, first + 1, ..., n of them, in tiles of `size`. */
static struct weft_k_moments of_range(int32_t n, int32_t size, float first)
{
    struct weft_k_moments m = {0};
    float tile[64];
    for (int32_t at = 0; at < n; at += size) {
        int32_t some = n - at < size ? n - at : size;
        for (int32_t i = 0; i < some; i++)
            tile[i] = first + (float) (at + i);
        weft_k_moments_add(&m, some, tile);
        weft_k_moments_add(&m, 0, NULL); /* an empty tile adds nothing */
    }
    return m;
}

/* Of n numbers one apart the mean is the middle, and the squares are
 * n (n^2 - 1) / 12; also far from 0, where a sum of squares minus the square
 * of the sum has no digit left. */
static void test_moments_closed_form(void)
{
    static const int32_t sizes[] = {1, 2, 7, 64};
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++)
        for (int far = 0; far < 2; far++) {
            float first = far ? 0x1p22f : -3;
            struct weft_k_moments m = of_range(40, sizes[i], first);
            double squares = 40 * (40 * 40 - 1) / 12.0;
            CHECK_INT(m.n, 40);
            CHECK(m.min == (double) first && m.max == (double) first + 39);
            CHECK(fabs(m.mean - (double) first - 19.5) < 1e-9);
            CHECK(fabs(m.squares / squares - 1) < 1e-9);
            CHECK(
                fabs(weft_k_moments_rstd(&m) - 1 / sqrt(squares / 39 + 1e-8))
                < 1e-12);
        }
}

static void test_moments_few(void)
{
    struct weft_k_moments m = {0};
    float same[3] = {0.1f, 0.1f, 0.1f}, bad[2] = {1, NAN};
    weft_k_moments_add(&m, 1, same);
    CHECK(m.n == 1 && m.squares == 0 && m.mean == (double) 0.1f);
    weft_k_moments_add(&m, 2, same);
    /* no variance: the epsilon alone */
    CHECK(fabs(weft_k_moments_rstd(&m) - 1e4) < 1e-3);
    weft_k_moments_add(&m, 2, bad);
    CHECK(isnan(m.mean) && isnan(weft_k_moments_rstd(&m)));
}

WEFT_TESTS("kern/moments",
           {"test_moments_closed_form", test_moments_closed_form},
           {"test_moments_few", test_moments_few})
