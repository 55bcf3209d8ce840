/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    weft_flow_policy(needs, true, out);
}

const struct weft_algorithm weft_ppo = {
    .name = "ppo",
    .about = "a critic's values, advantages by GAE, clipped ratios (Schulman "
             "et al. 2017; Ouyang et al. 2022)",
    .flow = flow,
    .advantage = WEFT_BY_TOKENS,
    .policy = WEFT_POLICY_PPO,
};
