/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of keys that several algorithms have (config/schema.h says how a key,
 * a default and a check are added). A key of one algorithm alone stands in its
 * own file.
 */
#ifndef WEFT_GRAPHS_KEYS_H
#define WEFT_GRAPHS_KEYS_H

#include "config/schema.h"
#include "plan/dataflow.h"

struct weft_flow_needs; /* graphs/algorithms.h */

/* Where the settings of roles are in struct weft_config. */
enum weft_role_slot {
    WEFT_SLOT_ACTOR,
    WEFT_SLOT_CRITIC,
    WEFT_SLOT_REFERENCE,
    WEFT_SLOT_SCORE = WEFT_SLOT_ACTOR /* a reward model that is trained */
};

/* weft_flow_role() of a role that has these settings. */
int32_t weft_flow_slot(struct weft_dataflow *flow, const char *name,
                       bool trained, bool scalar, enum weft_role_slot slot);

/* Adds the reference of a policy's role, which it follows if the run says
 * so. */
int32_t weft_flow_reference(struct weft_dataflow *flow, int32_t policy,
                            const struct weft_flow_needs *needs);

/* Adds a field and returns its set. */
WEFT_INLINE uint32_t weft_flow_add(struct weft_dataflow *flow,
                                   const char *name,
                                   enum weft_field_type type)
{
    return weft_flow_bit(weft_flow_field(flow, name, type));
}

extern const struct weft_config_table
    weft_actor_keys,     /* model.actor, actor.* */
    weft_critic_keys,    /* model.critic, critic.* */
    weft_score_keys,     /* model.reward_model, reward_model.* */
    weft_reference_keys, /* model.reference*, reference.* */
    weft_policy_keys,    /* rollout.*, ppo.* of all that generate */
    weft_value_keys,     /* of what learns values, and is fused */
    weft_token_keys,     /* of rewards per token */
    weft_batch_keys,     /* of steps on batches of the data */
    weft_response_keys,  /* of responses in the data */
    weft_pair_keys,      /* of chosen and rejected responses */
    weft_label_keys;     /* data.label_key */

/* Those of an algorithm that generates and has no critic. */
extern const struct weft_config_table *const weft_policy_tables[];
/* That there are responses to compare. */
extern const struct weft_config_rule weft_group_rules[];

#endif
