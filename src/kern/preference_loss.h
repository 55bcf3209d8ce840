/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses over chosen and rejected responses: pairs (DPO, SLiC, IPO) and single
 * responses (KTO), from sums over tokens, for the CPU and for GPUs. They work
 * on a few numbers per response, in double: only what comes from tokens and
 * goes back to them is f32.
 */
#ifndef WEFT_KERN_PREFERENCE_LOSS_H
#define WEFT_KERN_PREFERENCE_LOSS_H

#include <math.h>

#include "kern/losses.h"

struct weft_preference_term {
    double value, slope;
};

/* Sums over the tokens of a response; ref_logp is 0 without a reference. */
struct weft_response_sums {
    double logp, ref_logp;
};

WEFT_INLINE struct weft_preference_term weft_preference_term(double value,
                                                             double slope)
{
    struct weft_preference_term t;
    t.value = value;
    t.slope = slope;
    return t;
}

/* -log sigmoid(x), which never overflows, and its derivative. */
WEFT_INLINE struct weft_preference_term weft_minus_log_sigmoid(double x)
{
    double e = exp(-fabs(x));
    return weft_preference_term(log1p(e) + (x < 0 ? -x : 0),
                                -(x < 0 ? 1 : e) / (1 + e));
}

/* sigmoid(x) and its derivative. */
WEFT_INLINE struct weft_preference_term weft_sigmoid(double x)
{
    double e = exp(-fabs(x)), s = (x < 0 ? e : 1) / (1 + e);
    return weft_preference_term(s, e / ((1 + e) * (1 + e)));
}

/* (1 - s) l(beta h) + s l(-beta h) with l = -log sigmoid; of the mix that is
 * unbiased under flipped labels s is replaced by -s / (1 - 2 s), as
 * (1 - s) / (1 - 2 s) = 1 + s / (1 - 2 s). */
WEFT_INLINE struct weft_preference_term weft_pair_mixed(double beta, double s,
                                                        double h)
{
    struct weft_preference_term right = weft_minus_log_sigmoid(beta * h);
    struct weft_preference_term wrong = weft_minus_log_sigmoid(-beta * h);
    return weft_preference_term(
        (1 - s) * right.value + s * wrong.value,
        beta * ((1 - s) * right.slope - s * wrong.slope));
}

/* The loss as a function of h. */
WEFT_INLINE struct weft_preference_term weft_pair_term(
    const struct weft_k_pairs *p, double h)
{
    double beta = (double) p->beta, s = (double) p->label_smoothing, e;
    switch (p->kind) {
    case WEFT_PAIR_ROBUST:
        return weft_pair_mixed(beta, -s / (1 - 2 * s), h);
    case WEFT_PAIR_HINGE:
        e = 1 - beta * h;
        return e > 0 ? weft_preference_term(e, -beta)
                     : weft_preference_term(0, 0);
    case WEFT_PAIR_IPO:
        e = h - 1 / (2 * beta);
        return weft_preference_term(e * e, 2 * e);
    default:
        return weft_pair_mixed(beta, s, h);
    }
}

WEFT_INLINE void weft_count_chosen(double *stat, int32_t n, double logp,
                                   double reward)
{
    stat[WEFT_PSTAT_CHOSEN] += 1;
    stat[WEFT_PSTAT_CHOSEN_REWARD] += reward;
    stat[WEFT_PSTAT_CHOSEN_LOGP] += logp;
    stat[WEFT_PSTAT_TOKENS] += n;
}

WEFT_INLINE void weft_count_rejected(double *stat, int32_t n, double logp,
                                     double reward)
{
    stat[WEFT_PSTAT_REJECTED] += 1;
    stat[WEFT_PSTAT_REJECTED_REWARD] += reward;
    stat[WEFT_PSTAT_REJECTED_LOGP] += logp;
    stat[WEFT_PSTAT_TOKENS] += n;
}

WEFT_INLINE void weft_count_pair(double *stat, double margin)
{
    stat[WEFT_PSTAT_MARGIN] += margin;
    stat[WEFT_PSTAT_ACCURACY] += margin > 0;
}

/* weft_k_pair_loss() of responses with n[0], chosen, and n[1] tokens, whose
 * tokens' slopes it gives. */
WEFT_INLINE void weft_pair_loss_of(const struct weft_k_pairs *p, float w,
                                   const int32_t n[2],
                                   const struct weft_response_sums sum[2],
                                   double *chosen_stat, double *rejected_stat,
                                   double slope_out[2])
{
    double c = sum[0].logp - sum[0].ref_logp;
    double r = sum[1].logp - sum[1].ref_logp;
    double c_tokens = p->length_normalised ? n[0] : 1;
    double r_tokens = p->length_normalised ? n[1] : 1;
    struct weft_preference_term loss = weft_pair_term(p, c / c_tokens
                                                             - r / r_tokens);
    double slope = (double) w * loss.slope, beta = (double) p->beta;

    slope_out[0] = slope / c_tokens;
    slope_out[1] = -slope / r_tokens;
    chosen_stat[WEFT_PSTAT_LOSS] += (double) w * loss.value;
    weft_count_chosen(chosen_stat, n[0], sum[0].logp, beta * c);
    weft_count_rejected(rejected_stat, n[1], sum[1].logp, beta * r);
    weft_count_pair(chosen_stat, beta * c - beta * r);
}

/* weft_k_kto_loss() of a response of n tokens; returns their slope. */
WEFT_INLINE double weft_kto_loss_of(const struct weft_k_kto *k, float w,
                                    bool is_desirable, double kl, int32_t n,
                                    struct weft_response_sums sum,
                                    double *stat)
{
    double beta = (double) k->beta, ratio = sum.logp - sum.ref_logp;
    double sign = is_desirable ? 1 : -1;
    double weight = (double) w
                  * (double) (is_desirable ? k->desirable : k->undesirable);
    /* 1 - sigmoid(x) = sigmoid(-x) */
    struct weft_preference_term s = weft_sigmoid(-sign * beta * (ratio - kl));

    stat[WEFT_PSTAT_LOSS] += weight * s.value;
    if (is_desirable)
        weft_count_chosen(stat, n, sum.logp, beta * ratio);
    else
        weft_count_rejected(stat, n, sum.logp, beta * ratio);
    return -weight * sign * beta * s.slope;
}

/* weft_k_bradley_terry() */
WEFT_INLINE void weft_bradley_terry_of(float center, float w, float margin,
                                       const float score[2], float dscore[2],
                                       double *chosen_stat,
                                       double *rejected_stat)
{
    double c = (double) score[0], r = (double) score[1], both = c + r;
    struct weft_preference_term loss = weft_minus_log_sigmoid(
        c - r - (double) margin);
    double pull = 2 * (double) center * both;

    dscore[0] = (float) ((double) w * (loss.slope + pull));
    dscore[1] = (float) ((double) w * (pull - loss.slope));
    chosen_stat[WEFT_PSTAT_LOSS] += (double) w
                                  * (loss.value
                                     + (double) center * both * both);
    chosen_stat[WEFT_PSTAT_CHOSEN] += 1;
    chosen_stat[WEFT_PSTAT_CHOSEN_REWARD] += c;
    rejected_stat[WEFT_PSTAT_REJECTED] += 1;
    rejected_stat[WEFT_PSTAT_REJECTED_REWARD] += r;
    weft_count_pair(chosen_stat, c - r);
}

#endif
