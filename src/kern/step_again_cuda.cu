/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a loop of decode steps goes on. Nothing else may be in this file: a
 * driver that has no such loops cannot load any of its kernels. */
#include "kern/cuda_lang.h"

#if CUDART_VERSION >= 12040
static __global__ void step_again(const struct weft_k_steps *steps,
                                  uint64_t again)
{
    cudaGraphSetConditional(again, steps->next < steps->end);
}
#endif

void weft_k_step_again_cuda(cudaStream_t stream,
                            const struct weft_k_steps *steps, uint64_t again)
{
#if CUDART_VERSION >= 12040
    if (again)
        WEFT_LAUNCH(step_again, 1, 1, stream, steps, again);
#else
    (void) stream;
    (void) steps;
    (void) again;
#endif
}
