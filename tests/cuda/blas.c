/* SPDX-License-Identifier: Apache-2.0 */
/* Of cuBLAS and cuSPARSE what StarPU's start and end call: nothing is done. */
#include <cublas_v2.h>
#include <cusparse.h>

static int context;

cublasStatus_t cublasInit(void)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasShutdown(void)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetKernelStream(cudaStream_t stream)
{
    (void) stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasCreate(cublasHandle_t *out)
{
    *out = (cublasHandle_t) &context;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    (void) handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    (void) handle, (void) stream;
    return CUBLAS_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreate(cusparseHandle_t *out)
{
    *out = (cusparseHandle_t) &context;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseDestroy(cusparseHandle_t handle)
{
    (void) handle;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSetStream(cusparseHandle_t handle,
                                   cudaStream_t stream)
{
    (void) handle, (void) stream;
    return CUSPARSE_STATUS_SUCCESS;
}
