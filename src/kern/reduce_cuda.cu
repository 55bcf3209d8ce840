/* SPDX-License-Identifier: Apache-2.0 */
/* Zeros, copies, additions of trees, and sums of squares, on a GPU. */
#include "kern/cuda_lang.h"

enum { THREADS = 256, SUMS = 16, TILE = 4096, TILES = THREADS / SUMS };

static __global__ void add(int64_t n, const float *src, float *dst)
{
    int64_t i = 4 * ((int64_t) blockIdx.x * THREADS + threadIdx.x);
    if (i + 4 <= n) {
        float4 a = load4_as<WEFT_F32>(dst, i), b = load4_as<WEFT_F32>(src, i);
        a.x = a.x + b.x;
        a.y = a.y + b.y;
        a.z = a.z + b.z;
        a.w = a.w + b.w;
        store4_as<WEFT_F32>(dst, i, a);
        return;
    }
    for (; i < n; i++)
        dst[i] += src[i];
}

void weft_k_zero_cuda(cudaStream_t stream, void *p, size_t n_bytes)
{
    if (!weft_blaslt_chooses())
        cudaMemsetAsync(p, 0, n_bytes, stream);
}

void weft_k_copy_cuda(cudaStream_t stream, void *to, const void *from,
                      size_t n_bytes)
{
    cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToDevice, stream);
}

enum { PIECES = 128 }; /* of a launch */
struct pieces {
    const float *from;
    struct {
        float *to;
        int32_t first, n;
    } of[PIECES];
};

static __global__ void deal(struct pieces p)
{
    const float *from = p.from + p.of[blockIdx.x].first;
    for (int32_t i = threadIdx.x; i < p.of[blockIdx.x].n; i += THREADS)
        p.of[blockIdx.x].to[i] = from[i];
}

void weft_k_deal_cuda(cudaStream_t stream, int32_t n, const int32_t *n_each,
                      const float *from, void *const to[])
{
    struct pieces p = {from, {}};
    for (int32_t i = 0, k = 0, first = 0; i < n; first += n_each[i++]) {
        p.of[k].to = (float *) to[i];
        p.of[k].first = first;
        p.of[k++].n = n_each[i];
        if (k == PIECES || i == n - 1) {
            WEFT_LAUNCH(deal, k, THREADS, stream, p);
            k = 0;
        }
    }
}

/* A thread for 8 bytes. */
static __global__ void put(int64_t n, const uint2 *from, uint2 *to)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = from[i];
}

void weft_k_put_cuda(cudaStream_t stream, void *device, const void *pinned,
                     size_t n_bytes)
{
    int64_t n = (int64_t) (n_bytes / sizeof(uint2));
    weft_assert(n_bytes % sizeof(uint2) == 0);
    if (n > 0)
        WEFT_LAUNCH(put, blocks_for(n, THREADS), THREADS, stream, n,
                    (const uint2 *) pinned, (uint2 *) device);
}

void weft_k_get_cuda(cudaStream_t stream, void *pinned, const void *device,
                     size_t n_bytes)
{
    cudaMemcpyAsync(pinned, device, n_bytes, cudaMemcpyDeviceToHost, stream);
}

bool weft_k_wait_cuda(cudaStream_t stream)
{
    return cudaStreamSynchronize(stream) == cudaSuccess
        && cudaPeekAtLastError() == cudaSuccess;
}

void weft_k_add_cuda(cudaStream_t stream, float *dst, const float *src,
                     size_t n)
{
    if (n > 0)
        WEFT_LAUNCH(add, blocks_for((int64_t) n, 4 * THREADS), THREADS,
                    stream, (int64_t) n, src, dst);
}

struct tile_sums {
    double of[TILES];
};

/* A block per chunk. Sixteen threads have a tile of 4096 elements, each of
 * them one partial sum; one thread adds the tiles up in their order. */
static __global__ void squares(const int64_t *begin, const float *x,
                               double *out)
{
    WEFT_SHARED(struct tile_sums, sum);
    int64_t n = begin[blockIdx.x + 1] - begin[blockIdx.x];
    int tile = threadIdx.x / SUMS, part = threadIdx.x % SUMS;
    double total = 0;
    x += begin[blockIdx.x];
    for (int64_t first = 0; first < n; first += TILES * TILE) {
        int64_t at = first + tile * TILE, end = weft_min64(at + TILE, n);
        double s = 0;
#pragma unroll 8
        for (int64_t i = at + part; i < end; i += SUMS)
            s += (double) x[i] * (double) x[i];
        s = warp_sum(s, SUMS / 2, 1);
        if (part == 0)
            sum.of[tile] = s;
        __syncthreads();
        for (int t = 0; threadIdx.x == 0 && t < TILES; t++)
            if (first + t * TILE < n)
                total += sum.of[t];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = total;
}

void weft_k_sum_squares_cuda(cudaStream_t stream, int32_t n_chunks,
                             const int64_t *begin, const float *x,
                             double *sum_out)
{
    if (n_chunks > 0)
        WEFT_LAUNCH(squares, n_chunks, THREADS, stream, begin, x, sum_out);
}
