/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

/* Of the paper's 20480 tokens the last 4096 are penalised: a fifth. */
static int derive_cache(struct weft_config *c)
{
    c->policy.overlong_cache = c->rollout.max_new_tokens / 5;
    return 0;
}

static const struct weft_config_derived derived[] = {
    {"ppo.overlong.cache", derive_cache}, {NULL, NULL}};

static const struct weft_config_table own = {.derived = derived};

static const struct weft_config_table *const tables[] = {&weft_actor_keys,
                                                         &weft_reference_keys,
                                                         &weft_policy_keys,
                                                         &weft_label_keys,
                                                         &own,
                                                         NULL};

/* Section 4.1; what every table's key has by default is not here: the loss is
 * a mean over tokens, clipped at 0.2 below. */
static const struct weft_config_default defaults[] = {
    {"rollout.samples_per_prompt", "16"},
    {"rollout.refills", "9"}, /* 10 batches at most in verl's recipe */
    {"ppo.whiten_advantages", "false"},
    {"ppo.kl.place", "none"},
    {"ppo.clip_high", "0.28"},
    {NULL, NULL}};

const struct weft_algorithm weft_dapo = {
    .config =
        {
            .name = "dapo",
            .about = "GRPO with a higher upper clip, a mean over tokens, "
                     "a penalty for length (Yu et al. 2025, arXiv "
                     "2503.14476)",
            .generates = true,
            .tables = tables,
            .defaults = defaults,
            .rules = weft_group_rules,
        },
    .flow = weft_flow_no_critic,
    .settings = weft_policy_settings,
    .told = &weft_policy_told,
    .advantage = WEFT_BY_GROUPS,
    .group = WEFT_ADVANTAGE_GRPO,
    .policy = WEFT_POLICY_PPO,
};
