/* SPDX-License-Identifier: Apache-2.0 */
/* The table of algorithms: a new one is a line here. */
#include "graphs/algorithms.h"

const struct weft_config_algorithm *const weft_algorithms[] = {
    &weft_ppo.config,
    &weft_sft.config,
    &weft_grpo.config,
    &weft_dr_grpo.config,
    &weft_rloo.config,
    &weft_reinforce_pp.config,
    &weft_reinforce_pp_baseline.config,
    &weft_gspo.config,
    &weft_cispo.config,
    NULL,
};

const struct weft_algorithm *weft_algorithm_of(
    const struct weft_config *config)
{
    const char *part = (const char *) config->algorithm;
    return (const void *) (part - offsetof(struct weft_algorithm, config));
}
