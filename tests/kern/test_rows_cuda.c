/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows on a GPU: the CPU's bits, whatever rows come with a row, in every order
 * of threads; and double loops, which do not know the CPU's kernels.
 */
#include "../cuda/test_device.h"

#include <math.h>

#include "kern/layer_rows_cuda.h"
#include "kern/rows.h"

static const int64_t widths[] = {1,   2,   3,   15,  16,  17,  31,
                                 32,  33,  63,  64,  65,  66,  80,
                                 100, 127, 128, 768, 130, 1000};
static const enum weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16};

/* ---- Norm -------------------------------------------------------------- */

static void norm_of(enum weft_dtype dtype, int64_t m, int64_t h)
{
    size_t bytes = (size_t) (m * h) * weft_dtype_bytes(dtype);
    float *x = host_rows(1, m * h), *w = host_rows(2, h);
    char *y = weft_alloc_aligned(bytes, 1);
    float *dx = dev_put(x, (size_t) (m * h) * 4);
    float *dw = dev_put(w, (size_t) h * 4);
    void *dy = dev_new(bytes);
    weft_k_rmsnorm(dtype, m, h, 1e-5f, x, w, y);
    weft_k_rmsnorm_cuda(0, dtype, m, h, 1e-5f, dx, dw, dy);
    if (cpu_is_fused())
        CHECK(dev_same(dy, y, bytes));
    dev_get(y, dy, bytes);
    for (int64_t r = 0; r < m; r += 7) {
        double sum = 0;
        for (int64_t i = 0; i < h; i++)
            sum += (double) x[r * h + i] * (double) x[r * h + i];
        for (int64_t i = 0; i < h; i++) {
            double e = (double) x[r * h + i] / sqrt(sum / (double) h + 1e-5)
                     * (double) w[i];
            float got;
            weft_convert(&got, WEFT_F32,
                         y + (size_t) (r * h + i) * weft_dtype_bytes(dtype),
                         dtype, 1);
            CHECK(fabs((double) got - e)
                  <= (dtype == WEFT_F32 ? 1e-6 : 1.0 / 256) * fabs(e) + 1e-7);
        }
    }
    dev_free(dx);
    dev_free(dw);
    dev_free(dy);
    weft_free(x);
    weft_free(w);
    weft_free(y);
}

static void norms(void)
{
    for (size_t i = 0; i < WEFT_COUNT(widths); i++)
        for (int d = 0; d < 2; d++)
            norm_of(dtypes[d], 9, widths[i]);
    norm_of(WEFT_F32, 0, 64);
}

static void test_rmsnorm(void)
{
    each_order(norms);
}

/* Rows of every batch of 1..257 rows have the bits that they have among 257;
 * the batch begins at a row that is not the first. */
static void test_rmsnorm_rows(void)
{
    enum { M = 257, H = 68 };
    float *x = host_rows(1, M * H), *w = host_rows(2, H);
    float *dx = dev_put(x, sizeof(float) * M * H), *y = host_rows(3, M * H);
    float *dw = dev_put(w, sizeof(float) * H);
    float *dy = dev_new(sizeof(float) * M * H);
    weft_k_rmsnorm_cuda(0, WEFT_F32, M, H, 1e-6f, dx, dw, dy);
    dev_get(y, dy, sizeof(float) * M * H);
    for (int64_t m = 1; m <= M; m++) {
        int64_t first = M - m;
        weft_k_rmsnorm_cuda(0, WEFT_F32, m, H, 1e-6f, dx + first * H, dw, dy);
        CHECK(dev_same(dy, y + first * H, (size_t) (m * H) * 4));
    }
    dev_free(dx);
    dev_free(dw);
    dev_free(dy);
    weft_free(x);
    weft_free(w);
    weft_free(y);
}

