/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/moving.h"

/* The node of a mesh's rank; ranks may share nodes. */
static int32_t node_of(const struct weft_moving *m,
                       const struct weft_mesh *mesh, int32_t rank)
{
    int32_t first;
    return weft_cluster_rank(m->cluster, m->n_nodes, m->n_devices,
                             mesh->node + rank, &first);
}

double weft_moving_s(void *ctx, int32_t role,
                     const struct weft_call_plan *from,
                     const struct weft_call_plan *to)
{
    const struct weft_moving *m = ctx;
    const struct weft_shape *shape = m->shape[role];
    int32_t at = node_of(m, &to->mesh, 0);
    const struct weft_node_kind *node = weft_cluster_node(m->cluster, at);
    bool inside = node_of(m, &to->mesh, to->mesh.n_nodes - 1) == at
               && node_of(m, &from->mesh, 0) == at
               && node_of(m, &from->mesh, from->mesh.n_nodes - 1) == at;
    const struct weft_link *link = inside ? &node->inside : &node->rail;
    double bytes = weft_shape_changed_bytes(shape, to->tp) / to->pp;
    double rate = link->bytes_per_s;
    if (!inside && node->n_rails < node->n_devices)
        rate *= (double) node->n_rails / node->n_devices;
    return rate > 0 ? link->latency_s + bytes / rate : 0;
}
