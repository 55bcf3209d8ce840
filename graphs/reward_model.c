/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/preference.h"

static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    (void) needs;
    weft_flow_init(out);
    int32_t model = weft_flow_slot(out, "reward_model", true, true,
                                   WEFT_SLOT_SCORE);
    uint32_t pairs = weft_flow_add(out, "pairs", WEFT_FIELD_ROLLOUT);
    weft_flow_call(out, "data", WEFT_DATA, -1, 0, pairs);
    weft_flow_call(out, "reward_model_train", WEFT_TRAIN, model, pairs, 0);
}

static void settings(const struct weft_config *c, struct weft_settings *out)
{
    struct weft_learning *learn = &out->learn[WEFT_SLOT_SCORE];
    learn->aggregation = WEFT_AGG_SEQ_MEAN_TOKEN_SUM;
    learn->loss.center = c->preference.center;
}

static const struct weft_config_key keys[] = {
    KEY_ENUM("reward_model.margin", preference.margin, "row", WEFT_MARGIN_ROW,
             "row|scores|none", KEY_NUM,
             "by which chosen shall win: row: the row's `margin`, if it has "
             "one (TRL); scores: score_chosen - score_rejected"),
    KEY_FLOAT("reward_model.center", preference.center, "0", 0, 1e6, KEY_NUM,
              "pulls the two scores' sum to 0 (arXiv 2312.09244); 0: off"),
    KEY_END};

static const struct weft_config_alias aliases[] = {
    {"reward_model.center", "|center_rewards_coefficient|"}, {NULL, NULL}};

static const struct weft_config_table own_keys = {.keys = keys,
                                                  .aliases = aliases};

static const struct weft_config_table *const tables[] = {
    &weft_score_keys, &weft_batch_keys, &weft_pair_keys, &own_keys, NULL};

const struct weft_algorithm weft_reward_model = {
    .config =
        {
            .name = "reward_model",
            .about = "a scalar head learns to score chosen responses above "
                     "rejected ones (Bradley and Terry 1952; Stiennon et al. "
                     "2020)",
            .tables = tables,
        },
    .flow = flow,
    .rows = WEFT_ROWS_PAIR,
    .loss = WEFT_LOSS_BRADLEY_TERRY,
    .settings = settings,
    .told = &weft_scores_told,
};
