/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy losses with their gradient with respect to the log-prob and the
 * entropy of every token. The clamps are verl's (0.9.1,
 * trainer/ppo/core_algos.py: compute_policy_loss, _gspo, _cispo), so that runs
 * can be compared.
 */
#include "kern/kern.h"

#include <math.h>

/* Log-ratios are clamped to [-LOG_RATIO_MAX, LOG_RATIO_MAX]. */
static const float LOG_RATIO_MAX = 20;
/* The mean log-ratio of a sample is clamped from above. */
static const double MEAN_LOG_RATIO_MAX = 10;

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

/* exp(mean of log-ratios) of a sample. A token's slope is that of the token's
 * ratio with this value, and not 1/n of it: the loss is the same at all n
 * tokens, so that the sum over them has n times the slope. */
static struct term sample_ratio(int32_t n, const float *logp,
                                const float *old_logp)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double) logp[i] - (double) old_logp[i];
    double mean = sum / n;
    if (mean > MEAN_LOG_RATIO_MAX)
        return (struct term){(float) exp(MEAN_LOG_RATIO_MAX), 0};
    return (struct term){(float) exp(mean), 1};
}

static float clip(const struct weft_k_policy *p, float ratio)
{
    float low = 1 - p->clip_low, high = 1 + p->clip_high;
    return ratio < low ? low : ratio > high ? high : ratio;
}

/* max(-A r, -A clip(r)) */
static struct term clipped(const struct weft_k_policy *p, struct term ratio,
                           float a, double *stat)
{
    float kept = clip(p, ratio.value);
    struct term loss = {-a * ratio.value, -a * ratio.value * ratio.slope};
    if (-a * kept > loss.value) {
        loss = (struct term){-a * kept, 0};
        stat[WEFT_STAT_CLIPPED] += 1;
    }
    return loss;
}

/* For A < 0 at most -c A. */
static struct term dual_clipped(const struct weft_k_policy *p,
                                struct term loss, float a, double *stat)
{
    if (p->dual_clip > 0 && a < 0 && loss.value > -a * p->dual_clip) {
        loss = (struct term){-a * p->dual_clip, 0};
        stat[WEFT_STAT_CLIPPED_LOWER] += 1;
    }
    return loss;
}

/* -A clip(r) log p, where clip(r) is a constant. */
static struct term weighted(const struct weft_k_policy *p, float ratio,
                            float logp, float a, double *stat)
{
    float kept = clip(p, ratio);
    if (kept != ratio)
        stat[WEFT_STAT_CLIPPED] += 1;
    return (struct term){-a * kept * logp, -a * kept};
}

static struct term policy_term(const struct weft_k_policy *p,
                               const struct term *sample, struct term token,
                               float logp, float a, double *stat)
{
    switch (p->kind) {
    case WEFT_POLICY_GSPO:
        return clipped(p, *sample, a, stat);
    case WEFT_POLICY_CISPO:
        return weighted(p, token.value, logp, a, stat);
    default:
        return dual_clipped(p, clipped(p, token, a, stat), a, stat);
    }
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
    struct term sample = {0, 0};
    if (p->kind == WEFT_POLICY_GSPO)
        sample = sample_ratio(n, logp, old_logp);
    for (int32_t i = 0; i < n; i++) {
        struct term d = log_ratio(logp[i], old_logp[i]);
        float ratio = expf(d.value);
        struct term pg = policy_term(p, &sample,
                                     (struct term){ratio, d.slope}, logp[i],
                                     advantage[i], stat);
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
