/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static const struct weft_config_default defaults[] = {
    /* arXiv 2503.20783: no KL, sums over tokens divided by a constant */
    {"rollout.samples_per_prompt", "8"},
    {"ppo.whiten_advantages", "false"},
    {"ppo.kl.place", "none"},
    {"ppo.aggregation", "seq-mean-token-sum-norm"},
    {NULL, NULL}};

const struct weft_algorithm weft_dr_grpo = {
    .config =
        {
            .name = "dr_grpo",
            .about = "GRPO without its biases: no division by the deviation,"
                     " nor by the response's length (Liu et al. 2025, arXiv "
                     "2503.20783)",
            .generates = true,
            .tables = weft_policy_tables,
            .defaults = defaults,
            .rules = weft_group_rules,
        },
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_MEAN,
    .policy = WEFT_POLICY_PPO,
    .settings = weft_policy_settings,
    .told = &weft_policy_told,
};
