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
};