static void norm_backward_of(int64_t m, int64_t h)
{
    size_t rows = (size_t) (m * h) * 4, row = (size_t) h * 4;
    float *x = host_rows(1, m * h), *w = host_rows(2, h);
    float *dy = host_rows(3, m * h), *dx = host_rows(4, m * h);
    float *dw = host_rows(5, h), *before = host_copy(dx, m * h);
    float *x_ = dev_put(x, rows), *w_ = dev_put(w, row);
    float *dy_ = dev_put(dy, rows), *dx_ = dev_put(dx, rows);
    float *dw_ = dev_put(dw, row), *scratch = dev_new((size_t) m * 4);
    weft_k_rmsnorm_backward(m, h, 1e-5f, x, w, dy, dx, dw);
    /* Cut in two: both chains go on. */
    int64_t cut = m / 3;
    weft_k_rmsnorm_backward_cuda(0, cut, h, 1e-5f, x_, w_, dy_, dx_, dw_,
                                 scratch);
    weft_k_rmsnorm_backward_cuda(0, m - cut, h, 1e-5f, x_ + cut * h, w_,
                                 dy_ + cut * h, dx_ + cut * h, dw_, scratch);
    if (cpu_is_fused()) {
        CHECK(dev_same(dx_, dx, rows));
        CHECK(dev_same(dw_, dw, row));
    }
    /* Without dw; and against a double loop. */
    dev_set(dx_, before, rows);
    weft_k_rmsnorm_backward_cuda(0, m, h, 1e-5f, x_, w_, dy_, dx_, NULL,
                                 scratch);
    dev_get(dx, dx_, rows);
    for (int64_t r = 0; r < m; r++) {
        double sum = 0, dot = 0;
        const float *p = x + r * h, *g = dy + r * h;
        for (int64_t i = 0; i < h; i++)
            sum += (double) p[i] * (double) p[i];
        double inv = 1 / sqrt(sum / (double) h + 1e-5);
        for (int64_t i = 0; i < h; i++)
            dot += (double) g[i] * (double) w[i] * (double) p[i] * inv;
        for (int64_t i = 0; i < h; i++) {
            double e = (double) before[r * h + i]
                     + inv
                           * ((double) g[i] * (double) w[i]
                              - (double) p[i] * inv * dot / (double) h);
            CHECK(fabs((double) dx[r * h + i] - e) < 5e-6 * (1 + fabs(e)));
        }
    }
    void *dev[] = {x_, w_, dy_, dx_, dw_, scratch};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    float *host[] = {x, w, dy, dx, dw, before};
    for (size_t i = 0; i < WEFT_COUNT(host); i++)
        weft_free(host[i]);
}

/* Rounded rows beside a norm, and beside its backward pass, are those of a
 * launch of their own; the rest stays the same. */
static void norm_round_of(enum weft_dtype dtype, int64_t m, int64_t h)
{
    size_t rows = (size_t) (m * h) * 4, row = (size_t) h * 4;
    size_t bytes = (size_t) (m * h) * weft_dtype_bytes(dtype);
    float *x = host_rows(1, m * h), *w = host_rows(2, h);
    float *dy = host_rows(3, m * h), *dx = host_rows(4, m * h);
    char *rounded = weft_alloc_aligned(bytes, 1);
    char *normed = weft_alloc_aligned(bytes, 1);
    float *x_ = dev_put(x, rows), *w_ = dev_put(w, row);
    float *dy_ = dev_put(dy, rows), *dx_ = dev_put(dx, rows);
    void *normed_ = dev_new(bytes), *rounded_ = dev_new(bytes);
    float *inverse = dev_new((size_t) m * 4);
    weft_convert(rounded, dtype, dx, WEFT_F32, (size_t) (m * h));
    weft_row_ops()->rmsnorm(dtype, m, h, 1e-5f, x, w, normed);
    weft_norm_round_cuda(0, dtype, m, h, 1e-5f, x_, w_, normed_, dx_,
                         rounded_);
    CHECK(dev_same(rounded_, rounded, bytes));
    if (cpu_is_fused())
        CHECK(dev_same(normed_, normed, bytes));
    weft_k_rmsnorm_backward(m, h, 1e-5f, x, w, dy, dx, NULL);
    weft_norm_backward_cuda(0, dtype, m, h, 1e-5f, x_, w_, dy_, dx_, NULL,
                            rounded_, inverse);
    weft_convert(rounded, dtype, dx, WEFT_F32, (size_t) (m * h));
    if (cpu_is_fused()) {
        CHECK(dev_same(dx_, dx, rows));
        CHECK(dev_same(rounded_, rounded, bytes));
    }
    void *dev[] = {x_, w_, dy_, dx_, normed_, rounded_, inverse};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    void *host[] = {x, w, dy, dx, rounded, normed};
    for (size_t i = 0; i < WEFT_COUNT(host); i++)
        weft_free(host[i]);
}

