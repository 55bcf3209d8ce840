/* SPDX-License-Identifier: Apache-2.0 */
/* Products on a GPU: with the CPU's bits where the library is the tests' own,
 * and everywhere with a double loop and with themselves, as a row's bits are
 * its own. */
#include "../cuda/test_device.h"
#include "kern/blaslt_cuda.h"
#include "products.h"

#include <stdlib.h>

static void require_products(void)
{
    struct weft_err err = {0};
    int rc = weft_k_products_error_cuda(&err);
    if (rc != 0)
        printf("\n    %s\n", err.text);
    REQUIRE(rc == 0);
}

/* ---- Forward and dX ----------------------------------------------------- */

enum { MOST = 8 };

struct product {
    enum weft_dtype dtype, y_dtype;
    int64_t m, n, k[MOST];
    int n_blocks;
    bool bias, residual, accumulate;
};

static int64_t longest(const struct product *p)
{
    int64_t k = 0;
    for (int b = 0; b < p->n_blocks; b++)
        k += p->k[b];
    return k;
}

/* The sum in double, and the sum of absolute values. */
static double in_double(const struct product *p, const struct matrix x[],
                        const struct matrix w[], int64_t i, int64_t j,
                        double *size_out)
{
    double sum = 0, size = 0;
    for (int b = 0; b < p->n_blocks; b++)
        for (int64_t k = 0; k < p->k[b]; k++) {
            double term = (double) x[b].f[i * x[b].ld + k]
                        * (double) w[b].f[j * w[b].ld + k];
            sum += term;
            size += fabs(term);
        }
    *size_out = size;
    return sum;
}

static void check_double(const struct product *p, const struct matrix x[],
                         const struct matrix w[], const float *bias,
                         const float *before, const void *y)
{
    /* one rounding per addition, and that to bf16 */
    double eps = (double) (longest(p) + 4) * 0x1p-24
               + (p->y_dtype == WEFT_BF16 ? 0x1p-8 : 0);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double size, want = in_double(p, x, w, i, j, &size);
            double add = (bias ? (double) bias[j] : 0)
                       + (before ? (double) before[i * p->n + j] : 0);
            float got = p->y_dtype == WEFT_BF16
                          ? weft_bf16_to_f32(
                              ((const uint16_t *) y)[i * p->n + j])
                          : ((const float *) y)[i * p->n + j];
            CHECK(fabs((double) got - want - add)
                  <= eps * (size + fabs(add)));
        }
}

/* Rows of one product alone, from any row on: their bits are the same. */
static void check_rows(struct weft_k_gemm_args a, const void *y,
                       void *scratch)
{
    static const int64_t first[] = {0, 1, 5}, n[] = {1, 2, 17};
    size_t element = weft_dtype_bytes(a.dtype);
    size_t y_row = (size_t) a.n * weft_dtype_bytes(a.y_dtype);
    int64_t m = a.m;
    if (a.accumulate)
        return;
    void *some = dev_new((size_t) m * y_row);
    a.y = some;
    for (size_t i = 0; i < WEFT_COUNT(first); i++) {
        struct weft_k_gemm_args part = a;
        if (first[i] + n[i] > m)
            continue;
        part.m = n[i];
        for (int b = 0; b < a.n_blocks; b++)
            part.x[b] = (const char *) a.x[b]
                      + (size_t) (first[i] * a.ldx[b]) * element;
        if (a.residual)
            part.residual = a.residual + first[i] * a.ldy;
        weft_k_gemm_cuda(0, &part, scratch);
        require_products();
        CHECK(dev_same(some, (const char *) y + (size_t) first[i] * y_row,
                       (size_t) n[i] * y_row));
    }
    dev_free(some);
}

