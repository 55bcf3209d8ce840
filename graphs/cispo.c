/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

const struct weft_algorithm weft_cispo = {
    .name = "cispo",
    .about = "GRPO that clips the weight of a token, not its gradient "
             "(MiniMax-M1, arXiv 2506.13585)",
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_GRPO,
    .policy = WEFT_POLICY_CISPO,
};
