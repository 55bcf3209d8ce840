/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the leaves of a tree, and what products are tested with at the
 * start. */
#include "kern/rmsnorm_cuda.h"
#include "kern/sum_blocks_cuda.h"

enum { THREADS = 256 };

/* A kernel looks at the first N leaves: FEW, or if there are more at all, which
 * takes four times the loads' tests and registers. */
enum { FEW = WEFT_DEFAULT_BLOCKS };

static bool are_few(const struct weft_leaves_cuda *leaves)
{
    for (int b = FEW; b < WEFT_MAX_BLOCKS; b++)
        if (leaves->x[b])
            return false;
    return true;
}

/* Number (row, column) of the sum; of the residual number `at`. */
template <int N>
static __device__ __forceinline__ float sum_at(
    const struct weft_leaves_cuda &leaves, const float *bias,
    const float *residual, int64_t row, int64_t column, int64_t at)
{
    float x[N];
    bool is[N];
#pragma unroll
    for (int b = 0; b < N; b++) {
        is[b] = leaves.x[b] != NULL;
        x[b] = is[b] ? leaves.x[b][row * leaves.ld[b] + column] : 0;
    }
#pragma unroll
    for (int step = 1; step < N; step *= 2)
#pragma unroll
        for (int b = 0; b + step < N; b += 2 * step) {
            if (is[b + step])
                x[b] = is[b] ? x[b] + x[b + step] : x[b + step];
            is[b] = is[b] || is[b + step];
        }
    float sum = x[0];
    if (bias)
        sum = sum + bias[column];
    if (residual)
        sum = sum + residual[at];
    return sum;
}

template <enum weft_dtype DTYPE, int N>
static __global__ void sum_leaves(int64_t size, int64_t n,
                                  struct weft_leaves_cuda leaves,
                                  const float *bias, const float *residual,
                                  void *y, int64_t ldy)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i >= size)
        return;
    int64_t row = i / n, column = i % n, at = row * ldy + column;
    store_as<DTYPE>(y, at,
                    sum_at<N>(leaves, bias, residual, row, column, at));
}

template <enum weft_dtype DTYPE>
static void sum_leaves_of(cudaStream_t stream, int64_t m, int64_t n,
                          const struct weft_leaves_cuda *leaves,
                          const float *bias, const float *residual, void *y,
                          int64_t ldy)
{
    unsigned blocks = blocks_for(m * n, THREADS);
    if (are_few(leaves))
        WEFT_LAUNCH((sum_leaves<DTYPE, FEW>), blocks, THREADS, stream, m * n,
                    n, *leaves, bias, residual, y, ldy);
    else
        WEFT_LAUNCH((sum_leaves<DTYPE, WEFT_MAX_BLOCKS>), blocks, THREADS,
                    stream, m * n, n, *leaves, bias, residual, y, ldy);
}

void weft_sum_leaves_cuda(cudaStream_t stream, int64_t m, int64_t n,
                          const struct weft_leaves_cuda *leaves,
                          const float *bias, const float *residual,
                          enum weft_dtype y_dtype, void *y, int64_t ldy)
{
    if (m > 0)
        WEFT_BY_DTYPE(y_dtype, sum_leaves_of, stream, m, n, leaves, bias,
                      residual, y, ldy);
}

/* A block per row: all threads add, a warp finds the norm. */
template <enum weft_dtype DTYPE, int N>
static __global__ void sum_leaves_norm(int64_t n,
                                       struct weft_leaves_cuda leaves,
                                       const float *bias,
                                       const float *residual, float *y,
                                       float eps, const float *w, void *out)
{
    WEFT_SHARED(float, inv);
    int64_t row = blockIdx.x;
    for (int64_t j = threadIdx.x; j < n; j += THREADS)
        y[row * n + j] = sum_at<N>(leaves, bias, residual, row, j,
                                   row * n + j);
    __syncthreads();
    if (threadIdx.x < WEFT_WARP) {
        float x = row_inv_rms(n, eps, y + row * n, n % 2 == 0,
                              (int) threadIdx.x);
        if (threadIdx.x == 0)
            inv = x;
    }
    __syncthreads();
    for (int64_t j = threadIdx.x; j < n; j += THREADS)
        store_as<DTYPE>(out, row * n + j, y[row * n + j] * inv * w[j]);
}