static void norms_rounded(void)
{
    for (int d = 0; d < 2; d++)
        for (int64_t m = 1; m <= 6; m += 5) {
            norm_round_of(dtypes[d], m, 31);
            norm_round_of(dtypes[d], m, 32);
            norm_round_of(dtypes[d], m, 132);
        }
}

static void test_norm_round(void)
{
    each_order(norms_rounded);
}

static void norms_backward(void)
{
    static const int64_t rows[] = {1, 2, 63, 64, 65, 130};
    for (size_t i = 0; i < WEFT_COUNT(widths) - 4; i++)
        norm_backward_of(6, widths[i]);
    for (size_t i = 0; i < WEFT_COUNT(rows); i++)
        norm_backward_of(rows[i], 40);
}

static void test_rmsnorm_backward(void)
{
    each_order(norms_backward);
}

static void row_sums(void)
{
    static const int64_t rows[] = {1, 5, 63, 64, 65, 128, 129, 257};
    enum { N = 37, LD = 41 };
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        int64_t m = rows[i];
        float *x = host_rows(1, m * LD), *sum = host_rows(2, N);
        float *x_ = dev_put(x, (size_t) (m * LD) * 4);
        float *sum_ = dev_put(sum, N * 4);
        for (int64_t r = 0; r < m; r++)
            for (int j = 0; j < N; j++)
                sum[j] += x[r * LD + j];
        weft_k_add_rows_cuda(0, m, N, x_, LD, sum_);
        CHECK(dev_same(sum_, sum, N * 4));
        dev_free(x_);
        dev_free(sum_);
        weft_free(x);
        weft_free(sum);
    }
}

static void test_add_rows(void)
{
    each_order(row_sums);
}

/* ---- Activation -------------------------------------------------------- */

