/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of products: random matrices in a dtype, packing by the formula
 * of kern.h, and the chain of one element written out, step after step.
 */
#ifndef WEFT_TESTS_KERN_PRODUCTS_H
#define WEFT_TESTS_KERN_PRODUCTS_H

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "harness.h"
#include "kern/kern.h"

/* A row-major matrix in `dtype`; `f` are the same numbers as f32. */
struct matrix {
    enum weft_dtype dtype;
    int64_t rows, cols, ld;
    void *data;
    float *f;
};

static inline void *test_alloc(int64_t n, size_t size)
{
    void *p = weft_alloc((size_t) n, size);
    if (!p)
        abort();
    return p;
}

/* Uniform in [-1, 1), keyed by (seed, index). */
static inline float test_uniform(uint32_t seed, int64_t i)
{
    uint64_t z = (uint64_t) i * 0x9e3779b97f4a7c15u
               + (uint64_t) (seed + 1) * 0xd1342543de82ef95u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float) (int32_t) (z >> 32) * 0x1p-31f;
}

static inline void matrix_set(struct matrix *a, int64_t at, float x)
{
    if (a->dtype == WEFT_F32) {
        ((float *) a->data)[at] = a->f[at] = x;
    } else {
        uint16_t b = weft_f32_to_bf16(x);
        ((uint16_t *) a->data)[at] = b;
        a->f[at] = weft_bf16_to_f32(b);
    }
}

/* Gaps between the rows are NaN: nobody may read them. */
static inline struct matrix matrix_random(enum weft_dtype dtype, int64_t rows,
                                          int64_t cols, int64_t ld,
                                          uint32_t seed)
{
    struct matrix a = {dtype, rows, cols, ld, NULL, NULL};
    a.data = test_alloc(rows * ld, weft_dtype_bytes(dtype));
    a.f = test_alloc(rows * ld, sizeof(float));
    for (int64_t i = 0; i < rows * ld; i++)
        matrix_set(&a, i, i % ld < cols ? test_uniform(seed, i) : NAN);
    return a;
}

static inline void matrix_free(struct matrix *a)
{
    weft_free(a->data);
    weft_free(a->f);
}

/* Where element (n, k) of panels of depth `depth` is. */
static inline int64_t packed_index(enum weft_dtype dtype, int64_t depth,
                                   int64_t n, int64_t k)
{
    int64_t panel = n / 32, lane = n % 32;
    if (dtype == WEFT_F32)
        return (panel * depth + k) * 32 + lane;
    return ((panel * (depth / 2) + k / 2) * 32 + lane) * 2 + k % 2;
}

/* W published in panels of depth `depth` >= its columns; what is beyond its
 * rows is zero, beyond its columns NaN. */
static inline void *pack_matrix(const struct matrix *w, int64_t depth)
{
    int64_t n_pad = weft_round_up(w->rows, 32);
    size_t size = weft_dtype_bytes(w->dtype);
    char *out = test_alloc(n_pad * depth, size);
    for (int64_t n = 0; n < n_pad; n++)
        for (int64_t k = 0; k < depth; k++) {
            float nan = NAN;
            uint16_t bf16_nan = 0x7fc0;
            int64_t at = packed_index(w->dtype, depth, n, k);
            const void *from = (char *) w->data
                             + (n * w->ld + k) * (int64_t) size;
            if (k >= w->cols)
                from = w->dtype == WEFT_F32 ? (void *) &nan
                                            : (void *) &bf16_nan;
            else if (n >= w->rows)
                continue;
            memcpy(out + at * (int64_t) size, from, size);
        }
    return out;
}

/* acc + a b, fused where the instruction set is. */
static inline float test_madd(float a, float b, float acc)
{
    return weft_k_isa() == WEFT_ISA_C ? acc + a * b : fmaf(a, b, acc);
}

/* The dtypes' chains are spelled out for every set but the one whose dot
 * product is the CPU's own. */
static inline bool test_chain_known(enum weft_dtype dtype)
{
    return dtype == WEFT_F32 || weft_k_isa() != WEFT_ISA_AVX512_BF16;
}

/* One bf16 step: the odd of the pair first. */
static inline float test_pair(const float x[2], const float w[2], float acc)
{
    return test_madd(x[0], w[0], test_madd(x[1], w[1], acc));
}

static inline bool same_bits(const void *a, const void *b, int64_t n,
                             size_t size)
{
    return memcmp(a, b, (size_t) n * size) == 0;
}

/* The sets this machine has, best last. */
static inline int test_n_isas(void)
{
    return (int) weft_k_isa_detect() + 1;
}

static inline void test_use_isa(int isa)
{
    struct weft_err err = {0};
    REQUIRE_OK(weft_k_init(weft_k_isa_name((enum weft_isa) isa), &err), err);
}

#endif
