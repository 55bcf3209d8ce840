/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static const struct weft_config_default defaults[] = {
    /* verl's example has 5; a power of two for groups */
    {"rollout.samples_per_prompt", "8"},
    {"ppo.whiten_advantages", "false"},
    {"ppo.kl.place", "loss"},
    {"ppo.kl.kind", "k3"},
    {"ppo.kl.coef", "0.001"}, /* verl's */
    {"ppo.aggregation", "seq-mean-token-mean"},
    {NULL, NULL}};

const struct weft_algorithm weft_grpo = {
    .config =
        {
            .name = "grpo",
            .about = "scores of a prompt's responses, normalised by their "
                     "mean and standard deviation; no critic (Shao et al. "
                     "2024, section 4.1)",
            .generates = true,
            .tables = weft_policy_tables,
            .defaults = defaults,
            .rules = weft_group_rules,
        },
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_GRPO,
    .policy = WEFT_POLICY_PPO,
    .settings = weft_policy_settings,
    .told = &weft_policy_told,
};
