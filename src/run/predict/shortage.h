/* SPDX-License-Identifier: Apache-2.0 */
/* What is said where no placement fits the memory. */
#ifndef WEFT_RUN_PREDICT_SHORTAGE_H
#define WEFT_RUN_PREDICT_SHORTAGE_H

#include <stddef.h>

#include "config/config.h"
#include "plan/layout.h"

/* Says how many devices the state of what is trained fills, with fewer than
 * which nothing fits, and how to find as many as are enough. */
void weft_shortage_text(const struct weft_config *config,
                        const struct weft_plan_needs *needs, char *text,
                        size_t size);

#endif
