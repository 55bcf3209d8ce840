/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/algorithms.h"

static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    (void) needs;
    weft_flow_init(out);
    int32_t actor = weft_flow_role(out, "actor", true, false);
    uint32_t rows = weft_flow_bit(
        weft_flow_field(out, "rows", WEFT_FIELD_ROLLOUT));
    weft_flow_call(out, "data", WEFT_DATA, -1, 0, rows);
    weft_flow_call(out, "actor_train", WEFT_TRAIN, actor, rows, 0);
}

const struct weft_algorithm weft_sft = {
    .name = "sft",
    .about = "supervised fine-tuning: the policy learns the data's responses",
    .flow = flow,
    .loss = WEFT_LOSS_SFT,
};
