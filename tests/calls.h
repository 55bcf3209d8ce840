/* SPDX-License-Identifier: Apache-2.0 */
/* The dataflow graph that the names of PPO's calls stand for, and its
 * numbers. */
#ifndef WEFT_TESTS_CALLS_H
#define WEFT_TESTS_CALLS_H

#include "plan/dataflow.h"

enum {
    CALL_NONE,
    CALL_ACTOR_GENERATE,
    CALL_REWARD_INFER,
    CALL_REF_INFER,
    CALL_CRITIC_INFER,
    CALL_ACTOR_TRAIN,
    CALL_CRITIC_TRAIN,
    N_CALLS
};
enum { ROLE_ACTOR, ROLE_REWARD, ROLE_REF, ROLE_CRITIC, N_ROLES };

static const char *const calls_name[N_CALLS] = {
    "none",         "actor_generate", "reward_infer", "ref_infer",
    "critic_infer", "actor_train",    "critic_train"};

static inline const struct weft_dataflow *calls_flow(void)
{
    static struct weft_dataflow flow;
    weft_flow_init(&flow);
    for (int i = 1; i < N_CALLS; i++)
        weft_flow_guess(&flow, calls_name[i]);
    return &flow;
}

#endif
