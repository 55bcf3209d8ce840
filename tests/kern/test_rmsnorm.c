/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row operations against double loops: exp and log, norm, SiLU times up, and
 * their gradients; and the bits of a row whatever rows come with it.
 */
#include "layer_fixture.h"

#include "kern/rows.h"
#include "kern/vec.h"

/* Distance in units in the last place of the exact value. */
static double ulps(float got, double exact)
{
    float f = fabsf((float) exact);
    return fabs((double) got - exact)
         / (double) (nextafterf(f, INFINITY) - f);
}

static void test_expf(void)
{
    double worst = 0;
    for (int i = 0; i <= 2000000; i++) {
        float x = -87.0f + (float) i * (175.37f / 2000000);
        worst = fmax(worst, ulps(weft_expf(x), exp((double) x)));
    }
    CHECK(worst < 2);
    CHECK(weft_expf(0.0f) == 1.0f);
    CHECK(weft_expf(-0.0f) == 1.0f);
    CHECK(weft_expf(-87.01f) == 0.0f);
    CHECK(weft_expf(-INFINITY) == 0.0f);
    CHECK(weft_expf(88.38f) == INFINITY);
    CHECK(weft_expf(INFINITY) == INFINITY);
    CHECK(isnan(weft_expf(NAN)));
}

static void test_logf(void)
{
    double worst = 0;
    for (uint32_t u = 0x00800000; u < 0x7f800000; u += 1021) {
        float x = weft_f32_of(u);
        worst = fmax(worst, ulps(weft_logf(x), log((double) x)));
    }
    CHECK(worst < 2);
    CHECK(weft_logf(1.0f) == 0.0f);
    CHECK(weft_logf(0.0f) == -INFINITY);
    CHECK(weft_logf(INFINITY) == INFINITY);
    CHECK(isnan(weft_logf(-1.0f)));
    CHECK(isnan(weft_logf(NAN)));
}

static float value_of(enum weft_dtype dtype, const void *p, int64_t i)
{
    return dtype == WEFT_F32 ? ((const float *) p)[i]
                             : weft_bf16_to_f32(((const uint16_t *) p)[i]);
}

/* Half a unit in the last place of dtype, and f32's few roundings. */
static double bound_of(enum weft_dtype dtype)
{
    return dtype == WEFT_F32 ? 1e-6 : 1.0 / 256;
}

static const int64_t widths[] = {1,  2,  15, 16,  17,  24, 63,
                                 64, 65, 80, 100, 128, 768};

static void norm_of(enum weft_dtype dtype, int64_t h)
{
    enum { M = 33 };
    float *x = fixture_rows(1, M * h), *w = fixture_rows(2, h);
    /* One more element, to see that nothing is written behind. */
    float *y = weft_alloc_aligned((size_t) (M * h + 1), 4);
    double *rx = ref_zeros(M * h), *rw = ref_zeros(h);
    for (int64_t i = 0; i < M * h; i++)
        rx[i] = x[i];
    for (int64_t i = 0; i < h; i++)
        rw[i] = w[i];
    double *ry = ref_norm(M, h, 1e-5, rx, rw);
    char *guard = (char *) y + (size_t) (M * h) * weft_dtype_bytes(dtype);
    guard[0] = 0x5a;
    weft_k_rmsnorm(dtype, M, h, 1e-5f, x, w, y);
    CHECK_INT(guard[0], 0x5a);
    for (int64_t i = 0; i < M * h; i++)
        CHECK(fabs((double) value_of(dtype, y, i) - ry[i])
              <= bound_of(dtype) * fabs(ry[i]) + 1e-7);
    /* Every row alone. */
    for (int64_t r = 0; r < M; r++) {
        float *one = weft_alloc_aligned((size_t) h, 4);
        weft_k_rmsnorm(dtype, 1, h, 1e-5f, x + r * h, w, one);
        CHECK(memcmp(one,
                     (char *) y + (size_t) (r * h) * weft_dtype_bytes(dtype),
                     (size_t) h * weft_dtype_bytes(dtype))
              == 0);
        weft_free(one);
    }
    weft_free(x);
    weft_free(w);
    weft_free(y);
    free(rx);
    free(rw);
    free(ry);
}

