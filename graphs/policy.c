/* SPDX-License-Identifier: Apache-2.0 */
/* What the graphs of policy-gradient methods share: the policy generates,
 * frozen models infer, advantages follow from their scores. */
#include "graphs/policy.h"

#include <stdio.h>

static int32_t reward_role(const struct weft_flow_needs *needs, int32_t i,
                           const char *name, struct weft_dataflow *out)
{
    int32_t r = weft_flow_find_role(out, name);
    if (r < 0)
        r = weft_flow_role(out, name, false, true);
    out->role[r].index = needs->reward[i];
    return r;
}

uint32_t weft_flow_rewards(const struct weft_flow_needs *needs,
                           const char *which, uint32_t rollout,
                           struct weft_dataflow *out)
{
    const char *join = which[0] ? "_" : "", *space = which[0] ? " " : "";
    uint32_t scores = 0;
    for (int32_t i = 0; i < needs->n_rewards; i++) {
        char role[WEFT_MAX_NAME] = "reward", call[WEFT_MAX_NAME],
             field[WEFT_MAX_NAME], number[16] = "";
        uint32_t read = rollout;
        if (i > 0) {
            snprintf(role, sizeof role, "reward_%d", (int) i + 1);
            snprintf(number, sizeof number, " %d", (int) i + 1);
        }
        int32_t r = reward_role(needs, i, role, out);
        if (needs->reads_text[i]) {
            snprintf(call, sizeof call, "%.8s%s%.12s_encode", which, join,
                     role);
            snprintf(field, sizeof field, "%.8s%stext of %.12s", which, space,
                     role);
            read = weft_flow_add(out, field, WEFT_FIELD_ROLLOUT);
            weft_flow_call(out, call, WEFT_STEP, -1, rollout, read);
        }
        snprintf(call, sizeof call, "%.8s%s%.12s_infer", which, join, role);
        snprintf(field, sizeof field, "%.8s%sscore%s", which, space, number);
        uint32_t score = weft_flow_add(out, field, WEFT_FIELD_SCORE);
        weft_flow_call(out, call, WEFT_INFER, r, read, score);
        scores |= score;
    }
    return scores;
}

/* The policy's log-probs as inference computes them take the place of those
 * that generation has computed. */
static uint32_t recompute(int32_t actor, uint32_t rollout,
                          struct weft_dataflow *out)
{
    uint32_t logp = weft_flow_add(out, "actor log-probs",
                                  WEFT_FIELD_OLD_LOGP);
    uint32_t old = weft_flow_add(out, "recomputed rollout",
                                 WEFT_FIELD_REREAD);
    weft_flow_call(out, "actor_infer", WEFT_INFER, actor, rollout, logp);
    weft_flow_call(out, "old_logprobs", WEFT_STEP, -1, rollout | logp, old);
    return old;
}

void weft_flow_policy(const struct weft_flow_needs *needs, bool has_critic,
                      struct weft_dataflow *out)
{
    weft_flow_init(out);
    out->staleness = needs->staleness;
    int32_t actor = weft_flow_slot(out, "actor", true, false,
                                   WEFT_SLOT_ACTOR),
            critic = -1;
    uint32_t rollout = weft_flow_add(out, "rollout", WEFT_FIELD_ROLLOUT);
    uint32_t answer = weft_flow_add(out, "rewards", WEFT_FIELD_ANSWER);
    uint32_t advantage = weft_flow_add(out, "advantages",
                                       WEFT_FIELD_ADVANTAGE);
    uint32_t ref = 0, value = 0;
    if (has_critic && needs->critic_shares) {
        critic = actor;
        out->role[actor].value_head = true;
    } else if (has_critic) {
        critic = weft_flow_slot(out, "critic", true, true, WEFT_SLOT_CRITIC);
    }
    if (has_critic)
        value = weft_flow_add(out, "values", WEFT_FIELD_VALUE);
    weft_flow_call(out, "actor_generate", WEFT_GENERATE, actor, 0, rollout);
    uint32_t scores = weft_flow_rewards(needs, "", rollout, out);
    if (needs->reference) {
        int32_t r = weft_flow_reference(out, actor, needs);
        ref = weft_flow_add(out, "reference log-probs", WEFT_FIELD_LOGP);
        weft_flow_call(out, "ref_infer", WEFT_INFER, r, rollout, ref);
    }
    if (has_critic)
        weft_flow_call(out, "critic_infer", WEFT_INFER, critic, rollout,
                       value);
    uint32_t old = needs->recompute ? recompute(actor, rollout, out) : 0;
    weft_flow_call(out, "reward", WEFT_STEP, -1, rollout, answer);
    weft_flow_call(out, "advantage", WEFT_STEP, -1,
                   rollout | old | answer | scores | ref | value, advantage);
    weft_flow_call(out, "actor_train", WEFT_TRAIN, actor,
                   rollout | old | advantage | (needs->kl_in_loss ? ref : 0)
                       | (critic == actor ? value : 0),
                   0);
    if (has_critic && critic != actor)
        weft_flow_call(out, "critic_train", WEFT_TRAIN, critic,
                       rollout | value | advantage, 0);
}

void weft_flow_no_critic(const struct weft_flow_needs *needs,
                         struct weft_dataflow *out)
{
    weft_flow_policy(needs, false, out);
}

void weft_policy_settings(const struct weft_config *c,
                          struct weft_settings *out)
{
    struct weft_learning *learn = &out->learn[WEFT_SLOT_ACTOR];
    bool in_loss = c->policy.kl_place == WEFT_KL_IN_LOSS;
    enum weft_kl kl = (enum weft_kl) c->policy.kl_kind;
    out->needs.reference = c->policy.kl_place != WEFT_KL_NOWHERE;
    out->needs.kl_in_loss = in_loss;
    out->needs.recompute = c->policy.recompute_logprobs;
    out->needs.staleness = c->rollout.staleness;
    out->exact = c->numerics.exact;
    out->epochs = c->policy.epochs;
    out->mini_batches = c->policy.mini_batches;
    learn->aggregation = c->policy.aggregation;
    learn->loss.policy = (struct weft_k_policy){
        .kind = weft_algorithm_of(c)->policy,
        .clip_low = c->policy.clip_low,
        .clip_high = c->policy.clip_high,
        .dual_clip = c->policy.dual_clip,
        .entropy_coef = c->policy.entropy_coef,
        .kl_coef = c->policy.kl_coef,
        .kl = in_loss ? kl : WEFT_KL_NONE};
    out->reward.gamma = c->policy.gamma;
    out->reward.lambda = 1;
    if (c->policy.kl_place == WEFT_KL_IN_REWARD)
        out->reward.kl = kl;
    out->reward.missing_eos_penalty = c->policy.missing_eos_penalty;
    out->reward.reward_clip = c->policy.reward_clip;
    if (c->policy.overlong_cache > 0)
        out->reward.overlong_factor = c->policy.overlong_factor;
    out->reward.overlong_max = c->rollout.max_new_tokens;
    out->reward.overlong_cache = c->policy.overlong_cache;
    out->kl_stop = c->policy.kl_stop;
    out->refills = c->rollout.refills;
    out->skip_cut = c->policy.overlong_filter;
    out->whiten = c->policy.whiten;
    out->kl_coef = (double) c->policy.kl_coef;
    out->kl_adaptive = c->policy.kl_control == WEFT_KL_ADAPTIVE;
    out->kl_target = c->policy.kl_target;
    out->kl_horizon = c->policy.kl_horizon;
}
