/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of algorithms that generate. */
#include "graphs/metrics.h"

#include <stddef.h>

#include "graphs/algorithms.h"
#include "graphs/keys.h"

static bool kl_in_reward(const struct weft_settings *made)
{
    return made->reward.kl != WEFT_KL_NONE;
}

static bool kl_in_loss(const struct weft_settings *made)
{
    return made->needs.kl_in_loss;
}

static bool kl_stops(const struct weft_settings *made)
{
    return made->kl_stop > 0;
}

static bool kl_somewhere(const struct weft_settings *made)
{
    return made->needs.reference;
}

static bool recomputes(const struct weft_settings *made)
{
    return made->needs.recompute;
}

const struct weft_metric weft_sample_metrics[] = {
    METRIC_WHEN("training/rollout_probs_diff", WEFT_OF_ROLLOUT_PROBS,
                WEFT_SPREAD, recomputes),
    METRIC("critic/score", WEFT_OF_SCORE, WEFT_SPREAD),
    METRIC("critic/rewards", WEFT_OF_REWARD, WEFT_SPREAD),
    METRIC("critic/advantages", WEFT_OF_ADVANTAGES, WEFT_SPREAD),
    METRIC("critic/vf_explained_var", WEFT_OF_EXPLAINED, WEFT_AS_IT_IS),
    METRIC("critic/returns", WEFT_OF_RETURNS, WEFT_SPREAD),
    METRIC("critic/values", WEFT_OF_VALUES, WEFT_SPREAD),
    METRIC_WHEN("actor/reward_kl_penalty", WEFT_OF_KL, WEFT_PER_TOKEN,
                kl_in_reward),
    METRIC_WHEN("actor/reward_kl_penalty_coeff", WEFT_OF_KL_WEIGHT, WEFT_LAST,
                kl_in_reward),
    METRIC_WHEN("objective/kl", WEFT_OF_KL, WEFT_MEAN, kl_somewhere),
    METRIC("response_length", WEFT_OF_RESPONSE, WEFT_SPREAD),
    METRIC("response_length/clip_ratio", WEFT_OF_CUT, WEFT_MEAN),
    METRIC("prompt_length", WEFT_OF_PROMPT, WEFT_SPREAD),
    METRIC("reward", WEFT_OF_EACH_REWARD, WEFT_MEAN),
    METRIC_END};

#define POLICY WEFT_SLOT_ACTOR
#define TOKENS WEFT_STAT_TOKENS

const struct weft_metric weft_policy_metrics[] = {
    METRIC_STAT("actor/pg_loss", WEFT_PER_TOKEN, POLICY, WEFT_STAT_PG_LOSS,
                TOKENS, NULL),
    METRIC_STAT("actor/pg_clipfrac", WEFT_PER_TOKEN, POLICY,
                WEFT_STAT_CLIPPED, TOKENS, NULL),
    METRIC_STAT("actor/pg_clipfrac_lower", WEFT_PER_TOKEN, POLICY,
                WEFT_STAT_CLIPPED_LOWER, TOKENS, NULL),
    METRIC_STAT("actor/ppo_kl", WEFT_PER_TOKEN, POLICY, WEFT_STAT_PPO_KL,
                TOKENS, NULL),
    METRIC_STAT("actor/entropy", WEFT_PER_TOKEN, POLICY, WEFT_STAT_ENTROPY,
                TOKENS, NULL),
    METRIC_STAT("actor/kl_loss", WEFT_PER_TOKEN, POLICY, WEFT_STAT_KL, TOKENS,
                kl_in_loss),
    {"actor/kl_coef", WEFT_OF_LOSS_KL_COEF, WEFT_AS_IT_IS, POLICY, 0, 0,
     kl_in_loss},
    METRIC_FIRST("rollout_train_logprob_abs_diff_max", POLICY,
                 WEFT_STAT_LOGP_DIFF_MAX),
    METRIC_FIRST("actor/first_ratio_abs_dev_max", POLICY,
                 WEFT_STAT_RATIO_MAX_DEV),
    METRIC_ROLE("actor/grad_norm", WEFT_OF_NORM, POLICY),
    METRIC_ROLE("actor/lr", WEFT_OF_RATE, POLICY),
    {"actor/kl_stopped_mini_batches", WEFT_OF_LEFT_OUT, WEFT_AS_IT_IS, POLICY,
     0, 0, kl_stops},
    METRIC_END};

#define VALUES WEFT_SLOT_CRITIC

