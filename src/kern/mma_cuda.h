/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels use of a GPU that C++ has no words for: tensor cores, copies to
 * shared memory behind a thread's back, and the units' own exp2. Each is one
 * function with a twin that runs on the CPU, for tests, where
 * WEFT_CUDA_TWIN is defined; tools/check-layers refuses assembly elsewhere, or
 * without a twin. Twins agree to a tolerance, not in bits.
 *
 * A warp multiplies A (16, 16) by B (16, 8), bf16, and adds to C (16, 8), f32.
 * Lane 4 g + t has of them
 *
 *     a[0] A(g, 2t), A(g, 2t + 1)        a[2] A(g, 2t + 8), A(g, 2t + 9)
 *     a[1] A(g + 8, 2t), ...             a[3] A(g + 8, 2t + 8), ...
 *     b[0] B(2t, g), B(2t + 1, g)        b[1] B(2t + 8, g), B(2t + 9, g)
 *     c[0] C(g, 2t)  c[1] C(g, 2t + 1)   c[2] C(g + 8, 2t)  c[3] ...
 *
 * (the first of two bf16 in the low half). So the C of two products side by
 * side, rounded, is an A. In which order the hardware adds the 16 products is
 * its own, but every row of every A is treated alike: a row's results do not
 * depend on the other rows, nor on its place.
 */
#ifndef WEFT_KERN_MMA_CUDA_H
#define WEFT_KERN_MMA_CUDA_H

#include "kern/cuda_lang.h"

/* c += A B */
static __device__ __forceinline__ void weft_mma(float c[4],
                                                const uint32_t a[4],
                                                const uint32_t b[2])
{
#ifdef WEFT_CUDA_TWIN
    struct gift {
        uint32_t a[4], b[2];
    } mine;
    memcpy(mine.a, a, sizeof mine.a);
    memcpy(mine.b, b, sizeof mine.b);
    weft_exec_gifts<gift> all = weft_exec_all(mine);
    unsigned lane = weft_exec_lane(), g = lane / 4, t = lane % 4;
    for (unsigned step = 0; step < 16; step++) {
        unsigned k = step ^ 1; /* of a pair the second first, as CPUs do */
        unsigned high = k / 8, half = k % 2 * 16, of = k % 8 / 2;
        for (unsigned i = 0; i < 4; i++) {
            uint32_t x = all[4 * g + of].a[2 * high + i / 2] >> half;
            uint32_t y = all[4 * (2 * t + i % 2) + of].b[high] >> half;
            /* as fused: the product of two bf16 is exact */
            c[i] = c[i] + weft_f32_of(x << 16) * weft_f32_of(y << 16);
        }
    }
#else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* Four matrices (8, 8) of bf16 in shared memory, 16 bytes to a row: lane
 * 8 i + r says where row r of matrix i is, aligned to 16 bytes. Lane 4 g + t
 * gets, of matrix i, M(g, 2t) and M(g, 2t + 1) in x[i]; transposed: M(2t, g)
 * and M(2t + 1, g). */
template <bool TRANSPOSED>
static __device__ __forceinline__ void weft_load_matrices(uint32_t x[4],
                                                          const uint16_t *row)
{
#ifdef WEFT_CUDA_TWIN
    weft_exec_aligned(row, 16);
    weft_exec_gifts<const uint16_t *> all = weft_exec_all(row);
    unsigned lane = weft_exec_lane(), g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 32; i += 8) {
        uint32_t low = TRANSPOSED ? all[i + 2 * t][g] : all[i + g][2 * t];
        uint32_t high = TRANSPOSED ? all[i + 2 * t + 1][g]
                                   : all[i + g][2 * t + 1];
        x[i / 8] = low | high << 16;
    }
#else
    unsigned at = (unsigned) __cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
#endif
}

/* Begins to copy 16 bytes to shared memory, where is_there, and otherwise
 * writes zeros; both pointers are aligned to 16 bytes. */
static __device__ __forceinline__ void weft_copy16(void *to, const void *from,
                                                   bool is_there)
{
#ifdef WEFT_CUDA_TWIN
    weft_exec_aligned(to, 16);
    weft_exec_aligned(from, 16);
    weft_exec_copy16(to, is_there ? from : NULL);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned) __cvta_generic_to_shared(to)), "l"(from),
                   "r"(is_there ? 16 : 0)
                 : "memory");
#endif
}

/* What this thread began to copy since the last call is a group. */
static __device__ __forceinline__ void weft_copies_end(void)
{
#ifdef WEFT_CUDA_TWIN
    weft_exec_copies_end();
#else
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

/* Waits until all of this thread's groups but the last N are there; others'
 * are behind a barrier. */
template <int N> static __device__ __forceinline__ void weft_copies_wait(void)
{
#ifdef WEFT_CUDA_TWIN
    weft_exec_copies_wait(N);
#else
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
#endif
}

#define WEFT_LOG2_E 1.44269504f
#define WEFT_LN_2 0.693147181f
/* 2^x within 2 ulp; 0 where that would be subnormal. */
static __device__ __forceinline__ float weft_exp2(float x)
{
#ifdef WEFT_CUDA_TWIN
    return x < -126 ? 0 : exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* Both rounded to bf16, `low` in the low half. */
static __device__ __forceinline__ uint32_t weft_bf16_pair(float low,
                                                          float high)
{
#ifdef WEFT_CUDA_TWIN
    return weft_f32_to_bf16(low) | (uint32_t) weft_f32_to_bf16(high) << 16;
#else
    uint32_t u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
    return u;
#endif
}

/* ---- Fragments from shared memory ---------------------------------------- */

/* A (16, 16), row-major at `at`, ld numbers to a row. */
static __device__ __forceinline__ void weft_load_a(uint32_t a[4],
                                                   const uint16_t *at, int ld)
{
    int lane = threadIdx.x % WEFT_WARP, row = lane % 16,
        column = lane / 16 * 8;
    weft_load_matrices<false>(a, at + row * ld + column);
}

/* The same of an A whose columns are rows at `at`. */
static __device__ __forceinline__ void weft_load_a_columns(uint32_t a[4],
                                                           const uint16_t *at,
                                                           int ld)
{
    int lane = threadIdx.x % WEFT_WARP;
    int row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
    weft_load_matrices<true>(a, at + row * ld + column);
}

/* B (16, 16), row-major: b[0], b[1] its first eight columns, b[2], b[3] the
 * others. */
static __device__ __forceinline__ void weft_load_b(uint32_t b[4],
                                                   const uint16_t *at, int ld)
{
    int lane = threadIdx.x % WEFT_WARP, row = lane % 16,
        column = lane / 16 * 8;
    weft_load_matrices<true>(b, at + row * ld + column);
}

/* The same of a B whose columns are rows at `at`. */
static __device__ __forceinline__ void weft_load_b_columns(uint32_t b[4],
                                                           const uint16_t *at,
                                                           int ld)
{
    int lane = threadIdx.x % WEFT_WARP;
    int row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
    weft_load_matrices<false>(b, at + row * ld + column);
}

#endif
