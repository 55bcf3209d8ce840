/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtime asks of CUDA beside StarPU: copies, zeros and the end of
 * what was put on a worker's stream. Without CUDA in StarPU there are no
 * cards, and nothing here is called but for the host's memory.
 */
#include <string.h>

#include "base/err.h"
#include "rt/internal.h"

#ifdef STARPU_USE_CUDA

struct CUstream_st *weft_exec_stream(struct weft_exec *x)
{
    return x->card ? starpu_cuda_get_local_stream() : NULL;
}

void weft_card_zero(unsigned node, void *to, size_t bytes)
{
    if (node == STARPU_MAIN_RAM) {
        memset(to, 0, bytes);
        return;
    }
    /* ends before other streams begin to use the memory */
    if (cudaMemset(to, 0, bytes) == cudaSuccess)
        (void) cudaDeviceSynchronize();
}

void weft_card_copy(unsigned to_node, void *to, unsigned from_node,
                    const void *from, size_t bytes,
                    struct CUstream_st *stream)
{
    enum cudaMemcpyKind kind = from_node == STARPU_MAIN_RAM
                                 ? cudaMemcpyHostToDevice
                             : to_node == STARPU_MAIN_RAM
                                 ? cudaMemcpyDeviceToHost
                                 : cudaMemcpyDeviceToDevice;
    starpu_cuda_copy_async_sync((void *) (uintptr_t) from, from_node, to,
                                to_node, bytes, stream, kind);
}

int weft_card_wait(struct weft_exec *x)
{
    cudaError_t rc = cudaStreamSynchronize(starpu_cuda_get_local_stream());
    cudaError_t last = cudaGetLastError();
    if (rc == cudaSuccess)
        rc = last;
    if (rc == cudaSuccess)
        return 0;
    return weft_err_set(&x->err, WEFT_EINTERNAL, "GPU %d: %s", x->device,
                        cudaGetErrorString(rc));
}

#else

struct CUstream_st *weft_exec_stream(struct weft_exec *x)
{
    (void) x;
    return NULL;
}

void weft_card_zero(unsigned node, void *to, size_t bytes)
{
    weft_assert(node == STARPU_MAIN_RAM);
    memset(to, 0, bytes);
}

void weft_card_copy(unsigned to_node, void *to, unsigned from_node,
                    const void *from, size_t bytes,
                    struct CUstream_st *stream)
{
    (void) stream;
    weft_assert(to_node == STARPU_MAIN_RAM && from_node == STARPU_MAIN_RAM);
    memcpy(to, from, bytes);
}

int weft_card_wait(struct weft_exec *x)
{
    (void) x;
    return 0;
}

#endif
