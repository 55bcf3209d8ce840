/* SPDX-License-Identifier: Apache-2.0 */
/* What StarPU calls of cuSPARSE: handles. For emulated cards. */
#ifndef WEFT_TESTS_CUSPARSE_H
#define WEFT_TESTS_CUSPARSE_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
typedef struct cusparseContext *cusparseHandle_t;

cusparseStatus_t cusparseCreate(cusparseHandle_t *out);
cusparseStatus_t cusparseDestroy(cusparseHandle_t handle);
cusparseStatus_t cusparseSetStream(cusparseHandle_t handle,
                                   cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
