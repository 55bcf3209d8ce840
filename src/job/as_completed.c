/* SPDX-License-Identifier: Apache-2.0 */
#include "job/as_completed.h"

#include <stdio.h>

#include "graphs/algorithms.h"

/* What is computed of all samples together; NULL: nothing is. */
static const char *over_all(const struct weft_config *c,
                            const struct weft_settings *settings)
{
    if (settings->whiten == WEFT_WHITEN_ITERATION)
        return "advantages are whitened over all of an iteration's samples "
               "(whiten_advantages; mini_batch and false need not wait)";
    if (settings->refills > 0)
        return "prompts are replaced when all scores are known "
               "(rollout.refills)";
    for (int32_t r = 0; r < c->n_rewards; r++) {
        const struct weft_reward_config *reward = &c->reward[r];
        if (reward->type == WEFT_REWARD_CALLBACK)
            return "a callback gets an iteration's samples at once "
                   "(reward.type)";
        if (reward->normalize != WEFT_NORMALIZE_NONE
            || (reward->type == WEFT_REWARD_MODEL && reward->clip > 0))
            return "scores are brought to one scale over all samples "
                   "(reward.normalize, reward.clip)";
    }
    return NULL;
}

/* A device on which one call generates and another one trains; -1: none. */
static int32_t shared_device(const struct weft_plan *plan,
                             const struct weft_dataflow *flow)
{
    for (int32_t d = 0; d < plan->n_nodes * plan->n_devices; d++) {
        bool generates = false, trains = false;
        for (int32_t i = 1; i < flow->n_calls; i++) {
            bool here = weft_flow_placed(flow, i)
                     && weft_mesh_has(plan, &plan->call[i].mesh, d);
            generates = generates
                     || (here && flow->call[i].kind == WEFT_GENERATE);
            trains = trains || (here && flow->call[i].kind == WEFT_TRAIN);
        }
        if (generates && trains)
            return d;
    }
    return -1;
}

bool weft_run_trains_as_completed(const struct weft_config *c,
                                  const struct weft_dataflow *flow,
                                  const struct weft_plan *plan, char *why,
                                  size_t size)
{
    struct weft_settings settings;
    const char *because = NULL;
    char shared[80];
    why[0] = '\0';
    if (!c->train.as_completed)
        return false;
    weft_settings_of(c, &settings);
    int32_t device = shared_device(plan, flow);
    if (!weft_config_generates(c))
        because = "nothing is generated";
    else if (flow->staleness > 0)
        because = "generation goes on beside training already "
                  "(rollout.staleness)";
    else if (plan->intra_stage_fusion)
        because = "a schedule orders all mini-batches "
                  "(train.intra_stage_fusion)";
    else
        because = over_all(c, &settings);
    if (!because && device >= 0) {
        snprintf(shared, sizeof shared,
                 "device %d generates and trains; give them devices apart",
                 (int) device);
        because = shared;
    }
    if (because)
        snprintf(why, size,
                 "training begins when all samples are complete, not as "
                 "train.as_completed says: %s",
                 because);
    return !because;
}
