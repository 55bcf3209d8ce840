/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One token of a policy loss and of the critic's, with its statistics: for the
 * CPU and for GPUs. The clamps are verl's (0.9.1, trainer/ppo/core_algos.py:
 * compute_policy_loss, _gspo, _cispo), so that runs can be compared.
 */
#ifndef WEFT_KERN_POLICY_LOSS_H
#define WEFT_KERN_POLICY_LOSS_H

#include <math.h>

#include "kern/losses.h"

/* Log-ratios are clamped to [-MAX, MAX], the mean log-ratio of a sample from
 * above. */
#define WEFT_LOG_RATIO_MAX 20.0f
#define WEFT_MEAN_LOG_RATIO_MAX 10.0
/* Bound of k3, as in verl (0.9.1, trainer/ppo/core_algos.py:
 * kl_penalty_forward): without it the exponential of one token could exceed
 * the sum of all others. */
#define WEFT_K3_MAX 10.0

struct weft_policy_term {
    float value, slope; /* slope: d value / d logp */
};

struct weft_policy_token {
    float logp, old_logp, ref_logp, advantage, entropy;
};

WEFT_INLINE struct weft_policy_term weft_policy_term(float value, float slope)
{
    struct weft_policy_term t;
    t.value = value;
    t.slope = slope;
    return t;
}

/* weft_k_kl() */
WEFT_INLINE struct weft_k_kl weft_kl_of(enum weft_kl kind, float logp,
                                        float ref)
{
    double d = (double) logp - (double) ref;
    struct weft_k_kl k;
    k.value = k.slope = 0;
    switch (kind) {
    case WEFT_KL_K1:
        k.value = d;
        k.slope = 1;
        break;
    case WEFT_KL_K2:
        k.value = 0.5 * d * d;
        k.slope = d;
        break;
    case WEFT_KL_K3:
        k.value = expm1(-d) + d;
        k.slope = -expm1(-d);
        if (k.value > WEFT_K3_MAX) {
            k.value = WEFT_K3_MAX;
            k.slope = 0;
        }
        break;
    case WEFT_KL_ABS:
        k.value = fabs(d);
        k.slope = d > 0 ? 1 : d < 0 ? -1 : d;
        break;
    default:
        break;
    }
    return k;
}

/* Clamped log-ratio; the slope is 0 outside and 1 inside. */
WEFT_INLINE struct weft_policy_term weft_policy_log_ratio(float a, float b)
{
    float d = a - b;
    if (d > WEFT_LOG_RATIO_MAX)
        return weft_policy_term(WEFT_LOG_RATIO_MAX, 0);
    if (d < -WEFT_LOG_RATIO_MAX)
        return weft_policy_term(-WEFT_LOG_RATIO_MAX, 0);
    return weft_policy_term(d, 1);
}

/* exp(mean of log-ratios) of a sample; sum: of its n tokens. A token's slope is
 * that of the token's ratio with this value, and not 1/n of it: the loss is
 * the same at all n tokens, so that the sum over them has n times the slope. */
WEFT_INLINE struct weft_policy_term weft_policy_sample(int32_t n, double sum)
{
    double mean = sum / n;
    if (mean > WEFT_MEAN_LOG_RATIO_MAX)
        return weft_policy_term((float) exp(WEFT_MEAN_LOG_RATIO_MAX), 0);
    return weft_policy_term((float) exp(mean), 1);
}

WEFT_INLINE float weft_policy_clip(const struct weft_k_policy *p, float ratio)
{
    float low = 1 - p->clip_low, high = 1 + p->clip_high;
    return ratio < low ? low : ratio > high ? high : ratio;
}

/* max(-A r, -A clip(r)) */
WEFT_INLINE struct weft_policy_term weft_policy_clipped(
    const struct weft_k_policy *p, struct weft_policy_term ratio, float a,
    double *stat)
{
    float kept = weft_policy_clip(p, ratio.value);
    if (-a * kept > -a * ratio.value) {
        stat[WEFT_STAT_CLIPPED] = 1;
        return weft_policy_term(-a * kept, 0);
    }
    return weft_policy_term(-a * ratio.value, -a * ratio.value * ratio.slope);
}

/* For A < 0 at most -c A. */
WEFT_INLINE struct weft_policy_term weft_policy_dual_clipped(
    const struct weft_k_policy *p, struct weft_policy_term loss, float a,
    double *stat)
{
    if (p->dual_clip > 0 && a < 0 && loss.value > -a * p->dual_clip) {
        stat[WEFT_STAT_CLIPPED_LOWER] = 1;
        return weft_policy_term(-a * p->dual_clip, 0);
    }
    return loss;
}

