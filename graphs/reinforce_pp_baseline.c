/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static const struct weft_config_default defaults[] = {
    /* arXiv 2501.03262, section 3.3 */
    {"rollout.samples_per_prompt", "8"},
    {"ppo.kl.place", "loss"},
    {"ppo.kl.kind", "k2"},
    {"ppo.kl.coef", "0.001"},
    {NULL, NULL}};

const struct weft_algorithm weft_reinforce_pp_baseline = {
    .config =
        {
            .name = "reinforce_pp_baseline",
            .about = "REINFORCE++ with the mean of a prompt's responses as "
                     "baseline, normalised over the batch (Hu et al. 2025, "
                     "arXiv 2501.03262)",
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