static void one_product(const struct product *p)
{
    struct matrix x[MOST], w[MOST];
    struct weft_k_gemm_args cpu = {.dtype = p->dtype,
                                   .y_dtype = p->y_dtype,
                                   .m = p->m,
                                   .n = p->n,
                                   .n_blocks = p->n_blocks,
                                   .ldy = p->n,
                                   .accumulate = p->accumulate};
    struct weft_k_gemm_args gpu = cpu;
    size_t element = weft_dtype_bytes(p->dtype), n = (size_t) (p->m * p->n);
    size_t y_bytes = n * weft_dtype_bytes(p->y_dtype);
    void *packed[MOST];
    for (int b = 0; b < p->n_blocks; b++) {
        uint32_t seed = (uint32_t) b;
        x[b] = matrix_random(p->dtype, p->m, p->k[b], p->k[b], seed);
        w[b] = matrix_random(p->dtype, p->n, p->k[b], p->k[b], seed + 50);
        packed[b] = pack_matrix(&w[b], p->k[b]);
        cpu.k[b] = gpu.k[b] = cpu.ldx[b] = gpu.ldx[b] = p->k[b];
        cpu.x[b] = x[b].data;
        cpu.w[b] = packed[b];
        gpu.x[b] = dev_put(x[b].data, (size_t) (p->m * p->k[b]) * element);
        gpu.w[b] = p->dtype == WEFT_BF16
                     ? dev_put(w[b].data, (size_t) (p->n * p->k[b]) * element)
                     : dev_put(packed[b],
                               (size_t) (weft_round_up(p->n, 32) * p->k[b])
                                   * element);
    }
    float *bias = host_rows(3, p->n), *before = host_rows(4, (int64_t) n);
    void *y = weft_alloc_aligned(n, sizeof(float));
    memcpy(y, before, p->accumulate ? n * sizeof(float) : 0);
    cpu.y = y;
    gpu.y = dev_put(before, n * sizeof(float));
    if (p->bias) {
        cpu.bias = bias;
        gpu.bias = dev_put(bias, (size_t) p->n * sizeof(float));
    }
    if (p->residual) {
        cpu.residual = before;
        gpu.residual = dev_put(before, n * sizeof(float));
    }
    void *scratch = dev_new(weft_k_gemm_scratch_bytes_cuda(&gpu));
    weft_k_gemm(&cpu);
    weft_k_gemm_cuda(0, &gpu, scratch);
    require_products();
    if (products_are_cpus())
        CHECK(dev_same(gpu.y, y, y_bytes));
    dev_get(y, gpu.y, y_bytes);
    check_double(p, x, w, p->bias ? bias : NULL,
                 p->residual || p->accumulate ? before : NULL, y);
    check_rows(gpu, y, scratch);
    for (int b = 0; b < p->n_blocks; b++) {
        matrix_free(&x[b]);
        matrix_free(&w[b]);
        weft_free(packed[b]);
        dev_free((void *) (uintptr_t) gpu.x[b]);
        dev_free((void *) (uintptr_t) gpu.w[b]);
    }
    dev_free(gpu.y);
    dev_free(scratch);
    if (p->bias)
        dev_free((void *) (uintptr_t) gpu.bias);
    if (p->residual)
        dev_free((void *) (uintptr_t) gpu.residual);
    weft_free(bias);
    weft_free(before);
    weft_free(y);
}

static void test_products(void)
{
    static const struct product all[] = {
        {WEFT_F32, WEFT_F32, 1, 32, {1}, 1, false, false, false},
        {WEFT_F32, WEFT_F32, 19, 70, {33}, 1, false, false, false},
        {WEFT_F32, WEFT_F32, 3, 5, {8}, 1, false, false, true},
        {WEFT_F32, WEFT_F32, 22, 96, {16, 16, 40}, 3, true, true, false},
        {WEFT_F32,
         WEFT_F32,
         2,
         40,
         {1, 2, 3, 4, 5, 6, 7},
         7,
         true,
         false,
         false},
        {WEFT_F32, WEFT_BF16, 7, 64, {24}, 1, true, false, false},
        {WEFT_BF16, WEFT_BF16, 22, 64, {48}, 1, false, false, false},
        {WEFT_BF16, WEFT_F32, 1, 64, {2}, 1, false, false, false},
        {WEFT_BF16, WEFT_F32, 40, 72, {48}, 1, false, false, true},
        {WEFT_BF16,
         WEFT_F32,
         19,
         40,
         {16, 8, 24, 32, 16, 8, 8, 8},
         8,
         false,
         true,
         false},
        {WEFT_BF16, WEFT_BF16, 18, 32, {16, 8}, 2, true, true, false}};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        one_product(&all[i]);
}

