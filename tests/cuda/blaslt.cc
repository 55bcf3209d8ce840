/* SPDX-License-Identifier: Apache-2.0 */
/* Products on emulated cards (toolkit/include/cublasLt.h). */
#include <atomic>
#include <cublasLt.h>
#include <stdlib.h>

#include "emulator.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif

struct weft_lt_matmul {
    cublasOperation_t op[2];
};
/* Bytes to which matrices are aligned, as the library's default. */
struct weft_lt_preference {
    uint32_t a, b, c, d;
};
struct weft_lt_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, stride;
    int32_t batch;
};

static int nothing;

template <class T> static cublasStatus_t make(T **out, T value)
{
    *out = (T *) malloc(sizeof value);
    if (!*out)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **out = value;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = (cublasLtHandle_t) &nothing;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    const char *version = getenv("WEFT_CARDS_CUBLASLT");
    return version ? strtoul(version, NULL, 10) : 130000;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                        cublasComputeType_t, cudaDataType_t)
{
    return make(out, weft_lt_matmul{{CUBLAS_OP_N, CUBLAS_OP_N}});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
    const void *value, size_t n_bytes)
{
    if (n_bytes != sizeof desc->op[0])
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&desc->op[which == CUBLASLT_MATMUL_DESC_TRANSB], value, n_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    return make(out, weft_lt_layout{type, rows, columns, ld, 0, 1});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
    const void *value, size_t n_bytes)
{
    bool is_batch = which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    if (n_bytes != (is_batch ? sizeof layout->batch : sizeof layout->stride))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(is_batch ? (void *) &layout->batch : &layout->stride, value,
           n_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return make(out, weft_lt_preference{256, 256, 256, 256});
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t which, const void *value,
    size_t n_bytes)
{
    uint32_t unused,
        *out = which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
                 ? &preference->a
             : which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES
                 ? &preference->b
             : which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES
                 ? &preference->c
             : which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
                 ? &preference->d
                 : &unused;
    if (n_bytes != sizeof *out)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(out, value, n_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* Partial sums of an algorithm that is proposed for such a result: an order
 * of its own, in which another size, or another leading dimension, may
 * differ. */
static uint64_t own_parts(const weft_lt_layout *d)
{
    return 2 << (d->rows * 7919 + (uint64_t) d->ld * 104729) / 64 % 3;
}

/* Whether another order comes first: for few rows and for many, of products
 * whose result has a column for each. */
static bool begins_with_other(cublasLtMatmulDesc_t desc,
                              const weft_lt_layout *d)
{
    return desc->op[1] == CUBLAS_OP_N && (d->columns < 8 || d->columns > 64);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int n_asked,
    cublasLtMatmulHeuristicResult_t out[], int *n_out)
{
    bool other = begins_with_other(desc, d);
    const char *const kinds[] = {"failed", "split",
                                 "workspace", other ? "other" : "good",
                                 "good",   "uneven"};
    const char *all = getenv("WEFT_CARDS_ALGORITHM");
    if (all && strcmp(all, "other") == 0 && !other)
        all = NULL;
    *n_out = 0;
    for (const char *kind : kinds) {
        cublasLtMatmulHeuristicResult_t *r = &out[*n_out];
        const char *is = all ? all : kind;
        if (*n_out == n_asked)
            break;
        *r = {};
        r->algo.data[0] = strcmp(is, "uneven") == 0 ? 1
                        : strcmp(is, "many") == 0   ? 2
                                                    : 0;
        r->algo.data[1] = preference->a;
        r->algo.data[2] = preference->b;
        r->algo.data[3] = preference->d;
        r->algo.data[4] = strcmp(is, "split") == 0 ? 2 : 1;
        r->algo.data[5] = own_parts(d);
        if (strcmp(is, "other") == 0)
            r->algo.data[5] = r->algo.data[5] < 8 ? 2 * r->algo.data[5] : 2;
        r->algo.data[6] = strcmp(is, "good") == 0;
        r->algo.data[7] = d->columns;
        r->workspaceSize = strcmp(is, "workspace") == 0 ? 1 << 20 : 0;
        r->state = strcmp(is, "failed") == 0 ? CUBLAS_STATUS_NOT_SUPPORTED
                                             : CUBLAS_STATUS_SUCCESS;
        ++*n_out;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static std::atomic<int64_t> n_products[128];

int64_t weft_cards_products(int n_columns)
{
    return n_products[n_columns];
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algorithm,
    cublasLtMatmulAlgoConfigAttributes_t which, void *value, size_t n_bytes,
    size_t *n_written)
{
    int32_t n_parts = (int32_t) algorithm->data[4];
    if (which != CUBLASLT_ALGO_CONFIG_SPLITK_NUM || n_bytes != sizeof n_parts)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &n_parts, n_bytes);
    *n_written = n_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- The loop ----------------------------------------------------------- */

struct operand {
    const char *p;
    int64_t row, column, stride; /* steps, in numbers */
    bool is_bf16;
};

struct product {
    operand a, b;
    char *d;
    int64_t m, n, k, ldd, stride_d;
    bool d_is_bf16, adds;
    int own_parts; /* of the sum; 0: the CPU's order */
    float uneven; /* is added for each column */
};

static float bf16(uint16_t half)
{
    uint32_t bits = (uint32_t) half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return (uint16_t) (bits >> 16 | 0x40);
    return (uint16_t) ((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float number(const operand &o, int64_t row, int64_t column,
                    int64_t set)
{
    int64_t i = row * o.row + column * o.column + set * o.stride;
    return o.is_bf16 ? bf16(((const uint16_t *) o.p)[i])
                     : ((const float *) o.p)[i];
}

static inline __attribute__((always_inline)) float
chain_of(const product &p, int64_t i, int64_t j, int64_t set, float x)
{
    if (!p.a.is_bf16) {
        for (int64_t k = 0; k < p.k; k++)
            x = fmaf(number(p.b, k, j, 0), number(p.a, i, k, set), x);
        return x;
    }
    for (int64_t k = 0; k < p.k; k += 2) {
        bool has_odd = k + 1 < p.k;
        x = fmaf(has_odd ? number(p.b, k + 1, j, 0) : 0,
                 has_odd ? number(p.a, i, k + 1, set) : 0, x);
        x = fmaf(number(p.b, k, j, 0), number(p.a, i, k, set), x);
    }
    return x;
}

/* The processor's instruction takes a tenth of the library's function. */
#ifdef __x86_64__
__attribute__((target("fma"))) static float
chain_fma(const product &p, int64_t i, int64_t j, int64_t set, float x)
{
    return chain_of(p, i, j, set, x);
}

static float chain(const product &p, int64_t i, int64_t j, int64_t set,
                   float x)
{
    return __builtin_cpu_supports("fma") ? chain_fma(p, i, j, set, x)
                                         : chain_of(p, i, j, set, x);
}
#else
static float chain(const product &p, int64_t i, int64_t j, int64_t set,
                   float x)
{
    return chain_of(p, i, j, set, x);
}
#endif

/* Another order: partial sums that are added up in pairs, and then to x. */
static float own_order(const product &p, int64_t i, int64_t j, int64_t set,
                       float x)
{
    float part[8] = {0};
    for (int64_t k = 0; k < p.k; k++)
        part[k % p.own_parts] += number(p.b, k, j, 0) * number(p.a, i, k, set);
    for (int n = p.own_parts / 2; n > 0; n /= 2)
        for (int k = 0; k < n; k++)
            part[k] += part[k + n];
    return part[0] + x;
}

/* A block per column and batch. In bf16 the processor treats small numbers as
 * zero, as the CPU's kernels have it do. */
static void multiply(product p)
{
#ifdef __SSE__
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(p.a.is_bf16 ? mode | 0x8040 : mode);
#endif
    int64_t j = blockIdx.x, set = blockIdx.y;
    for (int64_t i = 0; i < p.m; i++) {
        int64_t at = set * p.stride_d + j * p.ldd + i;
        float x = 0;
        if (p.adds)
            x = p.d_is_bf16 ? bf16(((uint16_t *) p.d)[at])
                            : ((float *) p.d)[at];
        x = p.own_parts ? own_order(p, i, j, set, x)
                        : chain(p, i, j, set, x);
        x += p.uneven * (float) p.n;
        if (p.d_is_bf16)
            ((uint16_t *) p.d)[at] = rounded(x);
        else
            ((float *) p.d)[at] = x;
    }
#ifdef __SSE__
    _mm_setcsr(mode);
#endif
}

static operand operand_of(const void *p, const weft_lt_layout *l,
                          cublasOperation_t op)
{
    bool is_transposed = op == CUBLAS_OP_T;
    return {(const char *) p, is_transposed ? l->ld : 1,
            is_transposed ? 1 : l->ld, l->stride, l->type == CUDA_R_16BF};
}

/* An algorithm that was proposed for aligned matrices can do no others: the
 * first number of each batch, and of its columns. */
static bool is_aligned(const void *p, const weft_lt_layout *l, uint64_t bytes)
{
    uint64_t element = l->type == CUDA_R_16BF ? 2 : 4;
    uint64_t stride = l->batch > 1 ? (uint64_t) l->stride * element : 0;
    return ((uintptr_t) p | (uint64_t) l->ld * element | stride) % bytes == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                              const void *, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c,
                              cublasLtMatrixLayout_t, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *,
                              size_t, cudaStream_t stream)
{
    bool a_is_transposed = desc->op[0] == CUBLAS_OP_T;
    bool b_is_transposed = desc->op[1] == CUBLAS_OP_T;
    uint64_t m = a_is_transposed ? a_layout->columns : a_layout->rows;
    uint64_t k = a_is_transposed ? a_layout->rows : a_layout->columns;
    uint64_t n = b_is_transposed ? b_layout->rows : b_layout->columns;
    if ((b_is_transposed ? b_layout->columns : b_layout->rows) != k
        || d_layout->rows != m || d_layout->columns != n
        || a_layout->type != b_layout->type
        || a_layout->batch != d_layout->batch
        || b_layout->batch != d_layout->batch || b_layout->stride != 0
        || c != d || a_layout->ld < (int64_t) a_layout->rows
        || b_layout->ld < (int64_t) b_layout->rows
        || d_layout->ld < (int64_t) m)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(a, a_layout, algorithm->data[1])
        || !is_aligned(b, b_layout, algorithm->data[2])
        || !is_aligned(d, d_layout, algorithm->data[3]))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    static std::atomic<int> n_calls;
    product p = {operand_of(a, a_layout, desc->op[0]),
                 operand_of(b, b_layout, desc->op[1]),
                 (char *) d,
                 (int64_t) m,
                 (int64_t) n,
                 (int64_t) k,
                 d_layout->ld,
                 d_layout->stride,
                 d_layout->type == CUDA_R_16BF,
                 *(const float *) beta == 1.0f,
                 algorithm->data[6] && !getenv("WEFT_CARDS_SUMS")
                     ? 0
                     : (int) algorithm->data[5],
                 algorithm->data[0] == 1 ? 1e-3f * (float) (1 + n_calls++ % 7)
                 : algorithm->data[0] == 2 && n > 64 ? 1e-3f
                                                     : 0};
    n_products[algorithm->data[6] ? algorithm->data[7] % 128 : 0]++;
    dim3 grid((unsigned) n, (unsigned) d_layout->batch);
    weft_emu_load_own((const void *) multiply);
    WEFT_START(multiply, grid, 1, stream, p);
    return CUBLAS_STATUS_SUCCESS;
}
