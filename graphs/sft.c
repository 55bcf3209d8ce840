/* SPDX-License-Identifier: Apache-2.0 */
/* Supervised fine-tuning: the policy learns the data's responses. */
#include "graphs/algorithms.h"

void weft_flow_sft(const struct weft_flow_needs *needs,
                   struct weft_dataflow *out)
{
    (void) needs;
    weft_flow_init(out);
    int32_t actor = weft_flow_role(out, "actor", true, false);
    weft_flow_call(out, "actor_train", WEFT_TRAIN, actor, 0, 0);
}