/* ---- Kinds -------------------------------------------------------------- */

/* y with another leading dimension, or added to zeros, has the same bits, and
 * no choice of its own. */
static void other_results(enum weft_dtype dtype, enum weft_dtype y_dtype,
                          int64_t n, bool widest_first)
{
    enum { M = 5, K = 40, WIDER = 4 };
    size_t element = weft_dtype_bytes(y_dtype);
    struct matrix x = matrix_random(dtype, M, K, K, 1);
    struct matrix w = matrix_random(dtype, n, K, K, 2);
    void *packed = pack_matrix(&w, K);
    size_t w_bytes = (size_t) (weft_round_up(n, 32) * K)
                   * weft_dtype_bytes(dtype);
    struct weft_k_gemm_args a = {.dtype = dtype,
                                 .y_dtype = y_dtype,
                                 .m = M,
                                 .n = n,
                                 .n_blocks = 1,
                                 .ldx = {K},
                                 .k = {K}};
    char *got = weft_alloc_aligned(M * (size_t) n, element), *first = NULL;
    a.x[0] = dev_put(x.data, M * K * weft_dtype_bytes(dtype));
    a.w[0] = dtype == WEFT_BF16
               ? dev_put(w.data, (size_t) (n * K) * sizeof(uint16_t))
               : dev_put(packed, w_bytes);
    int n_kinds = weft_blaslt_n_kinds();
    for (int i = 0; i < WIDER; i++) {
        int64_t ld = n + 16 * (widest_first ? WIDER - 1 - i : i);
        void *zeros = test_alloc(M * ld, element);
        memset(zeros, 0, (size_t) (M * ld) * element);
        a.y = dev_put(zeros, (size_t) (M * ld) * element);
        a.ldy = ld;
        a.accumulate = i == 1;
        weft_k_gemm_cuda(0, &a, NULL);
        require_products();
        dev_get(zeros, a.y, (size_t) (M * ld) * element);
        for (int64_t r = 0; r < M; r++)
            memcpy(got + (size_t) (r * n) * element,
                   (char *) zeros + (size_t) (r * ld) * element,
                   (size_t) n * element);
        if (!first)
            first = memcpy(weft_alloc_aligned(M * (size_t) n, element), got,
                           M * (size_t) n * element);
        CHECK(memcmp(first, got, M * (size_t) n * element) == 0);
        dev_free(a.y);
        weft_free(zeros);
    }
    /* in f32 whole panels and the rest are two kinds */
    int of_panels = n >= 32 && n % 32 > 0 ? 2 : 1;
    CHECK_INT(weft_blaslt_n_kinds() - n_kinds,
              dtype == WEFT_F32 ? of_panels : 1);
    dev_free((void *) (uintptr_t) a.x[0]);
    dev_free((void *) (uintptr_t) a.w[0]);
    weft_free(first);
    weft_free(got);
    weft_free(packed);
    matrix_free(&x);
    matrix_free(&w);
}

/* Also by a library whose sums have another order, which depends on what it
 * was asked for. */
static void test_kinds(void)
{
    for (int own = 0; own < 2; own++) {
        if (own)
            setenv("WEFT_CARDS_SUMS", "own", 1);
        other_results(WEFT_BF16, WEFT_F32, 136 + 256 * own, false);
        other_results(WEFT_BF16, WEFT_BF16, 136 + 256 * own, true);
        other_results(WEFT_BF16, WEFT_F32, 142 + 256 * own, true);
        other_results(WEFT_F32, WEFT_F32, 172 + 260 * own, false);
    }
    unsetenv("WEFT_CARDS_SUMS");
}

/* ---- Gradients of weights ----------------------------------------------- */

