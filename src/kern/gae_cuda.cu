/* SPDX-License-Identifier: Apache-2.0 */
/* Generalised advantage estimation on a GPU: a warp per response. */
#include "kern/cuda_lang.h"

static __global__ void gae(int32_t n, float gamma, float lambda,
                           const float *reward, const float *value,
                           const float *bootstrap, float *advantage_out,
                           float *return_out)
{
    int lane = threadIdx.x;
    double g = (double) gamma, decay = g * (double) lambda;
    double end = bootstrap ? (double) *bootstrap : 0, advantage = 0;
    /* 32 tokens at a time, the last first; lane 31 has the last of them */
    for (int32_t last = n - 1; last >= 0; last -= WEFT_WARP) {
        int32_t i = last - (WEFT_WARP - 1) + lane;
        float v = i >= 0 ? value[i] : 0, mine = 0;
        double delta = 0;
        if (i >= 0) {
            double next = i + 1 < n ? (double) value[i + 1] : end;
            delta = (double) reward[i] + g * next - (double) v;
        }
        for (int from = WEFT_WARP - 1; from >= 0; from--) {
            advantage = __shfl_sync(WEFT_FULL_WARP, delta, from)
                      + decay * advantage;
            mine = from == lane ? (float) advantage : mine;
        }
        if (i >= 0) {
            advantage_out[i] = mine;
            return_out[i] = mine + v;
        }
    }
}

void weft_k_gae_cuda(cudaStream_t stream, int32_t n, float gamma,
                     float lambda, const float *reward, const float *value,
                     const float *bootstrap, float *advantage_out,
                     float *return_out)
{
    if (n > 0)
        WEFT_LAUNCH(gae, 1, WEFT_WARP, stream, n, gamma, lambda, reward,
                    value, bootstrap, advantage_out, return_out);
}
