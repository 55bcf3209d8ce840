/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

const struct weft_algorithm weft_gspo = {
    .name = "gspo",
    .about = "GRPO with one ratio for the whole response (Zheng et al. 2025, "
             "arXiv 2507.18071)",
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_GRPO,
    .policy = WEFT_POLICY_GSPO,
};
