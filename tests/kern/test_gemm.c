/* SPDX-License-Identifier: Apache-2.0 */
/* Products: against a double loop, against the chain and the tree written
 * out, and the same bits whatever else is in the batch. */
#include "products.h"

/* One product and its operands. */
struct problem {
    struct weft_k_gemm_args a;
    struct matrix x[WEFT_MAX_BLOCKS], w[WEFT_MAX_BLOCKS];
    void *packed[WEFT_MAX_BLOCKS];
    float *y;
};

static struct problem problem_make(enum weft_dtype dtype, int64_t m,
                                   int64_t n, int blocks, const int64_t *k)
{
    struct problem p = {.a = {.dtype = dtype,
                              .y_dtype = WEFT_F32,
                              .m = m,
                              .n = n,
                              .n_blocks = blocks}};
    for (int b = 0; b < blocks; b++) {
        p.x[b] = matrix_random(dtype, m, k[b], k[b] + 3, 10 + (uint32_t) b);
        p.w[b] = matrix_random(dtype, n, k[b], k[b], 20 + (uint32_t) b);
        p.packed[b] = pack_matrix(&p.w[b], k[b]);
        p.a.x[b] = p.x[b].data;
        p.a.ldx[b] = p.x[b].ld;
        p.a.w[b] = p.packed[b];
        p.a.k[b] = k[b];
    }
    p.a.ldy = n + 5;
    p.y = test_alloc(m * p.a.ldy, sizeof(float));
    for (int64_t i = 0; i < m * p.a.ldy; i++)
        p.y[i] = 7;
    p.a.y = p.y;
    return p;
}

static void problem_free(struct problem *p)
{
    for (int b = 0; b < p->a.n_blocks; b++) {
        matrix_free(&p->x[b]);
        matrix_free(&p->w[b]);
        weft_free(p->packed[b]);
    }
    weft_free(p->y);
}

/* The chain of block b for element (i, j), from `acc`. */
static float chain(const struct problem *p, int b, int64_t i, int64_t j,
                   float acc)
{
    const float *x = p->x[b].f + i * p->x[b].ld;
    const float *w = p->w[b].f + j * p->w[b].ld;
    if (p->a.dtype == WEFT_F32)
        for (int64_t k = 0; k < p->a.k[b]; k++)
            acc = test_madd(x[k], w[k], acc);
    else
        for (int64_t k = 0; k < p->a.k[b]; k += 2)
            acc = test_pair(x + k, w + k, acc);
    return acc;
}

/* Pairs from the left, level after level. */
static float tree(float *v, int n)
{
    while (n > 1) {
        for (int i = 0; i < n / 2; i++)
            v[i] = v[2 * i] + v[2 * i + 1];
        if (n % 2)
            v[n / 2] = v[n - 1];
        n = (n + 1) / 2;
    }
    return v[0];
}

/* Tolerance: a chain of K additions of f32 and a tree of depth 5 err by at
 * most (K + 5) 2^-24 sum |x w| to first order (Higham 2002, section 3.1);
 * twice that for the C set, whose products round too. */
static void check_against_double(const struct problem *p)
{
    const struct weft_k_gemm_args *a = &p->a;
    int64_t bad = 0, spilled = 0;
    for (int64_t i = 0; i < a->m; i++) {
        for (int64_t j = 0; j < a->n; j++) {
            double sum = 0, size = 0, terms = 5;
            for (int b = 0; b < a->n_blocks; b++) {
                const float *x = p->x[b].f + i * p->x[b].ld;
                const float *w = p->w[b].f + j * p->w[b].ld;
                for (int64_t k = 0; k < a->k[b]; k++) {
                    sum += (double) x[k] * w[k];
                    size += fabs((double) x[k] * w[k]);
                }
                terms += (double) a->k[b];
            }
            double err = fabs(p->y[i * a->ldy + j] - sum);
            bad += !(err <= 2 * terms * 0x1p-24 * size);
        }
        for (int64_t j = a->n; j < a->ldy; j++)
            spilled += p->y[i * a->ldy + j] != 7;
    }
    CHECK_INT(bad, 0);
    CHECK_INT(spilled, 0);
}

static void check_exactly(const struct problem *p)
{
    const struct weft_k_gemm_args *a = &p->a;
    int64_t bad = 0;
    if (!test_chain_known(a->dtype))
        return;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t j = 0; j < a->n; j++) {
            float v[WEFT_MAX_BLOCKS];
            for (int b = 0; b < a->n_blocks; b++)
                v[b] = chain(p, b, i, j, 0);
            bad += tree(v, a->n_blocks) != p->y[i * a->ldy + j];
        }
    CHECK_INT(bad, 0);
}

static void test_gemm_edges(void)
{
    static const int64_t m[] = {1, 2, 5, 11, 12, 13, 29, 100};
    static const int64_t n[] = {1, 31, 32, 33, 96};
    static const int64_t k[] = {2, 30, 64, 130};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (size_t i = 0; i < WEFT_COUNT(m) * WEFT_COUNT(n); i++)
            for (size_t j = 0; j < 2 * WEFT_COUNT(k); j++) {
                struct problem p = problem_make(
                    j % 2 ? WEFT_BF16 : WEFT_F32, m[i % WEFT_COUNT(m)],
                    n[i / WEFT_COUNT(m)], 1, &k[j / 2]);
                weft_k_gemm(&p.a);
                check_against_double(&p);
                check_exactly(&p);
                problem_free(&p);
            }
    }
}

