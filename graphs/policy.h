/* SPDX-License-Identifier: Apache-2.0 */
/* The graph that policy-gradient methods are variants of. */
#ifndef WEFT_GRAPHS_POLICY_H
#define WEFT_GRAPHS_POLICY_H

#include "graphs/algorithms.h"
#include "graphs/keys.h"

/* With values and their training, or without. */
void weft_flow_policy(const struct weft_flow_needs *needs, bool has_critic,
                      struct weft_dataflow *out);
void weft_flow_no_critic(const struct weft_flow_needs *needs,
                         struct weft_dataflow *out);

/* Adds the calls of reward models, each a role of its own, on a rollout.
 * `which` names the rollout in calls and fields, "" the first. Returns the
 * scores. */
uint32_t weft_flow_rewards(const struct weft_flow_needs *needs,
                           const char *which, uint32_t rollout,
                           struct weft_dataflow *out);

/* What ppo.* and rollout.* say of the policy's loss and the rewards. */
void weft_policy_settings(const struct weft_config *config,
                          struct weft_settings *out);

#endif