/* -A clip(r) log p, where clip(r) is a constant. */
WEFT_INLINE struct weft_policy_term weft_policy_weighted(
    const struct weft_k_policy *p, float ratio, float logp, float a,
    double *stat)
{
    float kept = weft_policy_clip(p, ratio);
    if (kept != ratio)
        stat[WEFT_STAT_CLIPPED] = 1;
    return weft_policy_term(-a * kept * logp, -a * kept);
}

/* The gradients of one token, and stat (WEFT_N_POLICY_STATS), its
 * statistics. sample: of weft_policy_sample(), for GSPO. */
WEFT_INLINE void weft_policy_loss_token(const struct weft_k_policy *p,
                                        struct weft_policy_term sample,
                                        float w,
                                        const struct weft_policy_token *t,
                                        float *dlogp, float *dentropy,
                                        double *stat)
{
    struct weft_policy_term d = weft_policy_log_ratio(t->logp, t->old_logp);
    struct weft_policy_term ratio = weft_policy_term(expf(d.value), d.slope);
    struct weft_policy_term pg;
    float a = t->advantage;
    stat[WEFT_STAT_CLIPPED] = stat[WEFT_STAT_CLIPPED_LOWER] = 0;
    if (p->kind == WEFT_POLICY_GSPO)
        pg = weft_policy_clipped(p, sample, a, stat);
    else if (p->kind == WEFT_POLICY_CISPO)
        pg = weft_policy_weighted(p, ratio.value, t->logp, a, stat);
    else
        pg = weft_policy_dual_clipped(
            p, weft_policy_clipped(p, ratio, a, stat), a, stat);
    struct weft_k_kl kl = weft_kl_of(p->kl, t->logp, t->ref_logp);

    *dlogp = w * (pg.slope + p->kl_coef * (float) kl.slope);
    *dentropy = -w * p->entropy_coef;
    float loss = pg.value - p->entropy_coef * t->entropy
               + p->kl_coef * (float) kl.value;
    stat[WEFT_STAT_LOSS] = (double) w * (double) loss;
    stat[WEFT_STAT_PG_LOSS] = (double) pg.value;
    stat[WEFT_STAT_PPO_KL] = -(double) d.value;
    stat[WEFT_STAT_ENTROPY] = (double) t->entropy;
    stat[WEFT_STAT_KL] = kl.value;
    stat[WEFT_STAT_TOKENS] = 1;
    stat[WEFT_STAT_RATIO_MAX_DEV] = fabs((double) ratio.value - 1);
    stat[WEFT_STAT_LOGP_DIFF_MAX] = fabs((double) t->logp
                                         - (double) t->old_logp);
}

/* The same for weft_k_sft_loss(). */
WEFT_INLINE void weft_sft_loss_token(float w, float logp, float entropy,
                                     float *dlogp, double *stat)
{
    for (int k = 0; k < WEFT_N_POLICY_STATS; k++)
        stat[k] = 0;
    *dlogp = -w;
    stat[WEFT_STAT_LOSS] = -((double) w * (double) logp);
    stat[WEFT_STAT_PG_LOSS] = -(double) logp;
    stat[WEFT_STAT_ENTROPY] = (double) entropy;
    stat[WEFT_STAT_TOKENS] = 1;
}

/* Statistic k of the tokens before, and of the next. */
WEFT_INLINE double weft_policy_stat_add(int k, double all, double x)
{
    if (k != WEFT_STAT_RATIO_MAX_DEV && k != WEFT_STAT_LOGP_DIFF_MAX)
        return all + x;
    return x > all || x != x ? x : all; /* once it is NaN it stays so */
}

/* The same for the critic's loss (weft_k_value_loss()); stat
 * (WEFT_N_VALUE_STATS) is added up. */
WEFT_INLINE void weft_value_loss_token(float clip, float w, float v,
                                       float old_value, float ret,
                                       float *dvalue, double *stat)
{
    float kept = v, error = v - ret;
    if (clip > 0) {
        float low = old_value - clip, high = old_value + clip;
        kept = v < low ? low : v > high ? high : v;
    }
    float square = error * error, other = kept - ret;
    *dvalue = w * error;
    stat[WEFT_VSTAT_CLIPPED] = 0;
    if (other * other > square) { /* v is clipped: no gradient */
        square = other * other;
        *dvalue = 0;
        stat[WEFT_VSTAT_CLIPPED] = 1;
    }
    stat[WEFT_VSTAT_LOSS] = 0.5 * (double) w * (double) square;
    stat[WEFT_VSTAT_VALUE] = (double) v;
    stat[WEFT_VSTAT_TOKENS] = 1;
}

#endif
