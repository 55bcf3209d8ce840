/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/preference.h"

/* The KL to the reference is estimated from responses to other prompts: every
 * sample also has its prompt with the response of the sample before it. */
static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    weft_flow_init(out);
    int32_t actor = weft_flow_slot(out, "actor", true, false,
                                   WEFT_SLOT_ACTOR);
    int32_t reference = weft_flow_reference(out, actor, needs);
    uint32_t rows = weft_flow_add(out, "rows", WEFT_FIELD_ROLLOUT);
    uint32_t other = weft_flow_add(out, "mismatched rows",
                                   WEFT_FIELD_MISMATCH);
    uint32_t ref = weft_flow_add(out, "reference log-probs", WEFT_FIELD_LOGP);
    uint32_t its = weft_flow_add(out, "mismatched log-probs",
                                 WEFT_FIELD_LOGP);
    uint32_t ref_its = weft_flow_add(out, "mismatched ref. log-probs",
                                     WEFT_FIELD_LOGP);
    uint32_t kl = weft_flow_add(out, "KL", WEFT_FIELD_KL);
    weft_flow_call(out, "data", WEFT_DATA, -1, 0, rows | other);
    weft_flow_call(out, "ref_infer", WEFT_INFER, reference, rows, ref);
    weft_flow_call(out, "ref_kl_infer", WEFT_INFER, reference, other,
                   ref_its);
    weft_flow_call(out, "actor_infer", WEFT_INFER, actor, other, its);
    weft_flow_call(out, "kl", WEFT_STEP, -1, its | ref_its, kl);
    weft_flow_call(out, "actor_train", WEFT_TRAIN, actor, rows | ref | kl, 0);
}

static void settings(const struct weft_config *c, struct weft_settings *out)
{
    struct weft_learning *learn = &out->learn[WEFT_SLOT_ACTOR];
    out->needs.reference = true;
    learn->aggregation = WEFT_AGG_SEQ_MEAN_TOKEN_SUM;
    learn->loss.kto = (struct weft_k_kto){
        .beta = c->preference.beta,
        .desirable = c->preference.desirable,
        .undesirable = c->preference.undesirable};
}

/* Defaults are TRL's. */
static const struct weft_config_key keys[] = {
    KEY_FLOAT("kto.beta", preference.beta, "0.1", 1e-9, 1e6, KEY_NUM,
              "strength of the reference"),
    KEY_FLOAT("kto.desirable_weight", preference.desirable, "1", 0, 1e6,
              KEY_NUM, "of desirable responses in the loss"),
    KEY_FLOAT("kto.undesirable_weight", preference.undesirable, "1", 0, 1e6,
              KEY_NUM, "of the others"),
    KEY_END};

static const struct weft_config_alias aliases[] = {
    {"kto.desirable_weight", "|desirable_loss_weight|"},
    {"kto.undesirable_weight", "|undesirable_loss_weight|"},
    {NULL, NULL}};

static int check_batch(const struct weft_config *c, struct weft_err *err)
{
    if (c->train.batch < 2)
        return weft_err_set(err, WEFT_EINVAL,
                            "algorithm kto pairs a step's prompts with each "
                            "other's responses: 'train.batch' must be at "
                            "least 2");
    return 0;
}

static const struct weft_config_rule rules[] = {{"train.batch", check_batch},
                                                {NULL, NULL}};

static const struct weft_config_table kto_keys = {.keys = keys,
                                                  .aliases = aliases};

static const struct weft_config_table *const tables[] = {
    &weft_actor_keys,    &weft_reference_keys,
    &weft_batch_keys,    &weft_pair_keys,
    &weft_response_keys, &weft_label_keys,
    &kto_keys,           NULL};

const struct weft_algorithm weft_kto = {
    .config =
        {
            .name = "kto",
            .about = "single responses that are desirable or not, by how a "
                     "human values gains and losses (Ethayarajh et al. 2024, "
                     "arXiv 2402.01306)",
            .tables = tables,
            .rules = rules,
        },
    .flow = flow,
    .rows = WEFT_ROWS_LABELLED,
    .loss = WEFT_LOSS_KTO,
    .settings = settings,
    .told = &weft_singles_told,
};
