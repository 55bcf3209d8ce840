/* SPDX-License-Identifier: Apache-2.0 */
/* Policy losses with their gradient with respect to the log-prob and the
 * entropy of every token; the formulas are in policy_loss.h. */
#include "kern/policy_loss.h"

static void add_stats(double *stat, const double *one)
{
    for (int k = 0; k < WEFT_N_POLICY_STATS; k++)
        stat[k] = weft_policy_stat_add(k, stat[k], one[k]);
}

void weft_k_policy_loss(const struct weft_k_policy *p, int32_t n, float w,
                        const float *logp, const float *old_logp,
                        const float *ref_logp, const float *advantage,
                        const float *entropy, float *dlogp, float *dentropy,
                        double stat[WEFT_N_POLICY_STATS])
{
    struct weft_policy_term sample = {0, 0};
    double sum = 0;
    for (int32_t i = 0; p->kind == WEFT_POLICY_GSPO && i < n; i++)
        sum += (double) logp[i] - (double) old_logp[i];
    if (p->kind == WEFT_POLICY_GSPO)
        sample = weft_policy_sample(n, sum);
    for (int32_t i = 0; i < n; i++) {
        struct weft_policy_token t = {logp[i], old_logp[i],
                                      ref_logp ? ref_logp[i] : 0,
                                      advantage[i], entropy[i]};
        double one[WEFT_N_POLICY_STATS];
        weft_policy_loss_token(p, sample, w, &t, &dlogp[i], &dentropy[i],
                               one);
        add_stats(stat, one);
    }
}

void weft_k_sft_loss(int32_t n, float w, const float *logp,
                     const float *entropy, float *dlogp,
                     double stat[WEFT_N_POLICY_STATS])
{
    for (int32_t i = 0; i < n; i++) {
        double one[WEFT_N_POLICY_STATS];
        weft_sft_loss_token(w, logp[i], entropy[i], &dlogp[i], one);
        add_stats(stat, one);
    }
}
