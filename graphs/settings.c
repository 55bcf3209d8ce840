/* SPDX-License-Identifier: Apache-2.0 */
/* What configurations make of their algorithms' iterations. */
#include "graphs/algorithms.h"
#include "graphs/keys.h"

void weft_settings_of(const struct weft_config *c, struct weft_settings *out)
{
    const struct weft_algorithm *a = weft_algorithm_of(c);
    bool generates = weft_config_generates(c);
    *out = (struct weft_settings){
        .epochs = 1,
        .mini_batches = 1,
        .max_new = generates ? c->rollout.max_new_tokens : 0};
    out->needs.follow_every = c->role[WEFT_SLOT_REFERENCE].follow_every;
    out->needs.follow_mix = c->role[WEFT_SLOT_REFERENCE].follow_mix;
    out->needs.shares = c->role[WEFT_SLOT_REFERENCE].shares;
    out->needs.critic_shares = c->role[WEFT_SLOT_CRITIC].shares;
    for (int32_t r = 0; r < c->n_rewards; r++)
        if (c->reward[r].type == WEFT_REWARD_MODEL) {
            out->needs.reads_text[out->needs.n_rewards] =
                c->reward[r].own_tokenizer;
            out->needs.reward[out->needs.n_rewards++] = r;
            out->reward.weight[out->reward.n_models++] = c->reward[r].weight;
        }
    for (int k = 0; k < WEFT_CONFIG_ROLES; k++)
        out->learn[k].loss = (struct weft_loss_args){
            .loss = a->loss,
            .inv_temperature = generates ? 1 / c->rollout.temperature : 1};
    if (a->settings)
        a->settings(c, out);
}

float weft_sample_weight(const struct weft_settings *settings,
                         const struct weft_learning *learning, int32_t n,
                         int64_t n_tokens, int32_t len)
{
    switch (learning->aggregation) {
    case WEFT_AGG_SEQ_MEAN_TOKEN_SUM:
        return 1 / (float) n;
    case WEFT_AGG_SEQ_MEAN_TOKEN_MEAN:
        return 1 / ((float) n * (float) len);
    case WEFT_AGG_SEQ_MEAN_TOKEN_SUM_NORM:
        return 1 / ((float) n * (float) settings->max_new);
    default:
        return 1 / (float) n_tokens;
    }
}
