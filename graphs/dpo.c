/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/preference.h"

static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    weft_flow_init(out);
    int32_t actor = weft_flow_slot(out, "actor", true, false,
                                   WEFT_SLOT_ACTOR);
    uint32_t pairs = weft_flow_add(out, "pairs", WEFT_FIELD_ROLLOUT), ref = 0;
    weft_flow_call(out, "data", WEFT_DATA, -1, 0, pairs);
    if (needs->reference) {
        int32_t r = weft_flow_reference(out, actor, needs);
        ref = weft_flow_add(out, "reference log-probs", WEFT_FIELD_LOGP);
        weft_flow_call(out, "ref_infer", WEFT_INFER, r, pairs, ref);
    }
    weft_flow_call(out, "actor_train", WEFT_TRAIN, actor, pairs | ref, 0);
}

static void settings(const struct weft_config *c, struct weft_settings *out)
{
    struct weft_learning *learn = &out->learn[WEFT_SLOT_ACTOR];
    enum weft_pair_kind kind = (enum weft_pair_kind) c->preference.loss;
    int32_t normalised = c->preference.length_normalised;
    out->needs.reference = !c->preference.reference_free;
    learn->aggregation = WEFT_AGG_SEQ_MEAN_TOKEN_SUM; /* pairs count alike */
    learn->loss.pairs = (struct weft_k_pairs){
        .kind = kind,
        .beta = c->preference.beta,
        .label_smoothing = c->preference.label_smoothing,
        .reference_free = c->preference.reference_free,
        .length_normalised = normalised < 0 ? kind == WEFT_PAIR_IPO
                                            : normalised > 0};
}

/* Defaults are TRL's. */
static const struct weft_config_key keys[] = {
    KEY_ENUM("dpo.loss", preference.loss, "sigmoid", WEFT_PAIR_SIGMOID,
             "sigmoid|robust|hinge|ipo", KEY_NUM,
             "of a pair (doc/algorithms.md has the formulas)"),
    KEY_FLOAT("dpo.beta", preference.beta, "0.1", 1e-9, 1e6, KEY_NUM,
              "strength of the reference; of ipo: tau"),
    KEY_FLOAT("dpo.label_smoothing", preference.label_smoothing, "0", 0,
              0.4999, KEY_NUM,
              "sigmoid, robust: share of pairs that are the wrong way round"),
    KEY_BOOL("dpo.reference_free", preference.reference_free, "false",
             KEY_NUM, "the reference gives every response the same"),
    KEY_ENUM("dpo.length_normalised", preference.length_normalised, "auto",
             -1, "auto|false|true", KEY_NUM,
             "log-probs are means over tokens; auto: for ipo, as in TRL"),
    KEY_END};

static const struct weft_config_alias aliases[] = {
    {"dpo.loss", "|loss_type|"},
    {"dpo.beta", "|dpo_beta|"},
    {"dpo.reference_free", "|reference_free|"},
    {NULL, NULL}};

static int check_smoothing(const struct weft_config *c, struct weft_err *err)
{
    if (c->preference.label_smoothing > 0
        && c->preference.loss != WEFT_PAIR_SIGMOID
        && c->preference.loss != WEFT_PAIR_ROBUST)
        return weft_err_set(err, WEFT_EINVAL,
                            "'dpo.label_smoothing' has a meaning with "
                            "dpo.loss sigmoid and robust alone");
    return 0;
}

static const struct weft_config_rule rules[] = {
    {"dpo.label_smoothing", check_smoothing}, {NULL, NULL}};

static const struct weft_config_table dpo_keys = {
    .keys = keys, .rules = rules, .aliases = aliases};

static const struct weft_config_table *const tables[] = {
    &weft_actor_keys, &weft_reference_keys,
    &weft_batch_keys, &weft_pair_keys,
    &dpo_keys,        NULL};

const struct weft_algorithm weft_dpo = {
    .config =
        {
            .name = "dpo",
            .about = "chosen responses become likelier than rejected ones, "
                     "by the reward that policy and reference imply "
                     "(Rafailov et al. 2023, arXiv 2305.18290)",
            .tables = tables,
        },
    .flow = flow,
    .rows = WEFT_ROWS_PAIR,
    .loss = WEFT_LOSS_PAIRS,
    .settings = settings,
    .told = &weft_pairs_told,
};