static void norm_backward_of(int64_t h)
{
    enum { M = 9 };
    float *x = fixture_rows(1, M * h), *w = fixture_rows(2, h);
    float *dy = fixture_rows(3, M * h), *dx = fixture_rows(4, M * h);
    float *dw = fixture_rows(5, h), *dx2 = fixture_rows(4, M * h);
    float *dw2 = fixture_rows(5, h);
    double *in[] = {ref_zeros(M * h), ref_zeros(h), ref_zeros(M * h),
                    ref_zeros(M * h), ref_zeros(h)};
    const float *from[] = {x, w, dy, dx, dw};
    for (int j = 0; j < 5; j++)
        for (int64_t i = 0; i < (j == 1 || j == 4 ? h : M * h); i++)
            in[j][i] = from[j][i];
    ref_norm_backward(M, h, 1e-5, in[0], in[1], in[2], in[3], in[4]);
    weft_k_rmsnorm_backward(M, h, 1e-5f, x, w, dy, dx, dw);
    for (int64_t i = 0; i < M * h; i++)
        CHECK(fabs((double) dx[i] - in[3][i]) < 5e-6 * (1 + fabs(in[3][i])));
    for (int64_t i = 0; i < h; i++)
        CHECK(fabs((double) dw[i] - in[4][i]) < 5e-6 * (1 + fabs(in[4][i])));
    /* Cut into 4 + 5 rows: the same chain; and without dw. */
    weft_k_rmsnorm_backward(4, h, 1e-5f, x, w, dy, dx2, dw2);
    weft_k_rmsnorm_backward(M - 4, h, 1e-5f, x + 4 * h, w, dy + 4 * h,
                            dx2 + 4 * h, dw2);
    CHECK(memcmp(dx, dx2, (size_t) (M * h) * 4) == 0);
    CHECK(memcmp(dw, dw2, (size_t) h * 4) == 0);
    float *dx3 = fixture_rows(4, M * h);
    weft_k_rmsnorm_backward(M, h, 1e-5f, x, w, dy, dx3, NULL);
    CHECK(memcmp(dx, dx3, (size_t) (M * h) * 4) == 0);
    float *all[] = {x, w, dy, dx, dw, dx2, dw2, dx3};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    for (int j = 0; j < 5; j++)
        free(in[j]);
}

static void norms(void)
{
    for (size_t i = 0; i < WEFT_COUNT(widths); i++) {
        norm_of(WEFT_F32, widths[i]);
        norm_of(WEFT_BF16, widths[i]);
        norm_backward_of(widths[i]);
    }
}

static void test_rmsnorm(void)
{
    each_isa(norms);
}

static void test_rmsnorm_of_zeros(void)
{
    float x[40] = {0}, w[40], y[40];
    for (int i = 0; i < 40; i++)
        w[i] = 3;
    weft_k_rmsnorm(WEFT_F32, 1, 40, 1e-6f, x, w, y);
    for (int i = 0; i < 40; i++)
        CHECK(y[i] == 0);
}

/* ---- SiLU -------------------------------------------------------------- */

