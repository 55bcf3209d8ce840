/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/moving.h"

double weft_moving_s(void *ctx, int32_t role,
                     const struct weft_call_plan *from,
                     const struct weft_call_plan *to)
{
    const struct weft_moving *m = ctx;
    const struct weft_shape *shape = m->shape[role];
    const struct weft_cluster *cluster = m->cluster;
    /* ranks beyond the cluster's nodes share them */
    const struct weft_node_kind *node = weft_cluster_node(
        cluster, to->mesh.node
                     / (int32_t) weft_ceil_div(m->n_nodes, cluster->n_nodes));
    bool inside = from->mesh.node == to->mesh.node && from->mesh.n_nodes == 1
               && to->mesh.n_nodes == 1;
    const struct weft_link *link = inside ? &node->inside : &node->rail;
    double bytes = weft_shape_changed_bytes(shape, to->tp) / to->pp;
    double rate = link->bytes_per_s;
    if (!inside && node->n_rails < node->n_devices)
        rate *= (double) node->n_rails / node->n_devices;
    return rate > 0 ? link->latency_s + bytes / rate : 0;
}
