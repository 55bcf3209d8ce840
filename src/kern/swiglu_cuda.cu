/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU on a GPU and its backward pass: four columns to a thread, with the
 * bits of rows_impl.h. */
#include "kern/cuda_lang.h"
#include "kern/layer_rows_cuda.h"

enum { ELEMENTS = 256 };

/* Where column i of y, a multiple of 4, has its gate; its up is 32 behind. */
static __device__ __forceinline__ int64_t gate_of(int64_t i)
{
    return i / WEFT_PANEL * 2 * WEFT_PANEL + i % WEFT_PANEL;
}

static __device__ __forceinline__ float swiglu_at(float g, float u)
{
    return g / (1.0f + weft_expf(0.0f - g)) * u;
}

static __device__ __forceinline__ float4 swiglu4_at(float4 g, float4 u)
{
    g.x = swiglu_at(g.x, u.x);
    g.y = swiglu_at(g.y, u.y);
    g.z = swiglu_at(g.z, u.z);
    g.w = swiglu_at(g.w, u.w);
    return g;
}

/* Column y of the grid has tensor block y. */
template <enum weft_dtype DTYPE>
static __global__ void swiglu(struct weft_swiglu_cuda a)
{
    int64_t i = 4 * ((int64_t) blockIdx.x * ELEMENTS + threadIdx.x);
    if (i >= a.n[blockIdx.y])
        return;
    const void *gate_up = a.gate_up[blockIdx.y];
    float4 g = load4_as<DTYPE>(gate_up, gate_of(i));
    float4 u = load4_as<DTYPE>(gate_up, gate_of(i) + WEFT_PANEL);
    store4_as<DTYPE>(a.y[blockIdx.y], i, swiglu4_at(g, u));
}

template <enum weft_dtype DTYPE>
static void swiglu_of(cudaStream_t stream, const struct weft_swiglu_cuda *a)
{
    int64_t most = 0;
    for (int32_t b = 0; b < a->n_blocks; b++)
        most = weft_max64(most, a->n[b]);
    dim3 grid(blocks_for(most, 4 * ELEMENTS), (unsigned) a->n_blocks);
    if (most > 0)
        WEFT_LAUNCH(swiglu<DTYPE>, grid, ELEMENTS, stream, *a);
}

void weft_swiglu_blocks_cuda(cudaStream_t stream, enum weft_dtype dtype,
                             const struct weft_swiglu_cuda *a)
{
    WEFT_BY_DTYPE(dtype, swiglu_of, stream, a);
}

/* With s = 1 / (1 + e^-g), the derivative of silu(g) is s (1 + g (1 - s)).
 * Replaces g and u by their gradients. */
static __device__ __forceinline__ void swiglu_slope(float *g, float *u,
                                                    float d)
{
    float s = 1.0f / (1.0f + weft_expf(0.0f - *g));
    float slope = s * fmaf(*g, 1.0f - s, 1.0f);
    float dg = d * *u * slope;
    *u = d * (*g * s);
    *g = dg;
}

/* y: NULL, or the forward pass's, too, which gradients of weights read. */
template <enum weft_dtype DTYPE>
static __global__ void swiglu_backward(int64_t n, const void *gate_up,
                                       const float *dy, void *y,
                                       void *dgate_up)
{
    int64_t i = 4 * ((int64_t) blockIdx.x * ELEMENTS + threadIdx.x);
    if (i >= n)
        return;
    float4 g = load4_as<DTYPE>(gate_up, gate_of(i));
    float4 u = load4_as<DTYPE>(gate_up, gate_of(i) + WEFT_PANEL);
    float4 d = load4_as<WEFT_F32>(dy, i);
    if (y)
        store4_as<DTYPE>(y, i, swiglu4_at(g, u));
    swiglu_slope(&g.x, &u.x, d.x);
    swiglu_slope(&g.y, &u.y, d.y);
    swiglu_slope(&g.z, &u.z, d.z);
    swiglu_slope(&g.w, &u.w, d.w);
    store4_as<DTYPE>(dgate_up, gate_of(i), g);
    store4_as<DTYPE>(dgate_up, gate_of(i) + WEFT_PANEL, u);
}

template <enum weft_dtype DTYPE>
static void swiglu_backward_of(cudaStream_t stream, int64_t n,
                               const void *gate_up, const float *dy, void *y,
                               void *dgate_up)
{
    WEFT_LAUNCH(swiglu_backward<DTYPE>, blocks_for(n, 4 * ELEMENTS), ELEMENTS,
                stream, n, gate_up, dy, y, dgate_up);
}

void weft_k_swiglu_backward_cuda(cudaStream_t stream, enum weft_dtype dtype,
                                 int64_t m, int64_t ff, const void *gate_up,
                                 const float *dy, void *y, void *dgate_up)
{
    if (m > 0)
        WEFT_BY_DTYPE(dtype, swiglu_backward_of, stream, m * ff, gate_up, dy,
                      y, dgate_up);
}
