/* SPDX-License-Identifier: Apache-2.0 */
/* Costs by which a layer takes a second; what it computes, and messages,
 * nothing. */
#ifndef WEFT_TESTS_RUN_SECOND_COSTS_H
#define WEFT_TESTS_RUN_SECOND_COSTS_H

#include "plan/costs.h"
#include "run_fixture.h"

/* Of a job's devices, each a place; for the recording, which frees them.
 * cluster: is filled in, and kept as long as they are. */
static inline struct weft_costs *second_costs(const struct weft_g_job *job,
                                              struct weft_cluster *cluster)
{
    *cluster = (struct weft_cluster){
        .n_kinds = 1,
        .n_nodes = job->n_ranks,
        .kind[0] = {.n_nodes = job->n_ranks,
                    .n_devices = job->n_devices,
                    .memory_bytes = 1e9,
                    .flops = {[WEFT_F32] = 1e30, [WEFT_BF16] = 1e30},
                    .memory_bytes_per_s = 1e30,
                    .node_bytes_per_s = 1e30,
                    .layer_s = 1,
                    .inside = {1e30, 0},
                    .n_rails = 1,
                    .rail = {1e30, 0}}};
    const struct weft_costs_job of = {.cluster = cluster,
                                      .n_ranks = job->n_ranks,
                                      .n_devices = job->n_devices,
                                      .place_per_device = true};
    struct weft_costs *out;
    struct weft_err err;
    REQUIRE_OK(weft_costs_create(&of, &out, &err), err);
    return out;
}

#endif