static void swiglu_of(enum weft_dtype dtype, int64_t m, int64_t ff)
{
    int64_t n = m * ff;
    size_t bytes = (size_t) n * weft_dtype_bytes(dtype);
    float *wide = host_rows(1, 2 * n), *dy = host_rows(2, n);
    for (int64_t i = 0; i < 2 * n; i++)
        wide[i] *= i % 7 ? 2 : 60; /* far into both tails, too */
    void *gu = host_as(dtype, wide, 2 * n);
    char *y = weft_alloc_aligned(bytes, 1);
    char *dgu = weft_alloc_aligned(2 * bytes, 1);
    void *gu_ = dev_put(gu, 2 * bytes), *y_ = dev_new(bytes);
    void *dgu_ = dev_new(2 * bytes), *again_ = dev_new(bytes);
    float *dy_ = dev_put(dy, (size_t) n * 4);
    weft_row_ops()->swiglu(dtype, m, ff, gu, y);
    weft_row_ops()->swiglu_backward(dtype, m, ff, gu, dy, dgu);
    weft_swiglu_blocks_cuda(0, dtype,
                            &(struct weft_swiglu_cuda){1, {n}, {gu_}, {y_}});
    weft_k_swiglu_backward_cuda(0, dtype, m, ff, gu_, dy_, again_, dgu_);
    if (cpu_is_fused()) {
        CHECK(dev_same(y_, y, bytes));
        CHECK(dev_same(again_, y, bytes));
        CHECK(dev_same(dgu_, dgu, 2 * bytes));
    }
    weft_k_swiglu_backward_cuda(0, dtype, m, ff, gu_, dy_, NULL, dgu_);
    float *got = host_rows(3, n), *got2 = host_rows(3, 2 * n);
    dev_get(y, y_, bytes);
    dev_get(dgu, dgu_, 2 * bytes);
    weft_convert(got, WEFT_F32, y, dtype, (size_t) n);
    weft_convert(got2, WEFT_F32, dgu, dtype, (size_t) (2 * n));
    weft_convert(wide, WEFT_F32, gu, dtype, (size_t) (2 * n));
    double bound = dtype == WEFT_F32 ? 4e-6 : 4.0 / 256;
    for (int64_t r = 0; r < m; r++)
        for (int64_t f = 0; f < ff; f++) {
            int64_t ig = r * 2 * ff + weft_gate_up_row(f, false);
            int64_t iu = r * 2 * ff + weft_gate_up_row(f, true);
            double g = wide[ig], u = wide[iu], s = 1 / (1 + exp(-g));
            double d = dy[r * ff + f], dg = d * u * s * (1 + g * (1 - s));
            double e[3] = {g * s * u, dg, d * g * s};
            double is[3] = {got[r * ff + f], got2[ig], got2[iu]};
            for (int j = 0; j < 3; j++)
                CHECK(fabs(is[j] - e[j]) <= bound * fabs(e[j]) + 1e-5);
        }
    void *dev[] = {gu_, y_, dgu_, again_, dy_};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    void *host[] = {wide, dy, gu, y, dgu, got, got2};
    for (size_t i = 0; i < WEFT_COUNT(host); i++)
        weft_free(host[i]);
}

static void swiglus(void)
{
    for (int d = 0; d < 2; d++) {
        swiglu_of(dtypes[d], 1, 32);
        swiglu_of(dtypes[d], 7, 96);
        swiglu_of(dtypes[d], 33, 64);
    }
}

static void test_swiglu(void)
{
    each_order(swiglus);
}

/* ---- Rotation, rounding ------------------------------------------------ */

/* Three tensor blocks of different heads: the front ones of each row go back by
 * the row's angles; all are rounded, but where that is not asked for. */
static void unrotate_of(enum weft_dtype dtype, int64_t m, int64_t d)
{
    static const int32_t heads[] = {3, 5, 1}, rotated[] = {2, 4, 0};
    float *angle = host_rows(2, m * d);
    float *angle_ = dev_put(angle, (size_t) (m * d) * 4), *x[3], *x_[3];
    void *rounded_[3];
    struct weft_unrotate_cuda a = {.n_blocks = 3};
    for (int b = 0; b < 3; b++) {
        size_t n = (size_t) (m * heads[b] * d);
        x[b] = host_rows(3 + (uint32_t) b, (int64_t) n);
        x_[b] = dev_put(x[b], n * 4);
        rounded_[b] = b == 1 ? NULL : dev_new(n * weft_dtype_bytes(dtype));
        a.block[b] = (struct weft_unrotate_block_cuda){x_[b], rounded_[b],
                                                       heads[b], rotated[b]};
    }
    float last[2] = {x[0][(m - 1) * 3 * d], x[0][(m - 1) * 3 * d + d / 2]};
    weft_unrotate_cuda(0, dtype, m, d, angle_, &a);
    for (int b = 0; b < 3; b++) {
        size_t n = (size_t) (m * heads[b] * d);
        size_t bytes = n * weft_dtype_bytes(dtype);
        char *rounded = weft_alloc_aligned(bytes, 1);
        for (int64_t r = 0; r < m; r++)
            weft_row_ops()->rope(rotated[b], d, angle + r * d, true,
                                 x[b] + r * heads[b] * d);
        CHECK(dev_same(x_[b], x[b], n * 4));
        weft_convert(rounded, dtype, x[b], WEFT_F32, n);
        CHECK(!rounded_[b] || dev_same(rounded_[b], rounded, bytes));
        weft_free(rounded);
    }
    /* one pair, by its definition */
    double c = angle[(m - 1) * d], sine = angle[(m - 1) * d + d / 2];
    CHECK(fabs((double) x[0][(m - 1) * 3 * d]
               - ((double) last[0] * c + (double) last[1] * sine))
          < 1e-5);
    for (int b = 0; b < 3; b++) {
        dev_free(x_[b]);
        if (rounded_[b])
            dev_free(rounded_[b]);
        weft_free(x[b]);
    }
    dev_free(angle_);
    weft_free(angle);
}

