/* SPDX-License-Identifier: Apache-2.0 */
/* Weight gradients: against a double loop, against the chain written out,
 * and the same bits wherever the samples are cut into calls. */
#include "products.h"

/* dy^T x over samples of `run` rows each. */
struct problem {
    struct weft_k_gemm_dw_args a;
    struct matrix dy, x;
    int64_t n_pad, n_flat, m;
    float *start; /* the gradient before */
};

static struct problem problem_make(enum weft_dtype dtype, int64_t n,
                                   int64_t k, const int32_t *run,
                                   int32_t n_runs)
{
    struct problem p = {.n_pad = weft_round_up(n, 32)};
    for (int32_t i = 0; i < n_runs; i++)
        p.m += run[i];
    p.dy = matrix_random(dtype, p.m, n, n + 1, 1);
    p.x = matrix_random(dtype, p.m, k, k + 6, 2);
    p.n_flat = p.n_pad * k;
    p.start = test_alloc(p.n_flat, sizeof(float));
    for (int64_t i = 0; i < p.n_flat; i++)
        p.start[i] = test_uniform(3, i);
    p.a = (struct weft_k_gemm_dw_args){
        .dtype = dtype,
        .n = n,
        .k = k,
        .n_runs = n_runs,
        .run_rows = run,
        .dy = p.dy.data,
        .lddy = p.dy.ld,
        .x = p.x.data,
        .ldx = p.x.ld,
    };
    return p;
}

static void problem_free(struct problem *p)
{
    matrix_free(&p->dy);
    matrix_free(&p->x);
    weft_free(p->start);
}

/* Scratch ends in bytes nobody may touch. */
static void run_checked(struct weft_k_gemm_dw_args *a)
{
    enum { GUARD = 64 };
    int64_t rows = 0;
    for (int32_t i = 0; i < a->n_runs; i++)
        rows += a->run_rows[i];
    size_t bytes = weft_k_gemm_dw_scratch_bytes(a->dtype, rows, a->n_runs,
                                                a->n, a->k);
    char *scratch = weft_alloc_aligned(bytes + GUARD, 1), guard[GUARD];
    REQUIRE(scratch != NULL);
    memset(scratch, 0xff, bytes + GUARD); /* NaN, if read unwritten */
    memset(guard, 0xff, GUARD);
    a->scratch = scratch;
    weft_k_gemm_dw(a);
    CHECK(memcmp(scratch + bytes, guard, GUARD) == 0);
    weft_free(scratch);
}

/* Runs the samples [first, last) alone. */
static void run_part(const struct problem *p, int32_t first, int32_t last,
                     float *grad)
{
    struct weft_k_gemm_dw_args a = p->a;
    int64_t row = 0, size = (int64_t) weft_dtype_bytes(a.dtype);
    for (int32_t i = 0; i < first; i++)
        row += a.run_rows[i];
    a.run_rows += first;
    a.n_runs = last - first;
    a.dy = (const char *) a.dy + row * a.lddy * size;
    a.x = (const char *) a.x + row * a.ldx * size;
    a.grad = grad;
    run_checked(&a);
}

static float *run_whole(const struct problem *p)
{
    float *grad = test_alloc(p->n_flat, sizeof(float));
    memcpy(grad, p->start, (size_t) p->n_flat * sizeof(float));
    run_part(p, 0, p->a.n_runs, grad);
    return grad;
}

static float element_chain(const struct problem *p, int64_t n, int64_t k,
                           float acc)
{
    int64_t row = 0;
    for (int32_t r = 0; r < p->a.n_runs; r++) {
        int64_t end = row + p->a.run_rows[r];
        while (row < end) {
            float dy[2] = {p->dy.f[row * p->dy.ld + n], 0};
            float x[2] = {p->x.f[row * p->x.ld + k], 0};
            if (p->a.dtype == WEFT_F32) {
                acc = test_madd(dy[0], x[0], acc);
                row++;
                continue;
            }
            if (row + 1 < end) {
                dy[1] = p->dy.f[(row + 1) * p->dy.ld + n];
                x[1] = p->x.f[(row + 1) * p->x.ld + k];
            }
            acc = test_pair(dy, x, acc);
            row = weft_min64(row + 2, end);
        }
    }
    return acc;
}

/* Tolerance: a chain of M additions, (M + 1) 2^-24 sum |terms| (Higham 2002,
 * section 3.1), twice that for the C set, whose products round too. */
