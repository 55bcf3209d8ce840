/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formulas of the algorithms, on one response or pair at a time: KL estimates,
 * penalties, advantages, losses with their gradients. doc/algorithms.md says
 * them in the papers' letters. What kern.h says of numerics holds here, too;
 * none of these needs scratch.
 */
#ifndef WEFT_KERN_LOSSES_H
#define WEFT_KERN_LOSSES_H

#include "kern/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- KL divergence ---------------------------------------------------- */

enum weft_kl {
    WEFT_KL_NONE,
    WEFT_KL_K1,
    WEFT_KL_K2,
    WEFT_KL_K3,
    WEFT_KL_ABS
};

/* Estimate of the KL divergence from the reference at one sampled token
 * (Schulman 2020, "Approximating KL divergence"), with d = logp - ref: k1 = d,
 * k2 = d^2 / 2, k3 = exp(-d) - 1 + d, but at most 10; abs = |d| is verl's. The
 * slope is the estimate's derivative with respect to logp, 0 where k3 is
 * bounded, and for abs at d = 0. */
struct weft_k_kl {
    double value, slope;
};
struct weft_k_kl weft_k_kl(enum weft_kl kind, float logp, float ref);

/* The coefficient after n samples whose mean KL was `kl` (Ziegler et al. 2019,
 * section 2.2): coef (1 + e n / horizon), with e = kl / target - 1 clipped to
 * [-0.2, 0.2]. */
double weft_k_kl_adapt(double coef, double kl, double target, int32_t n,
                       int32_t horizon);

/* Whether training goes on after n samples with the statistics stat (n,
 * WEFT_N_POLICY_STATS) of a policy loss: 1, or 0 when the mean over their
 * tokens of old_logp - logp is above limit or NaN. Sums run over samples in
 * order. Without a token the gate is 1. */
float weft_k_kl_gate(float limit, int32_t n, const double *stat);

/* ---- Rewards and advantages ------------------------------------------- */

/* DAPO's penalty for a long response (arXiv 2503.14476, equation 13): 0 for a
 * length of at most max - cache tokens, from there a straight line to -1 at
 * max, and -1 above. 0 <= cache <= max. */
double weft_k_overlong(int32_t length, int32_t max, int32_t cache);

/* (r - mean) * rstd, clipped to [low, high] where low < high; NaN stays NaN.
 * The moments are those of the same reward of other samples; NULL: r is only
 * clipped. Of fewer than two numbers rstd is 1. */
double weft_k_reward(const struct weft_k_moments *moments, float low,
                     float high, double r);

/* Advantages of the n responses to one prompt, from the score r of each:
 *   GRPO   (r - mean) / (std + 1e-6), the unbiased standard deviation
 *          (arXiv 2402.03300; the epsilon is verl's, TRL's is
 *          1e-4)
 *   MEAN   r - mean (Dr. GRPO, arXiv 2503.20783, and the REINFORCE++
 *          baseline, arXiv 2501.03262, whose batch is whitened afterwards)
 *   RLOO   r - mean of the others (arXiv 2402.14740)
 * Equal scores give exact zeros. A single response has nothing to be compared
 * with: mean is then 0 and std 1, as in verl. The sums run over the responses
 * in order. */
enum weft_group_advantage {
    WEFT_ADVANTAGE_GRPO,
    WEFT_ADVANTAGE_MEAN,
    WEFT_ADVANTAGE_RLOO
};
void weft_k_group_advantage(enum weft_group_advantage kind, int32_t n,
                            const double *score, double *out);

/* Generalised advantage estimation (Schulman et al. 2016) of one response of n
 * tokens, gamma and lambda in [0, 1]: a recursion from the last token to the
 * first, in f64, of which each advantage is rounded to f32. (In f32, 2,048
 * tokens with lambda 1 are 2e-6 of the largest advantage off.) reward, value
 * (n); bootstrap: the value after the last token (0 when the response ended).
 * advantage_out, return_out (n) with return = advantage + value. */
void weft_k_gae(int32_t n, float gamma, float lambda, const float *reward,
                const float *value, float bootstrap, float *advantage_out,
                float *return_out);

/* Advantages of n tokens from their returns, less a number that does not depend
 * on the response: in ReMax the score of the prompt's greedy one (arXiv
 * 2310.10505). ret, advantage_out (n). */
