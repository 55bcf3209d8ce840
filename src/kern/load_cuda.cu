/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All kernels, so that a GPU has them before the first is launched. By itself
 * CUDA loads one when it is first launched (from 12.2 on, unless
 * CUDA_MODULE_LOADING says otherwise), and may wait for all that the GPU does.
 */
#include "kern/cuda_lang.h"
#include "kern/device_cuda.h"

static const struct weft_kernel *kernels; /* before any entry is made */

weft_kernel::weft_kernel(const void *launched)
    : entry(launched), next(kernels)
{
    kernels = this;
}

extern "C" int weft_k_load_cuda(struct weft_err *err)
{
    for (const struct weft_kernel *k = kernels; k; k = k->next) {
        struct cudaFuncAttributes unused;
        int card = 0;
        cudaError_t rc = cudaFuncGetAttributes(&unused, k->entry);
        (void) cudaGetLastError();
        if (rc != cudaErrorMemoryAllocation)
            continue; /* who launches what cannot be loaded is told */
        (void) cudaGetDevice(&card);
        return weft_err_set(err, WEFT_ENOMEM,
                            "GPU %d has no memory left for kernels", card);
    }
    return 0;
}