static void check_values(const struct problem *p, const float *grad)
{
    int64_t wrong = 0, inexact = 0, touched = 0;
    for (int64_t n = 0; n < p->n_pad; n++)
        for (int64_t k = 0; k < p->a.k; k++) {
            int64_t at = (n / 32 * p->a.k + k) * 32 + n % 32;
            float g = grad[at], g0 = p->start[at];
            double sum = g0, size = fabs(sum);
            if (n >= p->a.n) {
                touched += !same_bits(&g, &g0, 1, sizeof g);
                continue;
            }
            for (int64_t i = 0; i < p->m; i++) {
                double term = (double) p->dy.f[i * p->dy.ld + n]
                            * p->x.f[i * p->x.ld + k];
                sum += term;
                size += fabs(term);
            }
            wrong += !(fabs(g - sum)
                       <= 2 * (double) (p->m + 1) * 0x1p-24 * size);
            if (test_chain_known(p->a.dtype))
                inexact += element_chain(p, n, k, g0) != g;
        }
    CHECK_INT(wrong, 0);
    CHECK_INT(inexact, 0);
    CHECK_INT(touched, 0);
}

static void test_dw_edges(void)
{
    static const int64_t sizes[] = {1, 12, 13, 31, 32, 33, 70};
    static const int32_t runs[][4] = {{1}, {2}, {5, 2, 1, 4}, {33, 0, 7, 64}};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (size_t i = 0; i < WEFT_COUNT(sizes) * WEFT_COUNT(sizes); i++)
            for (size_t r = 0; r < 2 * WEFT_COUNT(runs); r++) {
                struct problem p = problem_make(r % 2 ? WEFT_BF16 : WEFT_F32,
                                                sizes[i / WEFT_COUNT(sizes)],
                                                sizes[i % WEFT_COUNT(sizes)],
                                                runs[r / 2],
                                                r / 2 < 2 ? 1 : 4);
                float *grad = run_whole(&p);
                check_values(&p, grad);
                weft_free(grad);
                problem_free(&p);
            }
    }
}

/* More tokens than are packed at once. */
static void test_dw_long(void)
{
    static const int32_t runs[] = {511, 3, 700, 1025, 1};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int d = 0; d < 2; d++) {
            struct problem p = problem_make(d ? WEFT_BF16 : WEFT_F32, 40, 50,
                                            runs, WEFT_COUNT(runs));
            float *grad = run_whole(&p);
            check_values(&p, grad);
            weft_free(grad);
            problem_free(&p);
        }
    }
}

/* One call, or a call for every sample, or any cut between: same bits. */
static void test_dw_cuts(void)
{
    static const int32_t runs[] = {3, 8, 1, 1, 5, 600, 2, 9, 515, 4};
    enum { RUNS = WEFT_COUNT(runs) };
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int d = 0; d < 2; d++) {
            struct problem p = problem_make(d ? WEFT_BF16 : WEFT_F32, 45, 27,
                                            runs, RUNS);
            float *whole = run_whole(&p);
            float *grad = test_alloc(p.n_flat, sizeof(float));
            /* Bit i of `cuts`: a new call begins after sample i. */
            for (uint32_t cuts = 0; cuts < 1u << (RUNS - 1); cuts += 23) {
                memcpy(grad, p.start, (size_t) p.n_flat * sizeof(float));
                int32_t first = 0;
                for (int32_t i = 0; i < RUNS; i++)
                    if (i == RUNS - 1 || (cuts >> i & 1)) {
                        run_part(&p, first, i + 1, grad);
                        first = i + 1;
                    }
                CHECK(same_bits(grad, whole, p.n_flat, sizeof(float)));
            }
            weft_free(grad);
            weft_free(whole);
            problem_free(&p);
        }
    }
}

static void test_dw_nothing(void)
{
    static const int32_t runs[] = {0, 0};
    struct problem p = problem_make(WEFT_BF16, 5, 5, runs, 2);
    float *grad = run_whole(&p);
    CHECK(same_bits(grad, p.start, p.n_flat, sizeof(float)));
    weft_free(grad);
    problem_free(&p);
}

WEFT_TESTS("kern/gemm_dw", {"test_dw_edges", test_dw_edges},
           {"test_dw_long", test_dw_long}, {"test_dw_cuts", test_dw_cuts},
           {"test_dw_nothing", test_dw_nothing})