void weft_k_baseline(int32_t n, const float *ret, double baseline,
                     float *advantage_out);

/* ---- Policy and value ------------------------------------------------- */

/* The policy loss of tokens i = 0..n-1, which are one sample's response. w:
 * weight of each token in the mini-batch's mean; it scales the gradients and
 * WEFT_STAT_LOSS, not the other statistics. With the ratio r of the token's
 * probability to the old one, its advantage A, and clip() to
 * [1 - clip_low, 1 + clip_high]:
 *   PPO    max(-A r, -A clip(r))
 *   GSPO   the same with the sample's r = exp(mean of log-ratios), whose
 *          gradient reaches every token (arXiv 2507.18071; with
 *          advantages that differ by token GSPO-token)
 *   CISPO  -A clip(r) log p, without a gradient through clip(r) (MiniMax-M1,
 *          arXiv 2506.13585)
 * Log-ratios are clamped to [-20, 20], the mean of GSPO to at most 10, with
 * gradient 0 outside, as in verl. Only PPO has dual_clip. ref_logp may be
 * NULL when there is no KL term. Statistics are added to `stat`, maxima by
 * taking the larger, in token order; CLIPPED counts tokens that the clip
 * changed (PPO, GSPO: where it decides the loss), PPO_KL and the maxima are
 * those of single tokens for every kind. */
enum weft_policy_kind {
    WEFT_POLICY_PPO,
    WEFT_POLICY_GSPO,
    WEFT_POLICY_CISPO
};
struct weft_k_policy {
    float clip_low, clip_high; /* ratio kept in [1 - low, 1 + high] */
    float dual_clip;           /* c > 1: loss <= -c A for A < 0; 0: off */
    float entropy_coef;
    float kl_coef; /* KL to the reference in the loss */
    enum weft_kl kl;
    enum weft_policy_kind kind;
};
enum weft_policy_stat { /* sums over the sample's tokens, f64; PPO_KL is
                         * the sum of old_logp - logp */
                        WEFT_STAT_LOSS,
                        WEFT_STAT_PG_LOSS,
                        WEFT_STAT_CLIPPED,
                        WEFT_STAT_CLIPPED_LOWER,
                        WEFT_STAT_PPO_KL,
                        WEFT_STAT_ENTROPY,
                        WEFT_STAT_KL,
                        WEFT_STAT_TOKENS,
                        WEFT_STAT_RATIO_MAX_DEV, /* max |ratio - 1| */
                        WEFT_STAT_LOGP_DIFF_MAX, /* max |logp - old_logp| */
                        WEFT_N_POLICY_STATS
};
void weft_k_policy_loss(const struct weft_k_policy *policy, int32_t n,
                        float w, const float *logp, const float *old_logp,
                        const float *ref_logp, const float *advantage,
                        const float *entropy, float *dlogp, float *dentropy,
                        double stat[WEFT_N_POLICY_STATS]);

/* The loss of supervised fine-tuning, -w log p of each token; of the statistics
 * of a policy loss PG_LOSS is then the sum of -log p. */
void weft_k_sft_loss(int32_t n, float w, const float *logp,
                     const float *entropy, float *dlogp,
                     double stat[WEFT_N_POLICY_STATS]);

/* Clipped value loss: w * 0.5 * max((v-R)^2, (clip(v, v_old +- eps) - R)^2);
 * clip <= 0: no clipping. Statistics are added to `stat`; w scales LOSS alone
 * of them. */
enum weft_value_stat {
    WEFT_VSTAT_LOSS,
    WEFT_VSTAT_CLIPPED,
    WEFT_VSTAT_VALUE,
    WEFT_VSTAT_TOKENS,
    WEFT_N_VALUE_STATS
};
void weft_k_value_loss(float clip, int32_t n, float w, const float *value,
                       const float *old_value, const float *ret,
                       float *dvalue, double stat[WEFT_N_VALUE_STATS]);

/* ---- Preferences ------------------------------------------------------ */

/* Statistics of losses over chosen and rejected responses. Those of a pair are
 * added to the chosen run's, so that sums over runs are sums over pairs. A
 * reward is beta * (log p - log p_ref) of the response, or the score of a
 * reward model. */
