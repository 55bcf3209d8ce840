/* SPDX-License-Identifier: Apache-2.0 */
/* What bodies at GPUs share. */
#ifndef WEFT_CODELETS_GPU_H
#define WEFT_CODELETS_GPU_H

#include "kern/kern_cuda.h"
#include "rt/codelet.h"

/* The end of a body that made products: the code of their first error. */
WEFT_INLINE int weft_gpu_end(struct weft_exec *x)
{
    return weft_k_products_error_cuda(weft_exec_err(x));
}

/* The code of the error that is written. */
WEFT_INLINE int weft_gpu_failed(struct weft_exec *x)
{
    return weft_exec_err(x)->code;
}

#endif
