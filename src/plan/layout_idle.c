/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that a plan leaves idle as the run's partition is too coarse. Where
 * there are GPUs, those alone count. */
#include "plan/layout.h"

#include <stdio.h>

static bool has(const struct weft_mesh *m, int32_t node, int32_t device)
{
    return node >= m->node && node < m->node + m->n_nodes
        && device >= m->device && device < m->device + m->n_devices;
}

static bool trains_on(const struct weft_plan *plan,
                      const struct weft_plan_needs *needs, int32_t node,
                      int32_t device)
{
    for (int32_t i = 1; i < needs->flow->n_calls; i++)
        if (weft_flow_trains(needs->flow, i)
            && has(&plan->call[i].mesh, node, device))
            return true;
    return false;
}

static int32_t n_counted(const struct weft_plan *plan)
{
    return plan->n_gpus > 0 ? plan->n_gpus : plan->n_devices;
}

static int64_t count_idle(const struct weft_plan *plan,
                          const struct weft_plan_needs *needs)
{
    int64_t n = 0;
    for (int32_t node = 0; node < plan->n_nodes; node++)
        for (int32_t d = 0; d < n_counted(plan); d++)
            n += !trains_on(plan, needs, node, d);
    return n;
}

/* The least power of two that lets the degree use `all` devices, where `used`
 * are used now. */
static int32_t raised(int32_t degree, int64_t all, int32_t used, int32_t most)
{
    int32_t p = degree;
    while (p < most && (int64_t) p * used < all * degree)
        p *= 2;
    return p;
}

bool weft_plan_idle(const struct weft_plan *plan,
                    const struct weft_plan_needs *needs, char *text,
                    size_t size)
{
    int64_t all = (int64_t) plan->n_nodes * n_counted(plan);
    int64_t idle = count_idle(plan, needs);
    for (int32_t i = 1; i < needs->flow->n_calls && idle > 0; i++) {
        const struct weft_call_plan *c = &plan->call[i];
        int32_t groups = needs->gradient_groups, used = c->dp * c->tp * c->pp;
        if (!weft_flow_trains(needs->flow, i))
            continue;
        const struct weft_shape *s = needs->shape[needs->flow->call[i].role];
        bool by_groups = c->dp == groups && groups < WEFT_MAX_GROUPS;
        int32_t blocks = weft_shape_most_blocks(s);
        if (!by_groups && (c->tp != s->n_blocks || s->n_blocks >= blocks))
            continue;
        snprintf(text, size,
                 "%lld of %lld %s train nothing: %s has %s %d, all that "
                 "numerics.%s allows; a new run may set it to %d, this one "
                 "take a layout with more %s",
                 (long long) idle, (long long) all,
                 plan->n_gpus > 0 ? "GPUs" : "devices",
                 needs->flow->call[i].name, by_groups ? "dp" : "tp",
                 by_groups ? c->dp : c->tp,
                 by_groups ? "gradient_groups" : "tensor_blocks",
                 by_groups ? raised(groups, all, used, WEFT_MAX_GROUPS)
                           : raised(s->n_blocks, all, used, blocks),
                 by_groups ? "tp or pp" : "dp or pp");
        return true;
    }
    return false;
}
