/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of 64 rows in shared memory and a warp's products with them. Internal
 * to attention_mma_backward_cuda.cu. */
#ifndef WEFT_KERN_ATTENTION_TILES_CUDA_H
#define WEFT_KERN_ATTENTION_TILES_CUDA_H

#include "kern/mma_cuda.h"

enum { WARPS = 4, THREADS = WARPS * WEFT_WARP, TILE = WARPS * 16 };

/* 64 rows of two matrices. */
template <int D> struct alignas(16) pair {
    enum { LD = D + 8 }; /* banks do not collide */
    uint16_t x[TILE][LD], y[TILE][LD];
};
/* 64 rows of d numbers, the first n of which are there. UNROLL: what takes the
 * fewest registers where it is called. */
template <int D, int UNROLL = 1>
static __device__ __forceinline__ void begin_rows(uint16_t (*to)[pair<D>::LD],
                                                  const void *from,
                                                  int64_t ld, int n, int d)
{
#pragma unroll UNROLL
    for (int e = threadIdx.x; e < TILE * D / 8; e += THREADS) {
        int i = e / (D / 8), j = e % (D / 8) * 8;
        bool is_there = i < n && j < d;
        weft_copy16(&to[i][j],
                    (const uint16_t *) from + (is_there ? i * ld + j : 0),
                    is_there);
    }
}

/* A warp's 16 rows of both matrices as left factors. */
template <int D>
static __device__ __forceinline__ void take_rows(const pair<D> &t,
                                                 uint32_t x[D / 16][4],
                                                 uint32_t y[D / 16][4])
{
    int mine = threadIdx.x / WEFT_WARP * 16;
    weft_copies_wait<0>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        weft_load_a(x[k], &t.x[mine][16 * k], pair<D>::LD);
        weft_load_a(y[k], &t.y[mine][16 * k], pair<D>::LD);
    }
    __syncthreads();
}

/* x times the transpose of 16 rows of a matrix. */
template <int D>
static __device__ __forceinline__ void times_rows(
    float c[2][4], const uint32_t x[D / 16][4],
    const uint16_t (*rows)[pair<D>::LD])
{
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[h][e] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t b[4];
        weft_load_b_columns(b, &rows[0][16 * k], pair<D>::LD);
        weft_mma(c[0], x[k], b);
        weft_mma(c[1], x[k], b + 2);
    }
}

/* c += x times 16 rows of a matrix. */
template <int D>
static __device__ __forceinline__ void add_times(
    float c[D / 8][4], const uint32_t x[4],
    const uint16_t (*rows)[pair<D>::LD])
{
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        uint32_t b[4];
        weft_load_b(b, &rows[0][8 * n], pair<D>::LD);
        weft_mma(c[n], x, b);
        weft_mma(c[n + 1], x, b + 2);
    }
}

template <int N> static __device__ __forceinline__ void clear(float c[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[n][e] = 0;
}

/* Two products side by side, as a left factor. */
static __device__ __forceinline__ void round_pair(uint32_t a[4],
                                                  const float c[2][4])
{
#pragma unroll
    for (int e = 0; e < 4; e++)
        a[e] = weft_bf16_pair(c[e / 2][e % 2 * 2], c[e / 2][e % 2 * 2 + 1]);
}

/* A warp's 16 rows of a gradient, of which the first n are there. */
template <int D>
static __device__ __forceinline__ void store_rows(float *to, int64_t ld,
                                                  int n, int d,
                                                  const float c[D / 8][4])
{
    int row = threadIdx.x % WEFT_WARP / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            if (row + 8 * r < n && column + 8 * j < d)
                *(float2 *) &to[(row + 8 * r) * ld + column + 8 * j] = {
                    c[j][2 * r], c[j][2 * r + 1]};
}

#endif
