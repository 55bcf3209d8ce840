/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that commands make or read for a configuration. */
#ifndef WEFT_CLI_PLANNED_H
#define WEFT_CLI_PLANNED_H

#include "job/plan_needs.h"
#include "plan/cluster.h"
#include "plan/lengths.h"

/* What was asked for; 0 or NULL: not given. */
struct weft_cli_planned {
    const char *from; /* layout=TEXT */
    const char
        *check; /* a plan's file, for the cluster that it was made for */
    int32_t nodes, devices, gpus; /* devices: CPU devices of a node */
    double device_bytes;          /* of a device, where the run says none */
    const struct weft_cluster *cluster; /* NULL: none */
};

/* Makes the configuration's plan, which may be `from`, or reads and checks
 * `check`. Release the plan with weft_plan_release(), also after an error.
 * Errors: those of weft_run_needs_read(), weft_run_plan(), weft_plan_read(),
 * weft_plan_check(). */
int weft_cli_plan(const struct weft_cli_planned *o,
                  struct weft_config *config,
                  struct weft_run_needs *needs_out, struct weft_plan *out,
                  struct weft_err *err);

/* The run has all of a cluster, and its devices the least memory there, where
 * nothing else is said. */
void weft_cli_use_cluster(struct weft_cli_planned *o,
                          const struct weft_cluster *cluster,
                          const struct weft_config *config);

/* The file of measured costs that a simulation uses, or NULL. Those that the
 * configuration names are of its own cluster, not of one that was `asked` for.
 */
const char *weft_cli_costs(const char *costs, const char *asked,
                           const struct weft_config *config);

/* Reads how long responses are (weft_lengths_read(); NULL: as long as they can
 * be), and says how many are longer than the configuration allows. */
int weft_cli_lengths(const char *text, const struct weft_config *config,
                     struct weft_lengths *out, struct weft_err *err);

/* Says what is wrong with the options, or NULL. */
const char *weft_cli_plan_misuse(const struct weft_cli_planned *o);

#endif
