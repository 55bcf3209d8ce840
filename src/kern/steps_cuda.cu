/* SPDX-License-Identifier: Apache-2.0 */
/* Decode steps that follow one another without the host: what each of them is
 * told, and what it has drawn. */
#include "kern/cuda_lang.h"

enum { THREADS = 256 };

static __global__ void steps(const char *from, int32_t next, int32_t end,
                             struct weft_k_steps *out)
{
    struct weft_k_steps s = {from, next, end};
    *out = s;
}

void weft_k_steps_cuda(cudaStream_t stream, const void *from, int32_t next,
                       int32_t end, struct weft_k_steps *out)
{
    WEFT_LAUNCH(steps, 1, 1, stream, (const char *) from, next, end, out);
}

/* A thread for 16 bytes. */
static __global__ void step_begin(const struct weft_k_steps *steps, int64_t n,
                                  uint4 *to)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = ((const uint4 *) steps->from)[steps->next * n + i];
}

void weft_k_step_begin_cuda(cudaStream_t stream,
                            const struct weft_k_steps *steps, size_t bytes,
                            void *to)
{
    int64_t n = (int64_t) (bytes / sizeof(uint4));
    weft_assert(bytes % sizeof(uint4) == 0);
    WEFT_LAUNCH(step_begin, blocks_for(n, THREADS), THREADS, stream, steps, n,
                (uint4 *) to);
}

/* One block: all have read which step it was before that changes. */
static __global__ void step_end(struct weft_k_steps *steps,
                                struct weft_k_step_drawn d)
{
    int64_t at = (int64_t) steps->next * d.ld;
    for (int32_t i = (int32_t) threadIdx.x; i < d.n; i += THREADS) {
        d.tokens[at + i] = d.token[i];
        d.logps[at + i] = d.logp[i];
    }
    __syncthreads();
    if (threadIdx.x == 0)
        steps->next++;
}

void weft_k_step_end_cuda(cudaStream_t stream, struct weft_k_steps *steps,
                          const struct weft_k_step_drawn *d)
{
    WEFT_LAUNCH(step_end, 1, THREADS, stream, steps, *d);
}