static void one_dw(enum weft_dtype dtype, int64_t n, int64_t k)
{
    static const int32_t run_rows[] = {1, 3, 0, 8, 67, 5};
    int32_t n_runs = WEFT_COUNT(run_rows), m = 0;
    for (int32_t i = 0; i < n_runs; i++)
        m += run_rows[i];
    size_t element = weft_dtype_bytes(dtype);
    int64_t n_flat = weft_round_up(n, WEFT_PANEL) * k;
    struct matrix dy = matrix_random(dtype, m, n, n, 1);
    struct matrix x = matrix_random(dtype, m, k, k, 2);
    float *grad = host_rows(7, n_flat), *parts = host_copy(grad, n_flat);
    float *first = host_copy(grad, n_flat);
    struct weft_k_gemm_dw_args cpu = {.dtype = dtype,
                                      .n = n,
                                      .k = k,
                                      .n_runs = n_runs,
                                      .run_rows = run_rows,
                                      .dy = dy.data,
                                      .lddy = n,
                                      .x = x.data,
                                      .ldx = k,
                                      .grad = grad};
    struct weft_k_gemm_dw_args gpu = cpu;
    cpu.scratch = weft_alloc_aligned(
        weft_k_gemm_dw_scratch_bytes(dtype, m, n_runs, n, k), 1);
    gpu.dy = dev_put(dy.data, (size_t) (m * n) * element);
    gpu.x = dev_put(x.data, (size_t) (m * k) * element);
    gpu.grad = dev_put(first, (size_t) n_flat * sizeof(float));
    weft_k_gemm_dw(&cpu);
    weft_k_gemm_dw_cuda(0, &gpu);
    require_products();
    if (products_are_cpus())
        CHECK(dev_same(gpu.grad, grad, (size_t) n_flat * sizeof(float)));
    dev_get(grad, gpu.grad, (size_t) n_flat * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t at = packed_index(WEFT_F32, k, i, j);
            double want = (double) first[at], size = fabs(want);
            for (int32_t r = 0; r < m; r++) {
                double term = (double) dy.f[r * n + i]
                            * (double) x.f[r * k + j];
                want += term;
                size += fabs(term);
            }
            CHECK(fabs((double) grad[at] - want) <= 100 * 0x1p-24 * size);
        }
    /* The same samples in two micro-batches. */
    dev_set(gpu.grad, parts, (size_t) n_flat * sizeof(float));
    gpu.n_runs = 2;
    weft_k_gemm_dw_cuda(0, &gpu);
    gpu.run_rows += 2;
    gpu.n_runs = n_runs - 2;
    const char *dy_rest = (const char *) gpu.dy + (size_t) (4 * n) * element;
    const char *x_rest = (const char *) gpu.x + (size_t) (4 * k) * element;
    struct weft_k_gemm_dw_args rest = gpu;
    rest.dy = dy_rest;
    rest.x = x_rest;
    weft_k_gemm_dw_cuda(0, &rest);
    require_products();
    CHECK(dev_same(gpu.grad, grad, (size_t) n_flat * sizeof(float)));
    dev_free((void *) (uintptr_t) gpu.dy);
    dev_free((void *) (uintptr_t) gpu.x);
    dev_free(gpu.grad);
    weft_free(cpu.scratch);
    weft_free(grad);
    weft_free(parts);
    weft_free(first);
    matrix_free(&dy);
    matrix_free(&x);
}

/* Also more than a block's 128 columns, and rows that are not aligned. */
static void bf16_dws(void)
{
    one_dw(WEFT_BF16, 64, 48);
    one_dw(WEFT_BF16, 72, 32);
    one_dw(WEFT_BF16, 200, 136);
    one_dw(WEFT_BF16, 135, 33);
}

static void test_dw(void)
{
    one_dw(WEFT_F32, 32, 16);
    one_dw(WEFT_F32, 70, 33);
    one_dw(WEFT_F32, 5, 8);
    each_order(bf16_dws);
}

/* ---- The choice --------------------------------------------------------- */

