/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

static const struct weft_config_table *const tables[] = {
    &weft_actor_keys, &weft_reference_keys, &weft_policy_keys,
    &weft_label_keys, &weft_token_keys,     NULL};

const struct weft_algorithm weft_reinforce_pp = {
    .config =
        {
            .name = "reinforce_pp",
            .about = "REINFORCE++: returns of tokens, normalised over the "
                     "batch; no critic (Hu et al. 2025, arXiv 2501.03262)",
            .generates = true,
            .tables = tables,
        },
    .flow = weft_flow_no_critic,
    .advantage = WEFT_BY_TOKENS, /* with values 0 and lambda 1: returns */
    .policy = WEFT_POLICY_PPO,
    .settings = weft_policy_settings,
    .told = &weft_policy_told,
};
