/* SPDX-License-Identifier: Apache-2.0 */
/* PPO (Schulman et al. 2017; Ouyang et al. 2022): the policy generates, frozen
 * models and the critic infer, advantages by GAE, both learn. */
#include <stdio.h>

#include "graphs/algorithms.h"

/* Reward models, each a role and a call of its own; returns what they
 * write. */
static uint32_t add_rewards(const struct weft_flow_needs *needs,
                            uint32_t rollout, struct weft_dataflow *out)
{
    uint32_t scores = 0;
    for (int32_t i = 0; i < needs->n_rewards; i++) {
        char role[WEFT_MAX_NAME] = "reward", call[WEFT_MAX_NAME],
             field[WEFT_MAX_NAME] = "score";
        if (i > 0)
            snprintf(role, sizeof role, "reward_%d", (int) i + 1);
        if (i > 0)
            snprintf(field, sizeof field, "score %d", (int) i + 1);
        snprintf(call, sizeof call, "%.20s_infer", role);
        int32_t r = weft_flow_role(out, role, false, true);
        out->role[r].index = needs->reward[i];
        uint32_t score = weft_flow_bit(
            weft_flow_field(out, field, WEFT_FIELD_SCORE));
        weft_flow_call(out, call, WEFT_INFER, r, rollout, score);
        scores |= score;
    }
    return scores;
}

void weft_flow_ppo(const struct weft_flow_needs *needs,
                   struct weft_dataflow *out)
{
    weft_flow_init(out);
    int32_t actor = weft_flow_role(out, "actor", true, false);
    int32_t critic = weft_flow_role(out, "critic", true, true);
    uint32_t rollout = weft_flow_bit(
        weft_flow_field(out, "rollout", WEFT_FIELD_ROLLOUT));
    uint32_t value = weft_flow_bit(
        weft_flow_field(out, "values", WEFT_FIELD_VALUE));
    uint32_t answer = weft_flow_bit(
        weft_flow_field(out, "rewards", WEFT_FIELD_ANSWER));
    uint32_t advantage = weft_flow_bit(
        weft_flow_field(out, "advantages", WEFT_FIELD_ADVANTAGE));
    uint32_t ref = 0;

    weft_flow_call(out, "actor_generate", WEFT_GENERATE, actor, 0, rollout);
    uint32_t scores = add_rewards(needs, rollout, out);
    if (needs->reference) {
        int32_t r = weft_flow_role(out, "reference", false, false);
        ref = weft_flow_bit(
            weft_flow_field(out, "reference log-probs", WEFT_FIELD_LOGP));
        weft_flow_call(out, "ref_infer", WEFT_INFER, r, rollout, ref);
    }
    weft_flow_call(out, "critic_infer", WEFT_INFER, critic, rollout, value);
    weft_flow_call(out, "reward", WEFT_STEP, -1, rollout, answer);
    weft_flow_call(out, "advantage", WEFT_STEP, -1,
                   rollout | answer | scores | ref | value, advantage);
    weft_flow_call(out, "actor_train", WEFT_TRAIN, actor,
                   rollout | advantage | (needs->kl_in_loss ? ref : 0), 0);
    weft_flow_call(out, "critic_train", WEFT_TRAIN, critic,
                   rollout | value | advantage, 0);
}