enum weft_preference_stat {
    WEFT_PSTAT_LOSS,            /* times the weight */
    WEFT_PSTAT_CHOSEN,          /* number of chosen runs */
    WEFT_PSTAT_REJECTED,        /* number of rejected runs */
    WEFT_PSTAT_CHOSEN_REWARD,   /* sums over these runs ... */
    WEFT_PSTAT_REJECTED_REWARD, /* ... and those */
    WEFT_PSTAT_MARGIN,          /* sum over pairs: chosen - rejected reward */
    WEFT_PSTAT_ACCURACY,        /* number of pairs whose margin is > 0 */
    WEFT_PSTAT_CHOSEN_LOGP,     /* sums of log p of responses; 0 for scores */
    WEFT_PSTAT_REJECTED_LOGP,
    WEFT_PSTAT_TOKENS,
    WEFT_N_PREFERENCE_STATS
};

/* The tokens of one response, at least one. */
struct weft_k_response {
    int32_t n;
    const float *logp, *ref_logp; /* (n) */
    float *dlogp;                 /* (n), written */
    double *stat;                 /* (WEFT_N_PREFERENCE_STATS), added to */
};

/* Losses of a pair of responses to a prompt, with L = log p of a response, the
 * sum over its tokens, and h = (L - L_ref of chosen) - (that of rejected):
 *   SIGMOID  -(1 - s) log sigmoid(beta h) - s log sigmoid(-beta h)
 *            (DPO, arXiv 2305.18290, equation 7; s > 0: Mitchell 2023, "A note
 *            on DPO with noisy preferences")
 *   ROBUST   ((1 - s) of the first term - s of the second) / (1 - 2 s)
 *            (arXiv 2403.00409)
 *   HINGE    max(0, 1 - beta h) (SLiC, arXiv 2305.10425)
 *   IPO      (h - 1 / (2 beta))^2 (arXiv 2310.12036, equation 17)
 * w is the weight of the pair in the mini-batch's mean. Sums are in double, in
 * token order. The rewards among the statistics are of sums over tokens for
 * every kind, as in TRL. */
enum weft_pair_kind {
    WEFT_PAIR_SIGMOID,
    WEFT_PAIR_ROBUST,
    WEFT_PAIR_HINGE,
    WEFT_PAIR_IPO
};
struct weft_k_pairs {
    enum weft_pair_kind kind;
    float beta;             /* > 0 */
    float label_smoothing;  /* s of SIGMOID and ROBUST, in [0, 0.5) */
    bool reference_free;    /* L_ref is 0, ref_logp is not read */
    bool length_normalised; /* L and L_ref are means over tokens */
};
void weft_k_pair_loss(const struct weft_k_pairs *pairs, float w,
                      const struct weft_k_response *chosen,
                      const struct weft_k_response *rejected);

/* KTO's loss of one response (arXiv 2402.01306), with the reward
 * r = L - L_ref as above: of a desirable one
 * desirable * (1 - sigmoid(beta (r - kl))), of another one
 * undesirable * (1 - sigmoid(beta (kl - r))). kl is the batch's estimate from
 * weft_k_kto_kl(); no gradient goes through it. Only the statistics of the
 * response's own kind are added. */
struct weft_k_kto {
    float beta; /* > 0 */
    float desirable, undesirable;
};
void weft_k_kto_loss(const struct weft_k_kto *kto, float w, bool is_desirable,
                     double kl, const struct weft_k_response *response);
/* The estimate: the mean over n responses of other prompts of L - L_ref, but
 * at least 0. sum: of their L - L_ref; weft_k_log_ratio() gives each. */
double weft_k_kto_kl(int32_t n, double sum);
double weft_k_log_ratio(int32_t n, const float *logp, const float *ref_logp);

/* A reward model's loss of a pair (Bradley & Terry 1952; Stiennon et al. 2020,
 * section 3.4): -log sigmoid(chosen - rejected - margin), the margin as in
 * arXiv 2307.09288, equation 2, plus center * (chosen + rejected)^2
 * (arXiv 2312.09244). score, dscore: of chosen and rejected. The
 * statistics of each run are added to its own. */
void weft_k_bradley_terry(float center, float w, float margin,
                          const float score[2], float dscore[2],
                          double *const stat[2]);

#ifdef __cplusplus
}
#endif
#endif
