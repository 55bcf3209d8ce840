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
 * rights, where an access is a segmentation fault. A launch is put on its
 * stream, and runs when that one is waited for (cuda_runtime_api.h).
 */
#ifndef WEFT_TESTS_CUDA_RUNTIME_H
#define WEFT_TESTS_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
#include <math.h>
#include <new>
#include <string.h>
#include <tuple>

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
/* Of a thread that waits for another card: the launch is given up, and begun
 * anew when others have had their turn. So a kernel may not change anything
 * before it has waited, but what it would do once more in the same way.
 * weft_cards_naps() says how often; then this returns. */
void __nanosleep(unsigned ns);
inline void __threadfence_system(void)
{
}
inline int __ffs(int x) /* 1 for the lowest bit */
{
    return __builtin_ffs(x);
}

/* ---- Twins of what is not C++ (kern/mma_cuda.h) ------------------------- */

#define WEFT_CUDA_TWIN

/* What every lane of the warp gives, at most 32 bytes; until the lane's next
 * shuffle. */
const char *weft_exec_exchange(unsigned mask, int line, const void *give,
                               size_t n_bytes);
enum { WEFT_EXEC_GIFT = 32 };
template <class T> struct weft_exec_gifts {
    const char *at;
    const T &operator[](unsigned lane) const
    {
        return *(const T *) (at + lane * WEFT_EXEC_GIFT);
    }
};
template <class T>
inline weft_exec_gifts<T> weft_exec_all(const T &mine,
                                        int line = __builtin_LINE())
{
    static_assert(sizeof(T) <= WEFT_EXEC_GIFT, "a gift is too large");
    return {weft_exec_exchange(0xffffffffu, line, &mine, sizeof mine)};
}

/* The launch fails where p is not aligned to so many bytes. */
void weft_exec_aligned(const void *p, size_t n_bytes,
                       int line = __builtin_LINE());
/* Copies that a thread begins: 16 bytes, or zeros for NULL. What is copied is
 * NaN until the thread has waited for it. */
void weft_exec_copy16(void *to, const void *from,
                      int line = __builtin_LINE());
void weft_exec_copies_end(void);
void weft_exec_copies_wait(int all_but);

/* ---- Shared memory, launches ------------------------------------------ */

/* The block's variable of this size and line; the first thread that asks
 * makes it. */
void *weft_exec_shared(size_t n_bytes, int line);
#define WEFT_SHARED(type, name)                                              \
    type &name = *(type *) weft_exec_shared(sizeof(type), __LINE__)

/* The arguments of a launch, converted and copied when it is made. Pointers
 * to device memory in them, in structs too, are translated when it runs to
 * where the kernel may use the memory; what is in n_bytes at `call` is
 * searched for them. */
void weft_exec_put(const void *kernel, dim3 grid, dim3 block,
                   cudaStream_t stream, void (*run)(void *call),
                   const void *call, size_t n_bytes);
/* Fails the launch unless a kernel may use p: device memory, or pinned. */
void weft_exec_pointer(const void *p);

template <class T> inline void weft_exec_check(T *p)
{
    weft_exec_pointer((const void *) p);
}
template <class T> inline void weft_exec_check(const T &)
{
}
template <class... P> struct weft_exec_launch {
    void (*kernel)(P...);
    dim3 grid, block;
    cudaStream_t stream;
    struct call {
        void (*kernel)(P...);
        std::tuple<P...> args;
    };
    void operator()(P... arg) const
    {
        /* What lies between the arguments is 0: what was on the stack before
         * may look like a pointer to device memory with an argument's bytes. */
        alignas(struct call) char memory[sizeof(struct call)];
        memset(memory, 0, sizeof memory);
        __asm__ volatile("" : : "r"(memory) : "memory");
        new (memory) call{kernel, std::tuple<P...>(arg...)};
        (weft_exec_check(arg), ...);
        weft_exec_put((const void *) kernel, grid, block, stream,
                      [](void *p) {
                          struct call *c = (struct call *) p;
                          std::apply(c->kernel, c->args);
                      },
                      memory, sizeof memory);
    }
};
template <class... P>
inline weft_exec_launch<P...> weft_exec_of(void (*kernel)(P...), dim3 grid,
                                           dim3 block, cudaStream_t stream)
{
    return weft_exec_launch<P...>{kernel, grid, block, stream};
}
#define WEFT_START(kernel, grid, block, stream, ...)                         \
    weft_exec_of(kernel, grid, block, (cudaStream_t) (stream))(__VA_ARGS__)

#endif
#endif
