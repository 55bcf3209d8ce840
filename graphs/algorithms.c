/* SPDX-License-Identifier: Apache-2.0 */
/* The table of algorithms: a new one is a line here. */
#include "graphs/algorithms.h"

static const struct weft_algorithm *const algorithms[] = {
    &weft_ppo,
    &weft_sft,
    &weft_grpo,
    &weft_dr_grpo,
    &weft_rloo,
    &weft_reinforce_pp,
    &weft_reinforce_pp_baseline,
    &weft_gspo,
    &weft_cispo,
};

const struct weft_algorithm *weft_algorithm_get(int i)
{
    return i >= 0 && i < (int) WEFT_COUNT(algorithms) ? algorithms[i] : NULL;
}