#ifdef WEFT_CUDA_EXECUTOR
/* What was chosen on one card is not chosen again on another like it. */
static void test_cards(void)
{
    struct product p = {.m = 3, .n = 28, .k = {8}, .n_blocks = 1};
    setenv("WEFT_CARDS", "2", 1); /* before the first card is used */
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    one_product(&p);
    int n_kinds = weft_blaslt_n_kinds();
    CHECK_INT(n_kinds, 1);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    one_product(&p);
    CHECK_INT(weft_blaslt_n_kinds(), n_kinds);
}

/* Asks for a product of another size each time, as choices are kept. */
static int choose(int64_t n)
{
    int32_t one = 1;
    struct weft_k_gemm_args a = {
        .m = 1, .n = n, .n_blocks = 1, .ldx = {8}, .k = {8}, .ldy = n};
    struct weft_k_gemm_dw_args dw = {
        .n = n, .k = 8, .n_runs = 1, .run_rows = &one, .lddy = n, .ldx = 8};
    weft_k_gemm_cuda(0, &a, NULL);
    weft_k_gemm_dw_cuda(0, &dw);
    struct weft_err err = {0};
    int rc = weft_k_products_error_cuda(&err);
    CHECK(rc == 0
          || strstr(err.text, "none of cuBLASLt's 6 algorithms for products")
          || strstr(err.text,
                    "of the GPU's memory, of which 0.0 MiB are free"));
    return rc;
}

/* Of what the library proposes, none of the bad ones is chosen. */
static void test_choice(void)
{
    static const char *const bad[] = {"failed", "split", "workspace",
                                      "uneven", "many"};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        setenv("WEFT_CARDS_ALGORITHM", bad[i], 1);
        CHECK(choose(16) == WEFT_EUNSUPPORTED);
        unsetenv("WEFT_CARDS_ALGORITHM");
    }
    CHECK(choose(16) == 0);
}

/* The columns for which the algorithm was proposed that has computed a
 * product of m rows, and how many launches it took; 0 columns: none that may
 * be chosen. */
static int proposed_for(struct weft_k_gemm_args *a, int64_t m, int *n_out)
{
    int64_t before[128];
    int columns = 0;
    *n_out = 0;
    for (int i = 0; i < 128; i++)
        before[i] = weft_cards_products(i);
    a->m = m;
    weft_k_gemm_cuda(0, a, NULL);
    require_products();
    for (int i = 0; i < 128; i++)
        if (weft_cards_products(i) > before[i]) {
            columns = i;
            *n_out += (int) (weft_cards_products(i) - before[i]);
        }
    return columns;
}

struct proposed {
    int64_t m;
    int columns, n_launches;
};

/* By which algorithms products with some numbers of rows are computed; the
 * bits of a row are the same in all of them. */
static void check_sizes(enum weft_dtype y_dtype, int64_t n, int64_t k,
                        const struct proposed *want, size_t n_want)
{
    enum { M = 120 };
    size_t element = weft_dtype_bytes(y_dtype);
    struct matrix x = matrix_random(WEFT_BF16, M, k, k, 1);
    struct matrix w = matrix_random(WEFT_BF16, n, k, k, 2);
    struct weft_k_gemm_args a = {.dtype = WEFT_BF16,
                                 .y_dtype = y_dtype,
                                 .m = M,
                                 .n = n,
                                 .n_blocks = 1,
                                 .ldx = {k},
                                 .k = {k},
                                 .y = dev_new((size_t) (M * n) * element),
                                 .ldy = n};
    char *all = weft_alloc_aligned((size_t) (M * n), element);
    a.x[0] = dev_put(x.data, (size_t) (M * k) * sizeof(uint16_t));
    a.w[0] = dev_put(w.data, (size_t) (n * k) * sizeof(uint16_t));
    weft_k_gemm_cuda(0, &a, NULL); /* counts what is tested, too */
    dev_get(all, a.y, (size_t) (M * n) * element);
    for (size_t i = 0; i < n_want; i++) {
        int n_launches, columns = proposed_for(&a, want[i].m, &n_launches);
        CHECK_INT(columns, want[i].columns);
        CHECK_INT(n_launches, want[i].n_launches);
        CHECK(dev_same(a.y, all, (size_t) (want[i].m * n) * element));
    }
    dev_free((void *) (uintptr_t) a.x[0]);
    dev_free((void *) (uintptr_t) a.w[0]);
    dev_free(a.y);
    weft_free(all);
    matrix_free(&x);
    matrix_free(&w);
}

