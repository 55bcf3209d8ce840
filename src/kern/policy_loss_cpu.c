/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PPO's clipped policy loss with its gradient with respect to the log-prob
 * and the entropy of every token. Clamps and estimators are verl's
 * (0.9.1, trainer/ppo/core_algos.py: compute_policy_loss, kl_penalty), so that
 * runs can be compared.
 */
#include "kern/kern.h"

#include <math.h>

/* Bounds of the log-ratios, and of the k3 estimate. */
static const float LOG_RATIO_MAX = 20, K3_MAX = 10;

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

/* KL estimates of Schulman 2020, http://joschu.net/blog/kl-approx.html */
static struct term kl_k1(float logp, float ref)
{
    return (struct term){logp - ref, 1};
}

static struct term kl_k2(float logp, float ref)
{
    float d = logp - ref;
    return (struct term){0.5f * d * d, d};
}

static struct term kl_k3(float logp, float ref)
{
    struct term d = log_ratio(ref, logp);
    float r = expf(d.value), k = r - d.value - 1;
    if (k > K3_MAX)
        return (struct term){K3_MAX, 0};
    return (struct term){k, d.slope * (1 - r)};
}

static struct term kl_none(float logp, float ref)
{
    (void) logp;
    (void) ref;
    return (struct term){0, 0};
}

static struct term (*const KL[])(float, float) = {
    [WEFT_KL_NONE] = kl_none,
    [WEFT_KL_K1] = kl_k1,
    [WEFT_KL_K2] = kl_k2,
    [WEFT_KL_K3] = kl_k3,
};

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
    if (x > *max || isnan(x)) /* a NaN comes in, and stays */
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
        struct term kl = KL[p->kl](logp[i], ref_logp ? ref_logp[i] : 0);

        dlogp[i] = w * (pg.slope + p->kl_coef * kl.slope);
        dentropy[i] = -w * p->entropy_coef;
        float loss = pg.value - p->entropy_coef * entropy[i]
                   + p->kl_coef * kl.value;
        stat[WEFT_STAT_LOSS] += (double) w * (double) loss;
        stat[WEFT_STAT_PG_LOSS] += (double) pg.value;
        stat[WEFT_STAT_PPO_KL] -= (double) d.value;
        stat[WEFT_STAT_ENTROPY] += (double) entropy[i];
        stat[WEFT_STAT_KL] += (double) kl.value;
        stat[WEFT_STAT_RATIO] += (double) ratio;
        stat[WEFT_STAT_TOKENS] += 1;
        add_max(&stat[WEFT_STAT_RATIO_MAX_DEV], fabs((double) ratio - 1));
        add_max(&stat[WEFT_STAT_LOGP_DIFF_MAX],
                fabs((double) logp[i] - (double) old_logp[i]));
    }
}
