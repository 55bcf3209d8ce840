/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that do something right, or something wrong, for test_executor.c. */
#include "kern/cuda_lang.h"

#include "test_executor.h"

struct numbers {
    float x[64];
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
