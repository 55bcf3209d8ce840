/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates of the KL divergence from the reference, the controller of its
 * coefficient, and the gate that ends training at a limit. */
#include "kern/kern.h"

#include <math.h>

/* Bound of k3, as in verl (0.9.1, trainer/ppo/core_algos.py:
 * kl_penalty_forward): without it the exponential of one token could exceed
 * the sum of all others. */
static const double K3_MAX = 10;

struct weft_k_kl weft_k_kl(enum weft_kl kind, float logp, float ref)
{
    double d = (double) logp - (double) ref, k;
    switch (kind) {
    case WEFT_KL_K1:
        return (struct weft_k_kl){d, 1};
    case WEFT_KL_K2:
        return (struct weft_k_kl){0.5 * d * d, d};
    case WEFT_KL_K3:
        k = expm1(-d) + d;
        if (k > K3_MAX)
            return (struct weft_k_kl){K3_MAX, 0};
        return (struct weft_k_kl){k, -expm1(-d)};
    case WEFT_KL_ABS:
        return (struct weft_k_kl){fabs(d), d > 0 ? 1 : d < 0 ? -1 : d};
    default:
        return (struct weft_k_kl){0, 0};
    }
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
