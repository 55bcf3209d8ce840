/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm of a row by a warp. Internal to the kernels. */
#ifndef WEFT_KERN_RMSNORM_CUDA_H
#define WEFT_KERN_RMSNORM_CUDA_H

#include "kern/cuda_lang.h"

/* The CPU has 64 partial sums, each of every 64th element; what is left behind
 * the last multiple of 64 goes to the first 16. A lane has sums 2 lane and
 * 2 lane + 1, whose elements are neighbours; `pairs`: they can be read at
 * once. */
static __device__ float row_inv_rms(int64_t h, float eps, const float *x,
                                    bool pairs, int lane)
{
    float s0 = 0, s1 = 0;
    int64_t i = 0;
    if (pairs) {
        /* a decode step has one warp for a row: many loads under way */
#pragma unroll 16
        for (; i + 64 <= h; i += 64) {
            float2 a = *(const float2 *) (x + i + 2 * lane);
            s0 = fmaf(a.x, a.x, s0);
            s1 = fmaf(a.y, a.y, s1);
        }
    }
    for (; i + 64 <= h; i += 64) {
        s0 = fmaf(x[i + 2 * lane], x[i + 2 * lane], s0);
        s1 = fmaf(x[i + 2 * lane + 1], x[i + 2 * lane + 1], s1);
    }
    for (i += 2 * lane; lane < 8 && i < h; i += 16) {
        float b = i + 1 < h ? x[i + 1] : 0;
        s0 = fmaf(x[i], x[i], s0);
        s1 = fmaf(b, b, s1);
    }
    /* (0-15 + 16-31) + (32-47 + 48-63), then the tree over 16 */
    s0 = warp_sum(warp_sum(s0, 8, 8), 16, 16);
    s1 = warp_sum(warp_sum(s1, 8, 8), 16, 16);
    float sum = warp_sum(s0, 4, 1) + warp_sum(s1, 4, 1);
    return 1.0f / sqrtf(sum / (float) h + eps);
}

/* Row r of the norm y (m, h) of x (m, h). */
template <enum weft_dtype DTYPE>
static __device__ void norm_row(int64_t r, int64_t h, float eps,
                                const float *x, const float *w, void *y,
                                int lane)
{
    x += r * h;
    float inv = row_inv_rms(h, eps, x, h % 2 == 0, lane);
    int64_t i = 4 * lane;
    if (h % 4 == 0)
#pragma unroll 8
        for (; i < h; i += 4 * WEFT_WARP) {
            float4 a = *(const float4 *) (x + i);
            float4 b = *(const float4 *) (w + i);
            a.x = a.x * inv * b.x;
            a.y = a.y * inv * b.y;
            a.z = a.z * inv * b.z;
            a.w = a.w * inv * b.w;
            store4_as<DTYPE>(y, r * h + i, a);
        }
    else
        for (i = lane; i < h; i += WEFT_WARP)
            store_as<DTYPE>(y, r * h + i, x[i] * inv * w[i]);
}

/* With n = x / rms, where inv is 1 / rms: minus the mean of w dy n. */
static __device__ inline float row_norm_mean(int64_t h, float inv,
                                             const float *x, const float *w,
                                             const float *dy, int lane)
{
    float s = 0;
#pragma unroll 4
    for (int64_t i = lane; i < h; i += WEFT_WARP)
        s = fmaf(dy[i] * w[i], x[i] * inv, s);
    return -warp_sum(s, 16, 1) / (float) h;
}

#endif
