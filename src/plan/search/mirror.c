/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choices that differ only in which of several alike devices calls have.
 * Devices are halves of halves: of a part of a node, of a node, of a power of
 * two of nodes. Where no call's mesh lies within one of these parts, or across
 * its end, its halves can be exchanged, so that of two options that are mirror
 * images of one another the one in the first half is enough.
 */
#include "plan/search/inside.h"

static bool is_aligned(int32_t first, int32_t n, int32_t all)
{
    return n == all || ((n & (n - 1)) == 0 && first % n == 0);
}

/* Whether halves of all devices, of a half of them and so on can be exchanged
 * with every option where its mirror image is. */
static bool has_halves(int32_t all)
{
    return (all & (all - 1)) == 0;
}

bool weft_search_has_mirrors(const struct weft_search_problem *p)
{
    if (!p->alike || !has_halves(p->n_nodes) || !has_halves(p->n_devices))
        return false;
    for (int32_t c = 0; c < p->n_calls; c++) {
        for (int32_t i = 0; i < p->call[c].n_options; i++) {
            const struct weft_mesh *m = &p->call[c].option[i].plan.mesh;
            if (!is_aligned(m->node, m->n_nodes, p->n_nodes)
                || !is_aligned(m->device, m->n_devices, p->n_devices))
                return false;
        }
    }
    return true;
}

/* Whether a mesh has all of some devices of some nodes, or none of them. */
static bool leaves_whole(const struct weft_mesh *mesh,
                         const struct weft_mesh *part)
{
    bool nodes = mesh->node < part->node + part->n_nodes
              && part->node < mesh->node + mesh->n_nodes;
    bool devices = mesh->device < part->device + part->n_devices
                && part->device < mesh->device + mesh->n_devices;
    bool covers = mesh->node <= part->node
               && part->node + part->n_nodes <= mesh->node + mesh->n_nodes
               && mesh->device <= part->device
               && part->device + part->n_devices
                      <= mesh->device + mesh->n_devices;
    return !nodes || !devices || covers;
}

static bool all_leave_whole(const struct weft_search *s,
                            const int32_t *choice, const int32_t *order,
                            int32_t n, const struct weft_mesh *part)
{
    for (int32_t k = 0; k < n; k++)
        if (!leaves_whole(&weft_search_chosen(s, choice, order[k])->plan.mesh,
                          part))
            return false;
    return true;
}

bool weft_search_is_mirrored(const struct weft_search *s,
                             const int32_t *choice, const int32_t *order,
                             int32_t n, const struct weft_mesh *mesh)
{
    const struct weft_search_problem *p = s->p;
    struct weft_mesh part = *mesh;
    int32_t size = mesh->n_devices;
    for (; mesh->n_nodes == 1 && 2 * size <= p->n_devices; size *= 2) {
        part.device = mesh->device / (2 * size) * 2 * size;
        part.n_devices = 2 * size;
        if (mesh->device / size % 2 == 1
            && all_leave_whole(s, choice, order, n, &part))
            return true;
    }
    part.device = 0; /* of whole nodes */
    part.n_devices = p->n_devices;
    for (size = mesh->n_nodes; 2 * size <= p->n_nodes; size *= 2) {
        part.node = mesh->node / (2 * size) * 2 * size;
        part.n_nodes = 2 * size;
        if (mesh->node / size % 2 == 1
            && all_leave_whole(s, choice, order, n, &part))
            return true;
    }
    return false;
}
