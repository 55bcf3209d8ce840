/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

const struct weft_algorithm weft_reinforce_pp_baseline = {
    .name = "reinforce_pp_baseline",
    .about = "REINFORCE++ with the mean of a prompt's responses as baseline, "
             "normalised over the batch (Hu et al. 2025, arXiv 2501.03262)",
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_MEAN,
    .policy = WEFT_POLICY_PPO,
};
