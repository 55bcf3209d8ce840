/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

const struct weft_algorithm weft_grpo = {
    .name = "grpo",
    .about = "scores of a prompt's responses, normalised by their mean and "
             "standard deviation; no critic (Shao et al. 2024, section 4.1)",
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_GRPO,
    .policy = WEFT_POLICY_PPO,
};