static void rotations(void)
{
    static const int64_t dims[] = {2, 10, 24, 64, 128};
    for (size_t k = 0; k < WEFT_COUNT(dims); k++)
        for (int dtype = 0; dtype < 2; dtype++) {
            unrotate_of(dtypes[dtype], 1, dims[k]);
            unrotate_of(dtypes[dtype], 5, dims[k]);
        }
}

static void test_unrotate(void)
{
    each_order(rotations);
}

static void roundings(void)
{
    for (int64_t n = 1; n < 1100; n += n < 20 ? 1 : 539) {
        float *x = host_rows(1, n);
        for (int64_t i = 0; i < n; i++) { /* all kinds of numbers */
            uint32_t u = (uint32_t) i * 2654435761u + 0x7f800000u;
            memcpy(&x[i], &u, 4);
        }
        float *x_ = dev_put(x, (size_t) n * 4);
        for (int d = 0; d < 2; d++) {
            size_t bytes = (size_t) n * weft_dtype_bytes(dtypes[d]);
            void *y = host_as(dtypes[d], x, n), *y_ = dev_new(bytes);
            weft_k_round_cuda(0, dtypes[d], n, x_, y_);
            CHECK(dev_same(y_, y, bytes));
            dev_free(y_);
            weft_free(y);
        }
        dev_free(x_);
        weft_free(x);
    }
}

static void test_round(void)
{
    each_order(roundings);
}

/* Columns between others, which stay as they are. */
static void columns(void)
{
    enum { M = 5, LDX = 700, LDY = 650 };
    static const int64_t some[] = {0, 1, 255, 256, 257, 600};
    for (size_t k = 0; k < WEFT_COUNT(some); k++) {
        int64_t n = some[k];
        float *x = host_rows(1, M * LDX), *y = host_rows(2, M * LDY);
        float *x_ = dev_put(x, M * LDX * 4), *y_ = dev_put(y, M * LDY * 4);
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < n; j++)
                y[i * LDY + 3 + j] = x[i * LDX + 7 + j];
        weft_k_copy_columns_cuda(0, M, n, x_ + 7, LDX, y_ + 3, LDY);
        CHECK(dev_same(y_, y, M * LDY * 4));
        dev_free(x_);
        dev_free(y_);
        weft_free(x);
        weft_free(y);
    }
}

static void test_columns(void)
{
    each_order(columns);
}

WEFT_CUDA_TESTS("kern/rows_cuda", {"test_rmsnorm", test_rmsnorm},
                {"test_rmsnorm_rows", test_rmsnorm_rows},
                {"test_rmsnorm_backward", test_rmsnorm_backward},
                {"test_norm_round", test_norm_round},
                {"test_add_rows", test_add_rows},
                {"test_swiglu", test_swiglu},
                {"test_unrotate", test_unrotate}, {"test_round", test_round},
                {"test_columns", test_columns})