static void swiglu_of(enum weft_dtype dtype, int64_t m, int64_t ff)
{
    int64_t n = m * ff;
    float *wide = fixture_rows(1, 2 * n), *dy = fixture_rows(2, n);
    void *gu = weft_alloc_aligned((size_t) (2 * n), 4);
    void *y = weft_alloc_aligned((size_t) n, 4);
    void *dgu = weft_alloc_aligned((size_t) (2 * n), 4);
    for (int64_t i = 0; i < 2 * n; i++)
        wide[i] *= i % 7 ? 2 : 60; /* far into both tails, too */
    weft_row_ops()->round(dtype, 2 * n, wide, gu);
    weft_row_ops()->swiglu(dtype, m, ff, gu, y);
    weft_row_ops()->swiglu_backward(dtype, m, ff, gu, dy, dgu);
    for (int64_t r = 0; r < m; r++)
        for (int64_t f = 0; f < ff; f++) {
            int64_t ig = r * 2 * ff + weft_gate_up_row(f, false);
            int64_t iu = r * 2 * ff + weft_gate_up_row(f, true);
            double g = value_of(dtype, gu, ig), u = value_of(dtype, gu, iu);
            double s = 1 / (1 + exp(-g)), d = dy[r * ff + f];
            double expect[3] = {g * s * u, d * u * s * (1 + g * (1 - s)),
                                d * g * s};
            double got[3] = {value_of(dtype, y, r * ff + f),
                             value_of(dtype, dgu, ig),
                             value_of(dtype, dgu, iu)};
            for (int j = 0; j < 3; j++)
                CHECK(fabs(got[j] - expect[j])
                      <= 4 * bound_of(dtype) * fabs(expect[j]) + 1e-5);
        }
    weft_free(wide);
    weft_free(dy);
    weft_free(gu);
    weft_free(y);
    weft_free(dgu);
}

static void swiglus(void)
{
    for (int64_t ff = 32; ff <= 160; ff += 32) {
        swiglu_of(WEFT_F32, 3, ff);
        swiglu_of(WEFT_BF16, 3, ff);
    }
}

static void test_swiglu(void)
{
    each_isa(swiglus);
}

/* ---- Rounding, sums ---------------------------------------------------- */

static void roundings(void)
{
    enum { N = 4096 + 7 };
    float *x = weft_alloc_aligned(N, 4);
    uint16_t *y = weft_alloc_aligned(N + 1, 2);
    for (uint32_t i = 0; i < N; i++)
        x[i] = weft_f32_of(i * 1048575u + i);
    x[0] = NAN;
    x[1] = weft_f32_of(0x7f800001u); /* a NaN whose upper half is infinity */
    x[2] = -INFINITY;
    x[3] = weft_f32_of(0x3f808000u); /* a tie: to even */
    x[4] = weft_f32_of(0x3f818000u);
    y[N] = 0x5a5a;
    weft_row_ops()->round(WEFT_BF16, N, x, y);
    for (int i = 0; i < N; i++)
        CHECK(y[i] == weft_f32_to_bf16(x[i]));
    CHECK_INT(y[N], 0x5a5a);
    weft_free(x);
    weft_free(y);
}

static void test_round(void)
{
    each_isa(roundings);
}

static void test_add_rows(void)
{
    enum { M = 5, N = 19, LD = 23 };
    float *x = fixture_rows(1, M * LD), sum[N + 1] = {0}, two[N + 1] = {0};
    sum[N] = two[N] = 9;
    weft_row_ops()->add_rows(M, N, x, LD, sum);
    weft_row_ops()->add_rows(2, N, x, LD, two);
    weft_row_ops()->add_rows(M - 2, N, x + 2 * LD, LD, two);
    for (int j = 0; j < N; j++) {
        double s = 0;
        for (int i = 0; i < M; i++)
            s += x[i * LD + j];
        CHECK(fabs(s - (double) sum[j]) < 1e-6 * 5);
    }
    CHECK(memcmp(sum, two, sizeof sum) == 0);
    CHECK(sum[N] == 9);
    weft_free(x);
}

WEFT_TESTS("kern/rmsnorm", {"test_expf", test_expf}, {"test_logf", test_logf},
           {"test_rmsnorm", test_rmsnorm},
           {"test_rmsnorm_of_zeros", test_rmsnorm_of_zeros},
           {"test_swiglu", test_swiglu}, {"test_round", test_round},
           {"test_add_rows", test_add_rows})