const struct weft_metric weft_value_metrics[] = {
    /* Its terms carry tokens' weights: a mini-batch's sum is its mean. */
    METRIC_STAT("critic/vf_loss", WEFT_PER_STEP, VALUES, WEFT_VSTAT_LOSS, 0,
                NULL),
    METRIC_STAT("critic/vf_clipfrac", WEFT_PER_TOKEN, VALUES,
                WEFT_VSTAT_CLIPPED, WEFT_VSTAT_TOKENS, NULL),
    METRIC_STAT("critic/vpred_mean", WEFT_PER_TOKEN, VALUES, WEFT_VSTAT_VALUE,
                WEFT_VSTAT_TOKENS, NULL),
    METRIC_ROLE("critic/grad_norm", WEFT_OF_NORM, VALUES),
    METRIC_ROLE("critic/lr", WEFT_OF_RATE, VALUES),
    METRIC_END};

const struct weft_metric weft_time_metrics[] = {
    METRIC("timing_s/gen", WEFT_OF_GENERATION, WEFT_AS_IT_IS),
    METRIC("timing_s/reward", WEFT_OF_SCORING, WEFT_AS_IT_IS),
    METRIC("timing_s/ref", WEFT_OF_LOGPS, WEFT_AS_IT_IS),
    METRIC_WHEN("timing_s/old_log_prob", WEFT_OF_OLD_LOGPS, WEFT_AS_IT_IS,
                recomputes),
    METRIC("timing_s/values", WEFT_OF_VALUING, WEFT_AS_IT_IS),
    METRIC("timing_s/adv", WEFT_OF_STEPS, WEFT_AS_IT_IS),
    METRIC("timing_s/update_critic", WEFT_OF_TRAINING_VALUES, WEFT_AS_IT_IS),
    METRIC("timing_s/update_actor", WEFT_OF_TRAINING_POLICY, WEFT_AS_IT_IS),
    METRIC_END};

static const struct weft_metric *const metrics[] = {
    weft_sample_metrics, weft_policy_metrics, weft_time_metrics, NULL};

const struct weft_curve weft_policy_curves[] = {
    CURVE_BAND("Score", "mean, band: least to most", "score", "critic/score"),
    CURVE("Score", "mean, band: least to most", "baseline",
          "critic/baseline/mean"),
    CURVE("KL to the reference", "nats per token", "KL",
          "actor/reward_kl_penalty"),
    CURVE("KL to the reference", "nats per token", "KL", "actor/kl_loss"),
    CURVE("KL coefficient", NULL, "coefficient",
          "actor/reward_kl_penalty_coeff"),
    CURVE("Entropy", "nats per token", "entropy", "actor/entropy"),
    CURVE("Policy loss", NULL, "policy loss", "actor/pg_loss"),
    CURVE("Value loss", NULL, "value loss", "critic/vf_loss"),
    CURVE("Explained variance of the values", NULL, "explained",
          "critic/vf_explained_var"),
    CURVE("Clipped", "fraction of tokens", "policy", "actor/pg_clipfrac"),
    CURVE("Clipped", "fraction of tokens", "dual clip",
          "actor/pg_clipfrac_lower"),
    CURVE("Clipped", "fraction of tokens", "value", "critic/vf_clipfrac"),
    CURVE_BAND("Response length", "tokens; band: least to most", "length",
               "response_length"),
    CURVE("Cut responses", "fraction without an end", "cut",
          "response_length/clip_ratio"),
    CURVE("Gradient norm", NULL, "actor", "actor/grad_norm"),
    CURVE("Gradient norm", NULL, "critic", "critic/grad_norm"),
    CURVE("Learning rate", NULL, "actor", "actor/lr"),
    CURVE("Learning rate", NULL, "critic", "critic/lr"),
    CURVE("Rollout against training", "largest difference of log-probs",
          "difference", "rollout_train_logprob_abs_diff_max"),
    CURVE_END};

#define TIME(label, tag)                                                     \
    CURVE("Calls", "seconds from first to last task, stacked", label, tag)

const struct weft_curve weft_policy_times[] = {
    TIME("generate", "timing_s/gen"),
    TIME("reward", "timing_s/reward"),
    TIME("log-probs", "timing_s/old_log_prob"),
    TIME("reference", "timing_s/ref"),
    TIME("values", "timing_s/values"),
    TIME("advantages", "timing_s/adv"),
    TIME("train critic", "timing_s/update_critic"),
    TIME("train actor", "timing_s/update_actor"),
    CURVE_END};

const struct weft_watched weft_policy_watched[] = {
    {"score", "critic/score/mean", "score, first to last", true},
    {"kl", "actor/reward_kl_penalty", NULL, false},
    {"kl", "actor/kl_loss", NULL, false},
    {"length", "response_length/mean", "response tokens", false},
    {NULL, NULL, NULL, false}};

const struct weft_told weft_policy_told = {.metrics = metrics,
                                           .curves = weft_policy_curves,
                                           .times = weft_policy_times,
                                           .watched = weft_policy_watched};
