/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices a call has, and who of them does what. */
#include "plan/layout.h"

int32_t weft_mesh_size(const struct weft_mesh *mesh)
{
    return mesh->n_nodes * mesh->n_devices;
}

struct weft_mesh weft_mesh_largest(int32_t n_nodes, int32_t n_devices,
                                   int64_t most)
{
    struct weft_mesh mesh = {0, 1, 0, n_devices};
    if (most >= n_devices) {
        mesh.n_nodes = (int32_t) weft_min64(most / n_devices, n_nodes);
        return mesh;
    }
    mesh.n_devices = 1;
    while (mesh.n_devices * 2 <= most)
        mesh.n_devices *= 2;
    return mesh;
}

int32_t weft_mesh_device(const struct weft_plan *plan,
                         const struct weft_mesh *mesh, int32_t i)
{
    weft_assert(i >= 0 && i < weft_mesh_size(mesh));
    return (mesh->node + i / mesh->n_devices) * plan->n_devices + mesh->device
         + i % mesh->n_devices;
}

bool weft_mesh_has(const struct weft_plan *plan, const struct weft_mesh *mesh,
                   int32_t device)
{
    int32_t node = device / plan->n_devices - mesh->node;
    int32_t k = device % plan->n_devices - mesh->device;
    return node >= 0 && node < mesh->n_nodes && k >= 0 && k < mesh->n_devices;
}

bool weft_plan_is_gpu(const struct weft_plan *plan, int32_t device)
{
    return device % plan->n_devices < plan->n_gpus;
}

bool weft_plan_on_gpus(const struct weft_plan *plan, int32_t call)
{
    return plan->call[call].mesh.device < plan->n_gpus;
}

int32_t weft_plan_device(const struct weft_plan *plan,
                         const struct weft_call_plan *call, int32_t dp,
                         int32_t stage, int32_t tp)
{
    int32_t s = call->reversed ? call->pp - 1 - stage : stage;
    int32_t group = call->contiguous ? dp * call->pp + s : s * call->dp + dp;
    return weft_mesh_device(plan, &call->mesh, group * call->tp + tp);
}

/* Thing j is of part j parts / n. */
struct weft_range weft_plan_range(int32_t n, int32_t parts, int32_t i)
{
    int64_t first = weft_ceil_div((int64_t) i * n, parts);
    int64_t end = weft_ceil_div((int64_t) (i + 1) * n, parts);
    return (struct weft_range){(int32_t) first, (int32_t) (end - first)};
}