/* k longer than a chain's chunk, and more rows than a group. */
static void test_gemm_long(void)
{
    static const int64_t k[] = {2050, 4096};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int d = 0; d < 2; d++) {
            struct problem p = problem_make(d ? WEFT_BF16 : WEFT_F32, 109, 40,
                                            2, k);
            weft_k_gemm(&p.a);
            check_against_double(&p);
            check_exactly(&p);
            problem_free(&p);
        }
    }
}

/* Depths of as many blocks as there may be: of the first eight as in a tree of
 * eight, of the others in turns. */
static void depths(int64_t k[WEFT_MAX_BLOCKS])
{
    static const int64_t some[] = {34, 2, 96, 64, 32, 66, 10, 128};
    for (int b = 0; b < WEFT_MAX_BLOCKS; b++)
        k[b] = some[(b + b / 8) % 8];
}

static void test_gemm_tree(void)
{
    int64_t k[WEFT_MAX_BLOCKS];
    depths(k);
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int blocks = 1; blocks <= WEFT_MAX_BLOCKS; blocks++)
            for (int d = 0; d < 2; d++) {
                struct problem p = problem_make(d ? WEFT_BF16 : WEFT_F32, 17,
                                                65, blocks, k);
                weft_k_gemm(&p.a);
                check_against_double(&p);
                check_exactly(&p);
                problem_free(&p);
            }
    }
}

/* Each block alone, joined by hand: for sets whose chain is the CPU's. */
static void test_gemm_tree_of_chains(void)
{
    int64_t k[WEFT_MAX_BLOCKS];
    depths(k);
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int blocks = 1; blocks <= WEFT_MAX_BLOCKS; blocks++) {
            struct problem p = problem_make(WEFT_BF16, 13, 33, blocks, k);
            float *part = test_alloc(blocks * 13 * 33, sizeof(float));
            weft_k_gemm(&p.a);
            for (int b = 0; b < blocks; b++) {
                struct weft_k_gemm_args one = p.a;
                one.n_blocks = 1;
                one.x[0] = p.a.x[b];
                one.ldx[0] = p.a.ldx[b];
                one.w[0] = p.a.w[b];
                one.k[0] = p.a.k[b];
                one.y = part + b * 13 * 33;
                one.ldy = 33;
                weft_k_gemm(&one);
            }
            int bad = 0;
            for (int i = 0; i < 13 * 33; i++) {
                float v[WEFT_MAX_BLOCKS];
                for (int b = 0; b < blocks; b++)
                    v[b] = part[b * 13 * 33 + i];
                bad += tree(v, blocks) != p.y[i / 33 * p.a.ldy + i % 33];
            }
            CHECK_INT(bad, 0);
            weft_free(part);
            problem_free(&p);
        }
    }
}

/* Any rows of a batch, alone or in batches of 1..33 at any place. */
static void test_gemm_batch_invariant(void)
{
    static const int64_t k[] = {192, 66};
    enum { ROWS = 150, N = 70 };
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int d = 0; d < 4; d++) {
            struct problem p = problem_make(d % 2 ? WEFT_BF16 : WEFT_F32,
                                            ROWS, N, 1 + d / 2, k);
            int64_t size = (int64_t) weft_dtype_bytes(p.a.dtype);
            int64_t bad = 0;
            weft_k_gemm(&p.a);
            float *y = test_alloc(ROWS * p.a.ldy, sizeof(float));
            for (int64_t m = 1; m <= 33; m++) {
                struct weft_k_gemm_args some = p.a;
                int64_t row = (m * 37) % (ROWS - m + 1);
                some.m = m;
                some.y = y;
                for (int b = 0; b < p.a.n_blocks; b++)
                    some.x[b] = (const char *) p.a.x[b]
                              + row * p.a.ldx[b] * size;
                weft_k_gemm(&some);
                for (int64_t i = 0; i < m; i++)
                    bad += !same_bits(y + i * p.a.ldy,
                                      p.y + (row + i) * p.a.ldy, N,
                                      sizeof(float));
            }
            CHECK_INT(bad, 0);
            weft_free(y);
            problem_free(&p);
        }
    }
}

/* Columns are of no consequence for one another either. */
static void test_gemm_columns(void)
{
    static const int64_t k[] = {80};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int d = 0; d < 2; d++) {
            struct problem p = problem_make(d ? WEFT_BF16 : WEFT_F32, 20, 100,
                                            1, k);
            weft_k_gemm(&p.a);
            float *y = test_alloc(20 * 100, sizeof(float));
            for (int64_t n = 1; n <= 100; n += 11) {
                struct weft_k_gemm_args some = p.a;
                some.n = n;
                some.y = y;
                some.ldy = n;
                weft_k_gemm(&some);
                for (int64_t i = 0; i < 20; i++)
                    CHECK(same_bits(y + i * n, p.y + i * p.a.ldy, n,
                                    sizeof(float)));
            }
            weft_free(y);
            problem_free(&p);
        }
    }
}