template <enum weft_dtype DTYPE>
static void sum_leaves_norm_of(cudaStream_t stream, int64_t m, int64_t n,
                               const struct weft_leaves_cuda *leaves,
                               const float *bias, const float *residual,
                               float *y, const struct weft_norm_cuda *norm)
{
    if (are_few(leaves))
        WEFT_LAUNCH((sum_leaves_norm<DTYPE, FEW>), (unsigned) m, THREADS,
                    stream, n, *leaves, bias, residual, y, norm->eps, norm->w,
                    norm->out);
    else
        WEFT_LAUNCH((sum_leaves_norm<DTYPE, WEFT_MAX_BLOCKS>), (unsigned) m,
                    THREADS, stream, n, *leaves, bias, residual, y, norm->eps,
                    norm->w, norm->out);
}

void weft_sum_leaves_norm_cuda(cudaStream_t stream, int64_t m, int64_t n,
                               const struct weft_leaves_cuda *leaves,
                               const float *bias, const float *residual,
                               float *y, const struct weft_norm_cuda *norm)
{
    if (m > 0)
        WEFT_BY_DTYPE(norm->dtype, sum_leaves_norm_of, stream, m, n, leaves,
                      bias, residual, y, norm);
}

/* Number k of a vector, by splitmix64 (Steele and others, 2014). */
static __device__ float number_of(int64_t vector, int64_t k, bool cancels)
{
    uint64_t z = ((uint64_t) vector << 32 ^ (uint64_t) k)
                   * 0x9e3779b97f4a7c15u
               + (cancels ? 0xd1342543de82ef95u : 0);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    float x = (float) (int32_t) (z >> 32) * 0x1p-31f;
    return x / (float) (1 << (z & 7));
}

/* A thread has so many numbers of a vector. */
enum { NUMBERS = 64 };

template <enum weft_dtype DTYPE>
static __global__ void fill_operand(int64_t size, int64_t n_pieces,
                                    struct weft_operand_cuda o, void *out)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i >= size)
        return;
    int64_t vector = i / n_pieces, half = o.depth / 2;
    int64_t k = i % n_pieces * NUMBERS;
    int64_t end = k + NUMBERS < o.depth ? k + NUMBERS : o.depth;
    int64_t at = vector / o.n * o.set + vector % o.n * o.step;
    for (; k < end; k++) {
        bool repeats = k >= half && k < 2 * half
                    && (!o.cancels || vector % 2 == 1);
        float x = number_of(vector, repeats ? k - half : k, o.cancels);
        store_as<DTYPE>(out, at + k * o.depth_step,
                        repeats && o.cancels ? -x : x);
    }
}

template <enum weft_dtype DTYPE>
static void fill_operand_of(cudaStream_t stream,
                            const struct weft_operand_cuda *o, void *out)
{
    int64_t n_pieces = weft_ceil_div(o->depth, NUMBERS);
    int64_t size = o->n * o->n_sets * n_pieces;
    WEFT_LAUNCH(fill_operand<DTYPE>, blocks_for(size, THREADS), THREADS,
                stream, size, n_pieces, *o, out);
}

void weft_fill_operand_cuda(cudaStream_t stream, enum weft_dtype dtype,
                            const struct weft_operand_cuda *operand,
                            void *out)
{
    WEFT_BY_DTYPE(dtype, fill_operand_of, stream, operand, out);
}

/* All threads that write, write the same. */
static __global__ void find_unlike(int64_t size, int64_t n, int64_t n_halves,
                                   int64_t set, const uint16_t *a,
                                   int64_t ld_a, const uint16_t *b,
                                   int64_t ld_b, uint32_t *is_unlike_out)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i >= size)
        return;
    int64_t row = i / n_halves, at = row / n * set + i % n_halves;
    row %= n;
    if (a[at + row * ld_a] != b[at + row * ld_b])
        *is_unlike_out = 1;
}

void weft_find_unlike_cuda(cudaStream_t stream, int64_t n, int32_t n_sets,
                           size_t n_bytes, size_t set_bytes, const void *a,
                           size_t ld_a, const void *b, size_t ld_b,
                           uint32_t *is_unlike_out)
{
    int64_t halves = (int64_t) n_bytes / 2, size = n * n_sets * halves;
    weft_k_zero_cuda(stream, is_unlike_out, sizeof *is_unlike_out);
    WEFT_LAUNCH(find_unlike, blocks_for(size, THREADS), THREADS, stream, size,
                n, halves, (int64_t) set_bytes / 2, (const uint16_t *) a,
                (int64_t) ld_a / 2, (const uint16_t *) b, (int64_t) ld_b / 2,
                is_unlike_out);
}
