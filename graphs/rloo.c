/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

const struct weft_algorithm weft_rloo = {
    .name = "rloo",
    .about = "REINFORCE, leave one out: a response's score minus the mean of "
             "the prompt's others (Ahmadian et al. 2024, arXiv 2402.14740)",
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_RLOO,
    .policy = WEFT_POLICY_PPO,
};
