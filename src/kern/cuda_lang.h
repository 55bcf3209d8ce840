/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels for GPUs are written with. They are compiled twice: by nvcc,
 * and as C++ for the executor of tests/cuda, whose <cuda_runtime.h> has its
 * own WEFT_START and WEFT_SHARED. Included first by every *_cuda.cu.
 *
 * Sums are written to have the order of the CPU's kernels (vec16.h: partial
 * sums of every 16th element, added by a binary tree), whatever the number of
 * threads, so that both give the same bits. No floating-point atomics: their
 * order is not defined.
 */
#ifndef WEFT_KERN_CUDA_LANG_H
#define WEFT_KERN_CUDA_LANG_H

#ifdef WEFT_KERN_VEC_H
#error "include kern/cuda_lang.h first: kern/vec.h fuses only behind it"
#endif

#include <cuda_runtime.h>

#include "kern/kern_cuda.h"
#include "kern/vec.h"

#ifndef WEFT_START
/* A block's variable. */
#define WEFT_SHARED(type, name) __shared__ type name
#define WEFT_START(kernel, grid, block, stream, ...)                         \
    kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif
/* Bytes of a kernel's arguments. Drivers before CUDA 12.1 take 4 KiB. */
template <class... A> constexpr size_t weft_argument_bytes(void (*)(A...))
{
    size_t n = 0;
    ((n = (n + alignof(A) - 1) / alignof(A) * alignof(A) + sizeof(A)), ...);
    return n;
}
enum { WEFT_ARGUMENT_BYTES = 4096 };
/* Kernels that are launched anywhere, in a list, so that a GPU can have them
 * before that (load_cuda.cu). A launch names its kernel's entry, which is made
 * when the program begins. */
struct weft_kernel {
    const void *entry;
    const struct weft_kernel *next;
    explicit weft_kernel(const void *entry);
};
template <auto KERNEL>
inline struct weft_kernel weft_kernel_of((const void *) KERNEL);
/* Launches a kernel. Errors stay with CUDA: cudaGetLastError(). */
#define WEFT_LAUNCH_ALWAYS(kernel, ...)                                      \
    do {                                                                     \
        static_assert(weft_argument_bytes(kernel) <= WEFT_ARGUMENT_BYTES,    \
                      "arguments of " #kernel);                              \
        (void) &weft_kernel_of<(kernel)>;                                    \
        WEFT_START(kernel, __VA_ARGS__);                                     \
    } while (0)
/* But not while products are only chosen, nor behind one that was refused,
 * whose result it may take for an index or an address. */
#define WEFT_LAUNCH(kernel, ...)                                             \
    do {                                                                     \
        if (!weft_blaslt_chooses() && weft_k_has_launched_cuda())            \
            WEFT_LAUNCH_ALWAYS(kernel, __VA_ARGS__);                         \
    } while (0)
extern "C" bool weft_blaslt_chooses(void);

enum { WEFT_WARP = 32 };
#define WEFT_FULL_WARP 0xffffffffu

/* x added up over pairs of lanes that are `from`, `from` / 2, ... `to` apart;
 * every lane has the sum, with the same bits. */
template <class T>
static __device__ __forceinline__ T warp_sum(T x, int from, int to)
{
    for (int apart = from; apart >= to; apart /= 2)
        x = x + __shfl_xor_sync(WEFT_FULL_WARP, x, apart);
    return x;
}

static __device__ __forceinline__ float warp_max(float x, int from)
{
    for (int apart = from; apart >= 1; apart /= 2) {
        float y = __shfl_xor_sync(WEFT_FULL_WARP, x, apart);
        x = x > y ? x : y;
    }
    return x;
}

/* Number i of an array in a dtype. */
template <enum weft_dtype DTYPE>
static __device__ __forceinline__ float load_as(const void *p, int64_t i)
{
    return DTYPE == WEFT_BF16 ? weft_bf16_to_f32(((const uint16_t *) p)[i])
                              : ((const float *) p)[i];
}

template <enum weft_dtype DTYPE>
static __device__ __forceinline__ void store_as(void *p, int64_t i, float x)
{
    if (DTYPE == WEFT_BF16)
        ((uint16_t *) p)[i] = weft_f32_to_bf16(x);
    else
        ((float *) p)[i] = x;
}

/* Four numbers at once, where i is a multiple of 4 and p of 16 bytes (bf16:
 * 8). */
template <enum weft_dtype DTYPE>
static __device__ __forceinline__ float4 load4_as(const void *p, int64_t i)
{
    if (DTYPE == WEFT_F32)
        return ((const float4 *) p)[i / 4];
    uint2 u = ((const uint2 *) p)[i / 4];
    float4 x;
    x.x = weft_f32_of(u.x << 16);
    x.y = weft_f32_of(u.x & 0xffff0000u);
    x.z = weft_f32_of(u.y << 16);
    x.w = weft_f32_of(u.y & 0xffff0000u);
    return x;
}

template <enum weft_dtype DTYPE>
static __device__ __forceinline__ void store4_as(void *p, int64_t i, float4 x)
{
    if (DTYPE == WEFT_F32) {
        ((float4 *) p)[i / 4] = x;
        return;
    }
    uint2 u;
    u.x = weft_f32_to_bf16(x.x) | (uint32_t) weft_f32_to_bf16(x.y) << 16;
    u.y = weft_f32_to_bf16(x.z) | (uint32_t) weft_f32_to_bf16(x.w) << 16;
    ((uint2 *) p)[i / 4] = u;
}

/* Calls a host function with the dtype as a constant. */
#define WEFT_BY_DTYPE(dtype, function, ...)                                  \
    do {                                                                     \
        if ((dtype) == WEFT_BF16)                                            \
            function<WEFT_BF16>(__VA_ARGS__);                                \
        else                                                                 \
            function<WEFT_F32>(__VA_ARGS__);                                 \
    } while (0)

/* Blocks for n things, per_block to a block. */
static inline unsigned blocks_for(int64_t n, int64_t per_block)
{
    return (unsigned) ((n + per_block - 1) / per_block);
}

#endif
