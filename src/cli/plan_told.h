/* SPDX-License-Identifier: Apache-2.0 */
/* What a search found, in sentences beside the plan's table. */
#ifndef WEFT_CLI_PLAN_TOLD_H
#define WEFT_CLI_PLAN_TOLD_H

#include "cli/plan_found.h"
#include "run/predict/options.h"

/* Prints the plan's seconds and certificate, what fusion gains, and whether
 * it may not fit. has: bytes of a device; by_gangs: it was simulated by
 * instruction of tp groups. */
void weft_cli_tell_found(const struct weft_cli_plan_options *o,
                         const struct weft_found *found, double has,
                         bool by_gangs, const struct weft_plan *plan);

#endif
