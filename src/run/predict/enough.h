/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest cluster on which a run fits, by prices of its calls. */
#ifndef WEFT_RUN_PREDICT_ENOUGH_H
#define WEFT_RUN_PREDICT_ENOUGH_H

#include "run/predict/simulate.h"

struct weft_enough {
    int32_t
        n_nodes; /* of the cluster's kinds, in their proportion; 0: no number
                        would do */
    /* then what takes most of a device, however many there are: of a call */
    int32_t call;
    enum weft_mem_class mem;
    double bytes;
};

/* Finds it by bisection, as with more nodes a plan takes no more of a device;
 * with n_nodes or more of them.
 * Calls have layouts that take little memory: recomputed, offloaded where a
 * search does so, on all nodes, a half, a third or a quarter of them, with as
 * many tp members as a node and the model allow, and with few replicas and as
 * many stages as are left. Among all layouts one may fit on fewer nodes.
 * Errors: those of weft_pricer_price(); WEFT_EINVAL, the configuration fixes
 * layouts. */
int weft_run_enough(const struct weft_config *config,
                    const struct weft_plan_needs *needs,
                    const struct weft_simulate_options *simulate,
                    int32_t n_nodes, struct weft_enough *out,
                    struct weft_err *err);
/* The least that such a plan takes of a device on n_nodes, a multiple of the
 * proportion. *most_out: what takes most of it; n_nodes is not set. */
int weft_run_least_bytes(const struct weft_config *config,
                         const struct weft_plan_needs *needs,
                         const struct weft_simulate_options *simulate,
                         int32_t n_nodes, double *bytes_out,
                         struct weft_enough *most_out, struct weft_err *err);
/* Nodes of each kind that are added together. */
int32_t weft_enough_step(const struct weft_cluster *cluster);

#endif
