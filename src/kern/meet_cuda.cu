/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where kernels of a tp group's GPUs meet: each waits until all have come so
 * far on their streams. Then each reads what the others have left in their own
 * memory, by their addresses (peer access), with its ordinary kernels.
 *
 * A meeting has a number, which every member counts in its own memory, so that
 * a captured graph has no number in it. A member tells its number to all others
 * and waits, in its own memory, for theirs. It tells it when all its kernels
 * before have ended, behind a fence of the system; its kernels behind begin
 * when it has seen everybody's.
 *
 * One warp waits, whatever the group does: all else that the GPU has to do goes
 * on. It gives up, and tells the others, when it has looked PATIENCE times, at
 * some 0.5 us each; and at once where a member has given up before.
 *
 * CUDA would load a kernel when it is first launched, and may wait until its
 * GPU does nothing, so for a meeting, while it holds what the launches of
 * another member need. So all kernels are loaded before (load_cuda.cu).
 */
#include "kern/cuda_lang.h"

enum { NAP_NS = 100, PATIENCE = 100 << 20 };
static_assert((int) WEFT_MAX_BLOCKS <= (int) WEFT_WARP, "a lane each");

static __device__ __forceinline__ bool has_come(
    const volatile struct weft_k_meetings *own, int32_t member,
    uint32_t number)
{
    return (int32_t) (own->at[member] - number) >= 0;
}

static __device__ __forceinline__ void give_up(struct weft_k_group g)
{
    for (int32_t i = 0; i < g.n; i++)
        *(volatile uint32_t *) &g.of[i]->has_failed = 1;
    __threadfence_system();
}

/* A thread for each member. What is done before all have come is done once more
 * in the same way where tests run the kernel again (__nanosleep()). */
static __global__ void meet(struct weft_k_group g, uint32_t patience)
{
    volatile struct weft_k_meetings *own = g.of[g.k];
    int32_t i = (int32_t) threadIdx.x;
    uint32_t number = own->n_before + 1;
    bool is_other = i < g.n && i != g.k;
    __threadfence_system();
    if (is_other)
        *(volatile uint32_t *) &g.of[i]->at[g.k] = number;
    for (uint32_t n = 0; is_other && !has_come(own, i, number); n++) {
        if (own->has_failed)
            break;
        if (n >= patience)
            give_up(g);
        else
            __nanosleep(NAP_NS);
    }
    __threadfence_system();
    __syncthreads();
    if (i == 0)
        own->n_before = number;
}

void weft_k_meet_cuda(cudaStream_t stream, const struct weft_k_group *g)
{
    WEFT_LAUNCH(meet, 1, WEFT_WARP, stream, *g,
                g->patience ? g->patience : (uint32_t) PATIENCE);
}

bool weft_k_has_launched_cuda(void)
{
    return cudaPeekAtLastError() == cudaSuccess;
}

static __global__ void end_meetings(struct weft_k_group g)
{
    give_up(g);
}

void weft_k_end_meetings_cuda(cudaStream_t stream,
                              const struct weft_k_group *g)
{
    WEFT_LAUNCH_ALWAYS(end_meetings, 1, 1, stream, *g); /* behind an error */
}

enum { THREADS = 256 };

static __global__ void spoil(const struct weft_k_meetings *own, int64_t n,
                             float *x)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (own->has_failed && i < n)
        x[i] = weft_f32_of(0x7fc00000u);
}

void weft_k_spoil_cuda(cudaStream_t stream, const struct weft_k_meetings *own,
                       int64_t n, float *x)
{
    if (n > 0)
        WEFT_LAUNCH(spoil, blocks_for(n, THREADS), THREADS, stream, own, n,
                    x);
}
