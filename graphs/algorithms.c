/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/algorithms.h"

#define ENTRY(name) &weft_##name.config,

const struct weft_config_algorithm *const weft_algorithms[] = {
    WEFT_ALGORITHMS(ENTRY) NULL};

const struct weft_algorithm *weft_algorithm_of(
    const struct weft_config *config)
{
    const char *part = (const char *) config->algorithm;
    return (const void *) (part - offsetof(struct weft_algorithm, config));
}
