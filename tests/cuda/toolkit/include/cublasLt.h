/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of cuBLASLt what Weft's products use, for emulated cards: tests only. Names
 * and answers are the library's. A product is one plain loop that has the
 * order of the CPU's kernels: it starts from D where beta is 1, and in bf16
 * takes pairs of k, the odd one first. With WEFT_CARDS_SUMS=own it has
 * several partial sums, and adds D at the end: as the library, an order of
 * its own. How many there are depends on the rows and the leading dimension
 * of the result for which the algorithm was proposed, whatever it is used
 * for.
 */
#ifndef WEFT_TESTS_CUBLASLT_H
#define WEFT_TESTS_CUBLASLT_H

#include <cublas_v2.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CUDA_R_32F = 0, CUDA_R_16BF = 14 } cudaDataType_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_COMPUTE_32F = 68 } cublasComputeType_t;
enum { CUBLASLT_REDUCTION_SCHEME_NONE = 0 };
typedef enum {
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4
} cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;
typedef enum {
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2
} cublasLtMatmulAlgoConfigAttributes_t;

typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct weft_lt_matmul *cublasLtMatmulDesc_t;
typedef struct weft_lt_layout *cublasLtMatrixLayout_t;
typedef struct weft_lt_preference *cublasLtMatmulPreference_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out);
/* 130000, or WEFT_CARDS_CUBLASLT. */
size_t cublasLtGetVersion(void);
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc);
cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
    const void *value, size_t n_bytes);
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
    const void *value, size_t n_bytes);
cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t *out);
cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t which, const void *value,
    size_t n_bytes);
/* Proposes six algorithms, which refuse matrices that are aligned to fewer
 * bytes than was said. Two may be chosen, the fourth and the fifth; where
 * there are fewer than 8 columns, or more than 64, the fourth has an order of
 * sums of its own, and is as good otherwise. The others have another order:
 * the first has failed, the next splits the depth, the next needs a
 * workspace, and with the last the bits depend on the number of columns and
 * change from call to call. WEFT_CARDS_ALGORITHM makes all of them one kind:
 * failed, split, workspace, uneven; many, whose bits differ among more than
 * 64 columns; or other, where the fourth is. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int n_asked,
    cublasLtMatmulHeuristicResult_t out[], int *n_out);
/* How many products algorithms have computed that may be chosen and were
 * proposed for so many columns (below 128); 0: the others. */
int64_t weft_cards_products(int n_columns);
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algorithm,
    cublasLtMatmulAlgoConfigAttributes_t which, void *value, size_t n_bytes,
    size_t *n_written);
cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
    const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
    cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
    cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
    const cublasLtMatmulAlgo_t *algorithm, void *workspace,
    size_t workspace_bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
