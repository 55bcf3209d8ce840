/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

const struct weft_algorithm weft_dr_grpo = {
    .name = "dr_grpo",
    .about = "GRPO without its biases: no division by the deviation, nor by "
             "the response's length (Liu et al. 2025, arXiv 2503.20783)",
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_MEAN,
    .policy = WEFT_POLICY_PPO,
};
