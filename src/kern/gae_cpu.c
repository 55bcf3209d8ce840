/* SPDX-License-Identifier: Apache-2.0 */
/* Generalised advantage estimation (Schulman et al. 2016, equation 16). */
#include "kern/losses.h"

void weft_k_gae(int32_t n, float gamma, float lambda, const float *reward,
                const float *value, float bootstrap, float *advantage_out,
                float *return_out)
{
    const double g = (double) gamma, decay = g * (double) lambda;
    double next = (double) bootstrap, advantage = 0;
    for (int32_t i = n - 1; i >= 0; i--) {
        float v = value[i];
        double delta = (double) reward[i] + g * next - (double) v;
        advantage = delta + decay * advantage;
        advantage_out[i] = (float) advantage;
        return_out[i] = (float) advantage + v;
        next = (double) v;
    }
}

void weft_k_baseline(int32_t n, const float *ret, double baseline,
                     float *advantage_out)
{
    for (int32_t i = 0; i < n; i++)
        advantage_out[i] = (float) ((double) ret[i] - baseline);
}
