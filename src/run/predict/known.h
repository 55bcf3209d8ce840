/* SPDX-License-Identifier: Apache-2.0 */
/* What a run knows of costs: the files that its configuration names. */
#ifndef WEFT_RUN_PREDICT_KNOWN_H
#define WEFT_RUN_PREDICT_KNOWN_H

#include "run/predict/simulate.h"

struct weft_known;

/* Reads `costs` and `cluster`; *out stays NULL if there are neither. Errors:
 * those of weft_profile_read(), weft_cluster_read(), WEFT_ENOMEM. */
int weft_known_open(const struct weft_config *config, struct weft_known **out,
                    struct weft_err *err);
void weft_known_close(struct weft_known *known); /* NULL is allowed */

/* Simulations of the job with these costs, responses as long as they can be.
 * Without a cluster's description it is the machine that was profiled, with a
 * node for each rank, all of them here where none was started. What is pointed
 * to lives as long as `known`. */
struct weft_simulate_options weft_known_options(struct weft_known *known,
                                                const struct weft_g_job *job);

#endif
