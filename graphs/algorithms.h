/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The algorithms as values, one file each: its keys and defaults, a dataflow
 * graph (ReaL, Figure 4), how advantages follow from scores, and which loss the
 * policy has. Role 0 is the policy: its tokenizer and its positions are the
 * run's.
 */
#ifndef WEFT_GRAPHS_ALGORITHMS_H
#define WEFT_GRAPHS_ALGORITHMS_H

#include "codelets/codelets.h"
#include "config/schema.h"
#include "plan/dataflow.h"

/* What a configuration asks of its algorithm's graph. */
struct weft_flow_needs {
    bool reference;    /* a KL penalty to a reference ... */
    bool kl_in_loss;   /* ... in the loss, not in the reward */
    int32_t n_rewards; /* reward models, and their numbers in the
                          configuration's list of rewards */
    int32_t reward[8];
};

enum weft_advantage_rule {
    WEFT_BY_TOKENS, /* from rewards of tokens: GAE, or returns without values */
    WEFT_BY_GROUPS /* by comparing the responses to a prompt */
};

struct weft_algorithm {
    struct weft_config_algorithm config; /* name, keys, defaults, checks */
    void (*flow)(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out);
    enum weft_advantage_rule advantage;
    enum weft_group_advantage group; /* of BY_GROUPS */
    enum weft_loss loss;             /* of role 0 */
    enum weft_policy_kind policy;
};

extern const struct weft_algorithm weft_ppo, weft_sft, weft_grpo,
    weft_dr_grpo, weft_rloo, weft_reinforce_pp, weft_reinforce_pp_baseline,
    weft_gspo, weft_cispo;

/* All of them; NULL ends them. The first is the configuration's default. */
extern const struct weft_config_algorithm *const weft_algorithms[];

/* The algorithm that a configuration was read with. */
const struct weft_algorithm *weft_algorithm_of(
    const struct weft_config *config);

#endif
