/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of kern.h on a GPU, in terms of those of the library, which sees
 * matrices column by column: a row-major matrix is its transposed.
 *
 *     y^T = W x^T                  bf16: W is row-major
 *     panel(y)^T = panel(W) x^T    f32: W lies in panels, a batch of them
 *     panel(G) += panel(dy)^T x    f32, one sample's tokens at a time
 */
#include "kern/blaslt_cuda.h"
#include "kern/kern_cuda.h"
#include "kern/sum_blocks_cuda.h"
#include "kern/weight_gradient_cuda.h"

#ifdef WEFT_CUDA_EXECUTOR /* so that tests have several pieces */
enum { LEAF_BYTES = 1 << 14, LEAST_LEAF_ROWS = 16 };
#else
enum { LEAF_BYTES = 64 << 20, LEAST_LEAF_ROWS = 128 };
#endif

static cudaDataType_t type_of(enum weft_dtype dtype)
{
    return dtype == WEFT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static const void *at(const void *p, enum weft_dtype dtype, int64_t i)
{
    return p ? (const char *) p + i * (int64_t) weft_dtype_bytes(dtype)
             : NULL;
}

/* y (m, n) with leading dimension ldy = x_b W_b^T, m rows from `row`. */
static void block_product(const struct weft_k_gemm_args *g, int b,
                          int64_t row, int64_t m, enum weft_dtype y_dtype,
                          int64_t ldy, void *y, cudaStream_t stream)
{
    int64_t depth = g->kstride[b] ? g->kstride[b] : g->k[b];
    int64_t full = g->n / WEFT_PANEL, rest = g->n % WEFT_PANEL;
    const void *x = at(g->x[b], g->dtype, row * g->ldx[b]);
    struct weft_blaslt_product p = {.in = type_of(g->dtype),
                                    .out = type_of(y_dtype),
                                    .add = g->accumulate,
                                    .batch = 1,
                                    .n = m,
                                    .k = g->k[b],
                                    .ldb = g->ldx[b],
                                    .ldd = ldy};
    if (g->dtype == WEFT_BF16) {
        p.m = g->n;
        p.trans_a = 1;
        p.lda = depth;
        weft_blaslt_multiply(p, stream, g->w[b], x, y);
        return;
    }
    p.m = p.lda = WEFT_PANEL;
    p.batch = (int32_t) full;
    p.stride_a = depth * WEFT_PANEL;
    p.stride_d = WEFT_PANEL;
    if (full > 0)
        weft_blaslt_multiply(p, stream, g->w[b], x, y);
    p.m = rest;
    p.batch = 1;
    p.stride_a = p.stride_d = 0;
    if (rest > 0)
        weft_blaslt_multiply(p, stream,
                             at(g->w[b], g->dtype, full * depth * WEFT_PANEL),
                             x, y ? (float *) y + full * WEFT_PANEL : NULL);
}

/* Rows of leaves that exist at once. */
static int64_t leaf_rows(const struct weft_k_gemm_args *g)
{
    int64_t row = g->n_blocks * g->n * (int64_t) sizeof(float);
    return weft_min64(g->m, weft_max64(LEAST_LEAF_ROWS, LEAF_BYTES / row));
}

static bool is_direct(const struct weft_k_gemm_args *g)
{
    return g->n_blocks == 1 && !g->bias && !g->residual;
}

size_t weft_k_gemm_scratch_bytes_cuda(const struct weft_k_gemm_args *g)
{
    return is_direct(g)
             ? 0
             : (size_t) (leaf_rows(g) * g->n_blocks * g->n) * sizeof(float);
}

void weft_k_gemm_cuda(cudaStream_t stream, const struct weft_k_gemm_args *g,
                      void *scratch)
{
    weft_gemm_norm_cuda(stream, g, NULL, scratch);
}

/* Rows r.. r + m - 1 of y from their leaves. */
static void finish_rows(cudaStream_t stream, const struct weft_k_gemm_args *g,
                        const struct weft_norm_cuda *norm,
                        const struct weft_leaves_cuda *leaves, int64_t r,
                        int64_t m)
{
    void *y = (void *) (uintptr_t) at(g->y, g->y_dtype, r * g->ldy);
    const float *residual = g->residual ? g->residual + r * g->ldy : NULL;
    if (!norm) {
        weft_sum_leaves_cuda(stream, m, g->n, leaves, g->bias, residual,
                             g->y_dtype, y, g->ldy);
        return;
    }
    struct weft_norm_cuda rows = *norm;
    weft_assert(g->y_dtype == WEFT_F32 && g->ldy == g->n);
    rows.out = (void *) (uintptr_t) at(rows.out, rows.dtype, r * g->n);
    weft_sum_leaves_norm_cuda(stream, m, g->n, leaves, g->bias, residual, y,
                              &rows);
}

void weft_gemm_norm_cuda(cudaStream_t stream,
                         const struct weft_k_gemm_args *g,
                         const struct weft_norm_cuda *norm, void *scratch)
{
    if (g->m == 0)
        return;
    if (is_direct(g)) {
        weft_assert(!norm);
        block_product(g, 0, 0, g->m, g->y_dtype, g->ldy, g->y, stream);
        return;
    }
    weft_assert(!g->accumulate);
    int64_t rows = leaf_rows(g);
    for (int64_t r = 0; r < g->m; r += rows) {
        int64_t m = weft_min64(rows, g->m - r);
        struct weft_leaves_cuda leaves = {{NULL}, {0}};
        for (int b = 0; b < g->n_blocks; b++) {
            float *leaf = (float *) scratch + b * m * g->n;
            block_product(g, b, r, m, WEFT_F32, g->n, leaf, stream);
            leaves.x[b] = leaf;
            leaves.ld[b] = g->n;
        }
        if (g->y)
            finish_rows(stream, g, norm, &leaves, r, m);
    }
}

void weft_k_gemm_dw_cuda(cudaStream_t stream,
                         const struct weft_k_gemm_dw_args *g)
{
    if (g->dtype == WEFT_BF16) {
        weft_weight_gradient_cuda(stream, g);
        return;
    }
    int64_t full = g->n / WEFT_PANEL, rest = g->n % WEFT_PANEL;
    for (int64_t i = 0, row = 0; i < g->n_runs; row += g->run_rows[i++]) {
        const void *dy = at(g->dy, g->dtype, row * g->lddy);
        const void *x = at(g->x, g->dtype, row * g->ldx);
        struct weft_blaslt_product p = {.in = type_of(g->dtype),
                                        .out = CUDA_R_32F,
                                        .trans_b = 1,
                                        .add = 1,
                                        .is_deep = 1,
                                        .batch = (int32_t) full,
                                        .m = WEFT_PANEL,
                                        .n = g->k,
                                        .k = g->run_rows[i],
                                        .lda = g->lddy,
                                        .ldb = g->ldx,
                                        .ldd = WEFT_PANEL,
                                        .stride_a = WEFT_PANEL,
                                        .stride_d = WEFT_PANEL * g->k};
        if (p.k == 0)
            continue;
        if (full > 0)
            weft_blaslt_multiply(p, stream, dy, x, g->grad);
        p.m = rest;
        p.batch = 1;
        p.stride_a = p.stride_d = 0;
        if (rest > 0)
            weft_blaslt_multiply(
                p, stream, at(dy, g->dtype, full * WEFT_PANEL), x,
                g->grad ? g->grad + full * WEFT_PANEL * g->k : NULL);
    }
}
