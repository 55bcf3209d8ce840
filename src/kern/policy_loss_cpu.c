/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PPO's clipped policy loss with its gradient with respect to the log-prob
 * and the entropy of every token. The clamp is verl's (0.9.1,
 * trainer/ppo/core_algos.py: compute_policy_loss), so that runs can be
 * compared.
 */
#include "kern/kern.h"

#include <math.h>

/* Log-ratios are clamped to [-LOG_RATIO_MAX, LOG_RATIO_MAX]. */
static const float LOG_RATIO_MAX = 20;

struct term {
    float value, slope; /* slope: d value / d logp */
};

/* Clamped log-ratio; the slope is 0 outside and 1 inside. */
static struct term log_ratio(float a, float b)
{
    float d = a - b;
    if (d > LOG_RATIO_MAX)
        return (struct term){LOG_RATIO_MAX, 0};
    if (d < -LOG_RATIO_MAX)
        return (struct term){-LOG_RATIO_MAX, 0};
    return (struct term){d, 1};
}

/* max(-A r, -A clip(r)), and for A < 0 at most -c A. */
static struct term clipped(const struct weft_k_policy *p, float ratio,
                           float slope, float a, double *stat)
{
    float low = 1 - p->clip_low, high = 1 + p->clip_high;
    float kept = ratio < low ? low : ratio > high ? high : ratio;
    struct term loss = {-a * ratio, -a * ratio * slope};
    if (-a * kept > loss.value) {
        loss = (struct term){-a * kept, 0};
        stat[WEFT_STAT_CLIPPED] += 1;
    }
    if (p->dual_clip > 0 && a < 0 && loss.value > -a * p->dual_clip) {
        loss = (struct term){-a * p->dual_clip, 0};
        stat[WEFT_STAT_CLIPPED_LOWER] += 1;
    }
    return loss;
}

static void add_max(double *max, double x)
{
    if (x > *max || isnan(x)) /* once *max is NaN it stays so */
        *max = x;
}

void weft_k_policy_loss(const struct weft_k_policy *p, int32_t n, float w,
                        const float *logp, const float *old_logp,
                        const float *ref_logp, const float *advantage,
                        const float *entropy, float *dlogp, float *dentropy,
                        double stat[WEFT_N_POLICY_STATS])
{
    for (int32_t i = 0; i < n; i++) {
        struct term d = log_ratio(logp[i], old_logp[i]);
        float ratio = expf(d.value);
        struct term pg = clipped(p, ratio, d.slope, advantage[i], stat);
        struct weft_k_kl kl = weft_k_kl(p->kl, logp[i],
                                        ref_logp ? ref_logp[i] : 0);

        dlogp[i] = w * (pg.slope + p->kl_coef * (float) kl.slope);
        dentropy[i] = -w * p->entropy_coef;
        float loss = pg.value - p->entropy_coef * entropy[i]
                   + p->kl_coef * (float) kl.value;
        stat[WEFT_STAT_LOSS] += (double) w * (double) loss;
        stat[WEFT_STAT_PG_LOSS] += (double) pg.value;
        stat[WEFT_STAT_PPO_KL] -= (double) d.value;
        stat[WEFT_STAT_ENTROPY] += (double) entropy[i];
        stat[WEFT_STAT_KL] += kl.value;
        stat[WEFT_STAT_TOKENS] += 1;
        add_max(&stat[WEFT_STAT_RATIO_MAX_DEV], fabs((double) ratio - 1));
        add_max(&stat[WEFT_STAT_LOGP_DIFF_MAX],
                fabs((double) logp[i] - (double) old_logp[i]));
    }
}
