/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/algorithms.h"
#include "graphs/keys.h"

static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    (void) needs;
    weft_flow_init(out);
    int32_t actor = weft_flow_slot(out, "actor", true, false,
                                   WEFT_SLOT_ACTOR);
    uint32_t rows = weft_flow_bit(
        weft_flow_field(out, "rows", WEFT_FIELD_ROLLOUT));
    weft_flow_call(out, "data", WEFT_DATA, -1, 0, rows);
    weft_flow_call(out, "actor_train", WEFT_TRAIN, actor, rows, 0);
}

static const struct weft_config_table *const tables[] = {
    &weft_actor_keys, &weft_batch_keys, &weft_response_keys, NULL};

static const struct weft_config_default defaults[] = {{"actor.lr", "1e-5"},
                                                      {NULL, NULL}};

static const struct weft_metric measures[] = {
    METRIC_STAT("train/loss", WEFT_PER_TOKEN, WEFT_SLOT_ACTOR,
                WEFT_STAT_PG_LOSS, WEFT_STAT_TOKENS, NULL),
    METRIC_STAT("train/perplexity", WEFT_PERPLEXITY, WEFT_SLOT_ACTOR,
                WEFT_STAT_PG_LOSS, WEFT_STAT_TOKENS, NULL),
    METRIC_STAT("train/entropy", WEFT_PER_TOKEN, WEFT_SLOT_ACTOR,
                WEFT_STAT_ENTROPY, WEFT_STAT_TOKENS, NULL),
    METRIC_ROLE("train/grad_norm", WEFT_OF_NORM, WEFT_SLOT_ACTOR),
    METRIC_ROLE("train/lr", WEFT_OF_RATE, WEFT_SLOT_ACTOR),
    METRIC("train/n_tokens", WEFT_OF_RESPONSE, WEFT_SUM),
    METRIC_END};

static const struct weft_metric *const metrics[] = {measures, NULL};

static const struct weft_curve curves[] = {
    CURVE("Loss", NULL, "loss", "train/loss"),
    CURVE("Entropy", "nats per token", "entropy", "train/entropy"),
    CURVE("Gradient norm", NULL, "norm", "train/grad_norm"),
    CURVE("Learning rate", NULL, "rate", "train/lr"), CURVE_END};

static const struct weft_watched watched[] = {
    {"loss", "train/loss", "loss, first to last", false},
    {NULL, NULL, NULL, false}};

static const struct weft_told told = {
    .metrics = metrics, .curves = curves, .watched = watched};

const struct weft_algorithm weft_sft = {
    .config =
        {
            .name = "sft",
            .about = "supervised fine-tuning: the policy learns the data's "
                     "responses",
            .tables = tables,
            .defaults = defaults,
        },
    .flow = flow,
    .rows = WEFT_ROWS_RESPONSE,
    .loss = WEFT_LOSS_SFT,
    .told = &told,
};