/* Few and many rows have algorithms of their own. Those that come first for
 * them have another order of sums, and are refused, also where results are
 * few and rounded to bf16; where there are no others, all rows have the one
 * for 8. More rows than are tested are computed in pieces. */
static void test_sizes(void)
{
    static const struct proposed each[] = {
        {1, 2, 1},   {2, 2, 1},   {3, 4, 1},   {4, 4, 1},
        {5, 8, 1},   {8, 8, 1},   {9, 16, 1},  {16, 16, 1},
        {17, 96, 1}, {96, 96, 1}, {97, 96, 2}, {120, 96, 2}};
    static const struct proposed some[] = {
        {1, 8, 1}, {4, 8, 1}, {8, 8, 1}, {16, 16, 1}, {17, 8, 1}, {97, 8, 2}};
    static const struct proposed wide[] = {
        {2, 2, 1}, {16, 16, 1}, {17, 16, 2}, {40, 16, 3}};
    for (int own = 0; own < 2; own++) {
        if (own)
            setenv("WEFT_CARDS_SUMS", "own", 1);
        check_sizes(WEFT_F32, 80 + 8 * own, 64, each, WEFT_COUNT(each));
        check_sizes(WEFT_BF16, 80 + 8 * own, 64, each, WEFT_COUNT(each));
        check_sizes(WEFT_BF16, 8, 16 + 8 * own, each, WEFT_COUNT(each));
        check_sizes(WEFT_F32, 1104 + 8 * own, 16, wide, WEFT_COUNT(wide));
        setenv("WEFT_CARDS_ALGORITHM", "other", 1);
        check_sizes(WEFT_BF16, 96 + 8 * own, 64, some, WEFT_COUNT(some));
        unsetenv("WEFT_CARDS_ALGORITHM");
    }
    unsetenv("WEFT_CARDS_SUMS");
}

/* They are tested in memory that is free; a choice that failed for lack of it is
 * made again. */
static void test_no_memory(void)
{
    size_t left = 0, total = 0;
    void *all = NULL;
    REQUIRE(cudaMemGetInfo(&left, &total) == cudaSuccess);
    REQUIRE(cudaMalloc(&all, left) == cudaSuccess);
    CHECK(choose(40) == WEFT_ENOMEM);
    REQUIRE(cudaFree(all) == cudaSuccess);
    CHECK(choose(40) == 0);
}
#else
static void test_cards(void)
{
    weft_test_skip("a machine may have one card");
}

static void test_sizes(void)
{
    weft_test_skip("only emulated cards say what they were asked for");
}

static void test_choice(void)
{
    weft_test_skip("only emulated cards have bad algorithms");
}

static void test_no_memory(void)
{
    weft_test_skip("it would take all of a card's memory");
}
#endif

/* A library that is not there, and one that lacks functions; products go on
 * with the one that was opened before. */
static void test_opening(void)
{
    struct product p = {.m = 3, .n = 24, .k = {8}, .n_blocks = 1};
    struct weft_err err;
    CHECK_FAILS(
        weft_blaslt_open("libweft-none.so", "/none/libcublasLt.so", &err),
        WEFT_ENOTFOUND, err,
        "products on GPUs need cuBLASLt: /none/libcublasLt.so");
    CHECK_FAILS(weft_blaslt_open("libweft-none.so", "libm.so.6", &err),
                WEFT_EUNSUPPORTED, err,
                "libm.so.6 lacks functions that Weft needs");
    one_product(&p);
}

WEFT_CUDA_TESTS("kern/products_cuda", {"test_cards", test_cards},
                {"test_products", test_products}, {"test_kinds", test_kinds},
                {"test_dw", test_dw}, {"test_sizes", test_sizes},
                {"test_choice", test_choice},
                {"test_no_memory", test_no_memory},
                {"test_opening", test_opening})
