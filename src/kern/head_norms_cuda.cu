/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of queries and keys backwards on a GPU, head by head
 * (layer_unrotate_cpu.c); forwards they are a part of layer_qkv_cuda.cu. */
#include "kern/layer_rows_cuda.h"
#include "kern/rmsnorm_cuda.h"

enum { WARPS = 4, EACH = 256 / WEFT_WARP /* D is at most 256 */ };

/* A warp per row, its heads in order. */
static __global__ void norm_backward(int64_t m, int64_t n_heads, int64_t d,
                                     float eps, const float *x, int64_t ldx,
                                     const float *w, float *g, int64_t ldg,
                                     float *sum)
{
    int lane = threadIdx.x % WEFT_WARP;
    int64_t r = (int64_t) blockIdx.x * WARPS + threadIdx.x / WEFT_WARP;
    float total[EACH];
    if (r >= m)
        return;
    x += r * ldx;
    g += r * ldg;
    for (int e = 0; e < EACH; e++)
        total[e] = 0;
    for (int64_t head = 0; head < n_heads; head++, x += d, g += d) {
        float inv = row_inv_rms(d, eps, x, d % 2 == 0 && ldx % 2 == 0, lane);
        float mean = row_norm_mean(d, inv, x, w, g, lane);
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            int64_t j = lane + e * WEFT_WARP;
            if (j >= d)
                break;
            float n = x[j] * inv;
            total[e] = fmaf(g[j], n, total[e]);
            g[j] = fmaf(fmaf(n, mean, g[j] * w[j]), inv, 0.0f);
        }
    }
    for (int e = 0; sum && e < EACH; e++)
        if (lane + e * WEFT_WARP < d)
            sum[r * d + lane + e * WEFT_WARP] = total[e];
}

void weft_head_norms_backward_cuda(cudaStream_t stream, int64_t m,
                                   int64_t n_heads, int64_t d, float eps,
                                   const float *x, int64_t ldx,
                                   const float *w, float *g, int64_t ldg,
                                   float *sum)
{
    weft_assert(d <= EACH * WEFT_WARP);
    if (m > 0)
        WEFT_LAUNCH(norm_backward, blocks_for(m, WARPS), WARPS * WEFT_WARP,
                    stream, m, n_heads, d, eps, x, ldx, w, g, ldg, sum);
}
