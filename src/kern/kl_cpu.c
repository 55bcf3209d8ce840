/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates of the KL divergence from the reference, the controller of its
 * coefficient, and the gate that ends training at a limit. */
#include "kern/policy_loss.h"

struct weft_k_kl weft_k_kl(enum weft_kl kind, float logp, float ref)
{
    return weft_kl_of(kind, logp, ref);
}

double weft_k_kl_adapt(double coef, double kl, double target, int32_t n,
                       int32_t horizon)
{
    double error = fmax(fmin(kl / target - 1, 0.2), -0.2);
    return coef * (1 + error * n / horizon);
}

float weft_k_kl_gate(float limit, int32_t n, const double *stat)
{
    double kl = 0, tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        kl += stat[i * WEFT_N_POLICY_STATS + WEFT_STAT_PPO_KL];
        tokens += stat[i * WEFT_N_POLICY_STATS + WEFT_STAT_TOKENS];
    }
    return tokens == 0 || kl / tokens <= (double) limit ? 1 : 0;
}