/* Bias, residual in place, and rounding, in that order. */
static void check_ends(enum weft_dtype dtype, int64_t n)
{
    static const int64_t k[] = {48, 16};
    struct problem p = problem_make(dtype, 14, n, 2, k);
    struct weft_k_gemm_args a = p.a;
    float *bias = test_alloc(n, sizeof(float));
    float *sum = test_alloc(14 * a.ldy, sizeof(float));
    uint16_t *rounded = test_alloc(14 * a.ldy, sizeof(uint16_t));
    float *in_place = test_alloc(14 * a.ldy, sizeof(float));
    for (int64_t j = 0; j < n; j++)
        bias[j] = test_uniform(3, j);
    for (int64_t i = 0; i < 14 * a.ldy; i++)
        in_place[i] = sum[i] = test_uniform(4, i);
    weft_k_gemm(&a);
    for (int64_t i = 0; i < 14 * n; i++) {
        int64_t at = i / n * a.ldy + i % n;
        sum[at] = (p.y[at] + bias[i % n]) + sum[at];
    }
    a.bias = bias;
    a.residual = a.y = in_place;
    weft_k_gemm(&a);
    CHECK(same_bits(in_place, sum, 14 * a.ldy, sizeof(float)));
    a.residual = NULL;
    a.y_dtype = WEFT_BF16;
    a.y = rounded;
    weft_k_gemm(&a);
    int bad = 0;
    for (int64_t i = 0; i < 14 * n; i++) {
        int64_t at = i / n * a.ldy + i % n;
        bad += rounded[at] != weft_f32_to_bf16(p.y[at] + bias[i % n]);
    }
    CHECK_INT(bad, 0);
    weft_free(bias);
    weft_free(sum);
    weft_free(rounded);
    weft_free(in_place);
    problem_free(&p);
}

static void test_gemm_bias_residual_round(void)
{
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int d = 0; d < 2; d++) {
            check_ends(d ? WEFT_BF16 : WEFT_F32, 64);
            check_ends(d ? WEFT_BF16 : WEFT_F32, 47);
        }
    }
}

/* A chain cut anywhere and continued from y is the chain; and panels deeper
 * than k are stepped over, not read. */
static void test_gemm_accumulate(void)
{
    static const int64_t k[] = {100}, cut[] = {2, 46, 98};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int t = 0; t < 12; t++) {
            enum weft_dtype dtype = t % 2 ? WEFT_BF16 : WEFT_F32;
            int64_t size = (int64_t) weft_dtype_bytes(dtype);
            struct problem p = problem_make(dtype, 15, t / 6 ? 64 : 41, 1, k);
            float *y = test_alloc(15 * p.a.ldy, sizeof(float));
            weft_k_gemm(&p.a);
            struct weft_k_gemm_args a = p.a;
            a.y = y;
            a.kstride[0] = a.k[0];
            a.k[0] = cut[t / 2 % 3];
            weft_k_gemm(&a);
            a.x[0] = (const char *) a.x[0] + a.k[0] * size;
            a.w[0] = (const char *) a.w[0] + a.k[0] * size * 32;
            a.k[0] = 100 - a.k[0];
            a.accumulate = true;
            weft_k_gemm(&a);
            for (int64_t i = 0; i < 15; i++)
                CHECK(same_bits(y + i * a.ldy, p.y + i * a.ldy, a.n,
                                sizeof(float)));
            weft_free(y);
            problem_free(&p);
        }
    }
}

static void test_gemm_kstride(void)
{
    static const int64_t k[] = {54};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (int d = 0; d < 2; d++) {
            struct problem p = problem_make(d ? WEFT_BF16 : WEFT_F32, 9, 70,
                                            1, k);
            void *deep = pack_matrix(&p.w[0], 64);
            p.a.w[0] = deep;
            p.a.kstride[0] = 64;
            weft_k_gemm(&p.a);
            check_against_double(&p);
            check_exactly(&p);
            weft_free(deep);
            problem_free(&p);
        }
    }
}

static void test_gemm_nothing(void)
{
    static const int64_t k[] = {32};
    struct problem p = problem_make(WEFT_F32, 3, 40, 1, k);
    p.a.m = 0;
    weft_k_gemm(&p.a);
    CHECK(p.y[0] == 7);
    problem_free(&p);
}

WEFT_TESTS("kern/gemm", {"test_gemm_edges", test_gemm_edges},
           {"test_gemm_long", test_gemm_long},
           {"test_gemm_tree", test_gemm_tree},
           {"test_gemm_tree_of_chains", test_gemm_tree_of_chains},
           {"test_gemm_batch_invariant", test_gemm_batch_invariant},
           {"test_gemm_columns", test_gemm_columns},
           {"test_gemm_bias_residual_round", test_gemm_bias_residual_round},
           {"test_gemm_accumulate", test_gemm_accumulate},
           {"test_gemm_kstride", test_gemm_kstride},
           {"test_gemm_nothing", test_gemm_nothing})
