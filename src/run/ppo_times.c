/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how long an iteration and its calls took, from its tasks' times. */
#include "run/ppo.h"

#include <math.h>

static double length(const struct weft_call_time *t)
{
    return t->n_tasks > 0 ? t->last_s - t->first_s : 0;
}

/* The length of the union of two spans. */
static double together(const struct weft_call_time *t,
                       const struct weft_span *span)
{
    double both = length(t) + span->end_s - span->start_s;
    if (t->n_tasks == 0)
        return both;
    double common = fmin(t->last_s, span->end_s)
                  - fmax(t->first_s, span->start_s);
    return both - fmax(common, 0);
}

void weft_ppo_times_get(const struct weft_call_time time[WEFT_N_CALLS],
                        const struct weft_span *rewards,
                        struct weft_ppo_times *out)
{
    const struct weft_call_time *gen = &time[WEFT_CALL_ACTOR_GENERATE];
    const struct weft_call_time *actor = &time[WEFT_CALL_ACTOR_TRAIN];
    const struct weft_call_time *critic = &time[WEFT_CALL_CRITIC_TRAIN];
    double end = fmax(actor->n_tasks > 0 ? actor->last_s : 0,
                      critic->n_tasks > 0 ? critic->last_s : 0);
    *out = (struct weft_ppo_times){
        .gen = length(gen),
        .gen_work = gen->busy_s,
        .reward = together(&time[WEFT_CALL_REWARD_INFER], rewards),
        .ref = length(&time[WEFT_CALL_REF_INFER]),
        .values = length(&time[WEFT_CALL_CRITIC_INFER]),
        .adv = time[WEFT_CALL_ADVANTAGE].busy_s,
        .update_critic = length(critic),
        .update_actor = length(actor),
        .step = fmax(end - gen->first_s, 0),
    };
    for (int c = 0; c < WEFT_N_CALLS; c++) {
        out->offload += time[c].restore_s;
        out->hidden += time[c].hidden_s;
    }
}
