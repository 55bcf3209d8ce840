/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static const struct weft_config_default defaults[] = {
    /* arXiv 2506.13585: no lower bound, no KL, tokens count alike */
    {"rollout.samples_per_prompt", "8"},
    {"ppo.whiten_advantages", "false"},
    {"ppo.kl.place", "none"},
    {"ppo.clip_low", "1"},
    {NULL, NULL}};

const struct weft_algorithm weft_cispo = {
    .config =
        {
            .name = "cispo",
            .about = "GRPO that clips the weight of a token, not its "
                     "gradient (MiniMax-M1, arXiv 2506.13585)",
            .generates = true,
            .tables = weft_policy_tables,
            .defaults = defaults,
            .rules = weft_group_rules,
        },
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_GRPO,
    .policy = WEFT_POLICY_CISPO,
    .settings = weft_policy_settings,
    .told = &weft_policy_told,
};
