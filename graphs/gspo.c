/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static const struct weft_config_default defaults[] = {
    /* arXiv 2507.18071, section 5.1 */
    {"rollout.samples_per_prompt", "8"},
    {"ppo.whiten_advantages", "false"},
    {"ppo.kl.place", "none"},
    {"ppo.clip_low", "3e-4"},
    {"ppo.clip_high", "4e-4"},
    {"ppo.aggregation", "seq-mean-token-mean"},
    {NULL, NULL}};

const struct weft_algorithm weft_gspo = {
    .config =
        {
            .name = "gspo",
            .about = "GRPO with one ratio for the whole response (Zheng et "
                     "al. 2025, arXiv 2507.18071)",
            .generates = true,
            .tables = weft_policy_tables,
            .defaults = defaults,
            .rules = weft_group_rules,
        },
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_GRPO,
    .policy = WEFT_POLICY_GSPO,
    .settings = weft_policy_settings,
    .told = &weft_policy_told,
};
