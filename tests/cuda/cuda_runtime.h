/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Weft's kernels need of CUDA, on the CPU: for tests. Tests that include
 * <cuda_runtime.h> get this one, and the kernels (src/kern/..._cuda.cu) are
 * compiled as C++ with it; executor.cc runs them.
 *
 * The blocks of a launch run one after another, the threads of a block as
 * fibres: a thread runs until it waits for others, at a barrier or in a warp
 * shuffle, or ends. In which order threads and blocks take their turns can be
 * chosen, so that a barrier that is missing, or a block that reads what
 * another wrote, changes results. A launch stops with an error, which
 * cudaGetLastError() returns and weft_exec_sentence() tells, when
 *   - some threads of a block wait at a barrier that others do not reach;
 *   - lanes of a warp meet at different shuffles, or one reads from a lane
 *     that takes no part;
 *   - shared memory is written just outside of the kernel's variable.
 * Shared and device memory begin as NaN, and end before a page without
 * rights, where an access is a segmentation fault.
 */
#ifndef WEFT_TESTS_CUDA_RUNTIME_H
#define WEFT_TESTS_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WEFT_CUDA_EXECUTOR 1

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorLaunchFailure = 719
} cudaError_t;
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};
struct CUstream_st;
typedef struct CUstream_st *cudaStream_t;

cudaError_t cudaMalloc(void **out, size_t n_bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes,
                       enum cudaMemcpyKind kind);
cudaError_t cudaMemsetAsync(void *to, int value, size_t n_bytes,
                            cudaStream_t stream);
cudaError_t cudaGetLastError(void); /* forgets it, too */
cudaError_t cudaDeviceSynchronize(void);
const char *cudaGetErrorString(cudaError_t error);

/* The last error as a sentence. */
const char *weft_exec_sentence(void);
/* In which order threads, and blocks, take turns: 0 ascending, 1 descending,
 * above that a permutation that depends on the number. */
enum { WEFT_EXEC_ORDERS = 3 };
void weft_exec_order(int order);

#ifdef __cplusplus
} /* extern "C" */

#include <math.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

/* Of the thread whose turn it is. */
struct weft_exec_thread {
    uint3 thread, block;
};
extern struct weft_exec_thread *weft_exec_now;
extern dim3 weft_exec_grid, weft_exec_block;
#define threadIdx (weft_exec_now->thread)
#define blockIdx (weft_exec_now->block)
#define gridDim weft_exec_grid
#define blockDim weft_exec_block

/* ---- Waiting for other threads ---------------------------------------- */

/* Which barrier or shuffle: its line. */
void weft_exec_barrier(int line);
/* A lane gives n_bytes <= 8 and gets those of lane `from` of its warp. */
void weft_exec_shuffle(unsigned mask, int from, int line, const void *give,
                       void *get, size_t n_bytes);
unsigned weft_exec_lane(void);

inline void __syncthreads(int line = __builtin_LINE())
{
    weft_exec_barrier(line);
}

template <class T>
inline T weft_exec_shuffled(unsigned mask, T x, int from, int line)
{
    T y;
    weft_exec_shuffle(mask, from, line, &x, &y, sizeof x);
    return y;
}
template <class T>
inline T __shfl_sync(unsigned mask, T x, int from,
                     int line = __builtin_LINE())
{
    return weft_exec_shuffled(mask, x, from, line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T x, int other,
                         int line = __builtin_LINE())
{
    return weft_exec_shuffled(mask, x, (int) weft_exec_lane() ^ other, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       int line = __builtin_LINE())
{
    int nothing = 0;
    weft_exec_shuffled(mask, nothing, (int) weft_exec_lane(), line);
}
inline unsigned __ballot_sync(unsigned mask, bool x,
                              int line = __builtin_LINE())
{
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            all |= (unsigned) weft_exec_shuffled(mask, x, i, line) << i;
    return all;
}
inline int __ffs(int x) /* 1 for the lowest bit */
{
    return __builtin_ffs(x);
}

/* ---- Shared memory, launches ------------------------------------------ */

/* The block's variable of this size and line; the first thread that asks
 * makes it. */
void *weft_exec_shared(size_t n_bytes, int line);
#define WEFT_SHARED(type, name)                                              \
    type &name = *(type *) weft_exec_shared(sizeof(type), __LINE__)

void weft_exec_run(dim3 grid, dim3 block, void (*body)(void *), void *arg);
template <class F> inline void weft_exec_launch(dim3 grid, dim3 block, F body)
{
    weft_exec_run(
        grid, block, [](void *p) { (*(F *) p)(); }, &body);
}
#define WEFT_LAUNCH(kernel, grid, block, stream, ...)                        \
    do {                                                                     \
        (void) (stream);                                                     \
        weft_exec_launch(grid, block, [=] { kernel(__VA_ARGS__); });         \
    } while (0)

#endif
#endif
