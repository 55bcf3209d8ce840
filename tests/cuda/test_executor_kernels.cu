/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that do something right, or something wrong, for test_executor.c. */
#include "kern/mma_cuda.h"

#include "test_executor.h"

struct numbers {
    float x[64];
};
struct copied {
    alignas(16) float x[32][4], y[32][4];
};

/* Block b reverses x[64 b .. 64 b + 63] through shared memory. */
static __global__ void reverse(float *x, bool has_barrier)
{
    WEFT_SHARED(struct numbers, s);
    x += 64 * blockIdx.x;
    s.x[threadIdx.x] = x[threadIdx.x];
    if (has_barrier)
        __syncthreads();
    x[threadIdx.x] = s.x[63 - threadIdx.x];
}

/* y[i] = sum of x over the 32 threads of a warp. */
static __global__ void sums(const float *x, float *y)
{
    int i = (int) (blockIdx.x * blockDim.x + threadIdx.x);
    y[i] = warp_sum(x[i], 16, 1);
}

struct matrices {
    alignas(16) uint16_t a[16][24], b[16][24], columns[16][24];
};

/* c (2, 16, 16) = a b, b given by rows and, once more, by columns. */
static __global__ void products(const uint16_t *a, const uint16_t *b,
                                float *c)
{
    WEFT_SHARED(struct matrices, s);
    int lane = threadIdx.x, row = lane / 2, half = lane % 2 * 8;
    weft_copy16(&s.a[row][half], a + row * 16 + half, true);
    weft_copies_end();
    weft_copy16(&s.b[row][half], b + row * 16 + half, true);
    weft_copies_end();
    for (int i = 0; i < 8; i++)
        s.columns[row][half + i] = b[(half + i) * 16 + row];
    weft_copies_wait<0>();
    __syncwarp();
    uint32_t x[4], y[2][4];
    weft_load_a(x, s.a[0], 24);
    weft_load_b(y[0], s.b[0], 24);
    weft_load_b_columns(y[1], s.columns[0], 24);
    for (int way = 0; way < 2; way++)
        for (int h = 0; h < 2; h++) {
            float z[4] = {0, 0, 0, 0};
            weft_mma(z, x, y[way] + 2 * h);
            for (int i = 0; i < 4; i++)
                c[256 * way + (lane / 4 + i / 2 * 8) * 16 + 8 * h
                  + lane % 4 * 2 + i % 2] = z[i];
        }
}

/* y gets the first of two groups that are copied, 16 bytes per thread. */
static __global__ void copies(const float *x, float *y, bool waits)
{
    WEFT_SHARED(struct copied, s);
    weft_copy16(s.x[threadIdx.x], x + 4 * threadIdx.x, threadIdx.x % 2 == 0);
    weft_copies_end();
    weft_copy16(s.y[threadIdx.x], x + 4 * threadIdx.x, true);
    weft_copies_end();
    if (waits)
        weft_copies_wait<1>();
    for (int i = 0; i < 4; i++) {
        y[4 * threadIdx.x + i] = s.x[threadIdx.x][i];
        y[128 + 4 * threadIdx.x + i] = s.y[threadIdx.x][i];
    }
    weft_copies_wait<0>();
}

static __global__ void forgotten_copy(const float *x)
{
    WEFT_SHARED(struct copied, s);
    weft_copy16(s.x[threadIdx.x], x, true);
    weft_copies_end();
}

static __global__ void odd_copy(const float *x)
{
    WEFT_SHARED(struct copied, s);
    weft_copy16(s.x[threadIdx.x], x + 1, true);
    weft_copies_end();
    weft_copies_wait<0>();
}

static __global__ void half_a_barrier(float *x)
{
    if (threadIdx.x < 32)
        __syncthreads();
    x[threadIdx.x] = 1;
}

static __global__ void two_barriers(float *x)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    x[threadIdx.x] = 1;
}

static __global__ void half_a_shuffle(float *x)
{
    if (threadIdx.x < 16)
        x[threadIdx.x] = __shfl_sync(WEFT_FULL_WARP, x[threadIdx.x], 0);
}

static __global__ void masked_shuffle(float *x, int from)
{
    if (threadIdx.x < 16)
        x[threadIdx.x] = __shfl_sync(0xffffu, x[threadIdx.x], from);
}

static __global__ void beside_shared(float *x)
{
    WEFT_SHARED(struct numbers, s);
    s.x[threadIdx.x] = 0;
    *(volatile float *) (s.x - 1) = 1;
    x[threadIdx.x] = s.x[threadIdx.x];
}

static __global__ void beside_device(float *x)
{
    *(volatile float *) (x - 1) = 0;
}

static __global__ void indices(int *out)
{
    unsigned block = blockIdx.x
                   + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x
                    + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] +=
        (int) (1 + block * 1000 + thread);
}

void executor_reverse(int n_blocks, float *x, bool has_barrier)
{
    WEFT_START(reverse, n_blocks, 64, 0, x, has_barrier);
}

void executor_sums(int n_blocks, const float *x, float *y)
{
    WEFT_START(sums, n_blocks, 64, 0, x, y);
}

void executor_products(const uint16_t *a, const uint16_t *b, float *c)
{
    WEFT_START(products, 1, 32, 0, a, b, c);
}

void executor_copies(const float *x, float *y, bool waits)
{
    WEFT_START(copies, 1, 32, 0, x, y, waits);
}

void executor_wrong(enum executor_wrong what, float *x)
{
    switch (what) {
    case HALF_A_BARRIER:
        WEFT_START(half_a_barrier, 1, 64, 0, x);
        break;
    case TWO_BARRIERS:
        WEFT_START(two_barriers, 1, 64, 0, x);
        break;
    case HALF_A_SHUFFLE:
        WEFT_START(half_a_shuffle, 1, 32, 0, x);
        break;
    case FROM_OUTSIDE:
        WEFT_START(masked_shuffle, 1, 32, 0, x, 20);
        break;
    case BESIDE_SHARED:
        WEFT_START(beside_shared, 1, 64, 0, x);
        break;
    case BESIDE_DEVICE:
        WEFT_START(beside_device, 1, 1, 0, x);
        break;
    case FORGOTTEN_COPY:
        WEFT_START(forgotten_copy, 1, 32, 0, x);
        break;
    case ODD_COPY:
        WEFT_START(odd_copy, 1, 1, 0, x);
        break;
    case NO_BLOCKS:
        WEFT_START(beside_device, 0, 1, 0, x);
        break;
    case MANY_THREADS:
        WEFT_START(beside_device, 1, 1025, 0, x);
        break;
    }
}

void executor_masked(float *x)
{
    WEFT_START(masked_shuffle, 1, 32, 0, x, 3);
}

void executor_indices(int *out)
{
    WEFT_START(indices, dim3(2, 3, 4), dim3(5, 2, 3), 0, out);
}
