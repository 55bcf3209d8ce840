/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static const struct weft_config_default defaults[] = {
    /* arXiv 2402.14740: k = 4, the KL in the reward, whole responses */
    {"rollout.samples_per_prompt", "4"},
    {"ppo.whiten_advantages", "false"},
    {"ppo.aggregation", "seq-mean-token-sum"},
    {NULL, NULL}};

const struct weft_algorithm weft_rloo = {
    .config =
        {
            .name = "rloo",
            .about = "REINFORCE, leave one out: a response's score minus the"
                     " mean of the prompt's others (Ahmadian et al. 2024, "
                     "arXiv 2402.14740)",
            .generates = true,
            .tables = weft_policy_tables,
            .defaults = defaults,
            .rules = weft_group_rules,
        },
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_RLOO,
    .policy = WEFT_POLICY_PPO,
    .settings = weft_policy_settings,
    .told = &weft_policy_told,
};
