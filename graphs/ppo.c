/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    weft_flow_policy(needs, true, out);
}

static void settings(const struct weft_config *c, struct weft_settings *out)
{
    struct weft_learning *values = &out->learn[WEFT_SLOT_CRITIC];
    weft_policy_settings(c, out);
    out->reward.lambda = c->policy.lambda;
    values->loss.loss = WEFT_LOSS_VALUE;
    values->loss.value_clip = c->policy.value_clip;
    out->warmup = c->policy.warmup;
}

static const struct weft_config_table *const tables[] = {
    &weft_actor_keys,     &weft_critic_keys,
    &weft_reference_keys, &weft_policy_keys,
    &weft_label_keys,     &weft_value_keys,
    &weft_token_keys,     NULL};

static const struct weft_metric *const metrics[] = {
    weft_sample_metrics, weft_policy_metrics, weft_value_metrics,
    weft_time_metrics, NULL};

static const struct weft_told told = {.metrics = metrics,
                                      .curves = weft_policy_curves,
                                      .times = weft_policy_times,
                                      .watched = weft_policy_watched};

const struct weft_algorithm weft_ppo = {
    .config =
        {
            .name = "ppo",
            .about = "a critic's values, advantages by GAE, clipped ratios "
                     "(Schulman et al. 2017; Ouyang et al. 2022)",
            .generates = true,
            .tables = tables,
        },
    .flow = flow,
    .advantage = WEFT_BY_TOKENS,
    .policy = WEFT_POLICY_PPO,
    .settings = settings,
    .told = &told,
};
