/* SPDX-License-Identifier: Apache-2.0 */
/* What is said where no placement fits the memory. */
#ifndef WEFT_RUN_PREDICT_SHORTAGE_H
#define WEFT_RUN_PREDICT_SHORTAGE_H

#include <stddef.h>

#include "run/predict/options.h"

/* What a plan's memory, which is set, is of the fullest device. Records of tasks
 * are the host's. by_gangs: how it was counted. */
struct weft_needed weft_shortage_needed(const struct weft_config *config,
                                        const struct weft_plan_needs *needs,
                                        const struct weft_plan *plan,
                                        bool by_gangs);
/* Bytes of a trained role in any layout: weights, a sum of gradients and two
 * moments; rounded weights have masters. */
double weft_shortage_state_bytes(const struct weft_config *config,
                                 const struct weft_shape *shape);
/* "can take 5.1 GiB of device 3, which has 4; most of it, 3 GiB, is kv". */
void weft_shortage_least(const struct weft_needed *m,
                         const struct weft_plan_needs *needs, char *text,
                         size_t size);

/* Says how many devices the state of what is trained fills, with fewer than
 * which nothing fits, and with how many nodes a plan fits (enough.h), or why
 * none would do. */
enum weft_searched {
    WEFT_NOT_SEARCHED,
    WEFT_SEARCH_STOPPED, /* before it had tried all */
    WEFT_SEARCHED        /* a search has found none on these */
};
void weft_shortage_text(const struct weft_config *config,
                        const struct weft_plan_needs *needs,
                        const struct weft_simulate_options *simulate,
                        enum weft_searched searched, char *text, size_t size);

#endif
