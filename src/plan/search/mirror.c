/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choices that differ only in which of several alike devices calls have.
 * Devices are halves of halves: of a part of a node, of a node, of a power of
 * two of nodes. Where no call's mesh lies within one of these parts, or across
 * its end, its halves can be exchanged, so that of two options that are mirror
 * images of one another the one in the first half is enough.
 *
 * Bounds and bytes of a choice are those of its images. Its period need not be: a
 * gang's first device is not like its others (play.c). So of a choice that is
 * played the images that differ in who has devices of a gang are played, too.
 */
#include <string.h>

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

static bool is_within(const struct weft_mesh *m, const struct weft_mesh *part)
{
    return part->node <= m->node
        && m->node + m->n_nodes <= part->node + part->n_nodes
        && part->device <= m->device
        && m->device + m->n_devices <= part->device + part->n_devices;
}

/* Whether a mesh has all of some devices of some nodes, or none of them. */
static bool leaves_whole(const struct weft_mesh *mesh,
                         const struct weft_mesh *part)
{
    bool nodes = mesh->node < part->node + part->n_nodes
              && part->node < mesh->node + mesh->n_nodes;
    bool devices = mesh->device < part->device + part->n_devices
                && part->device < mesh->device + mesh->n_devices;
    return !nodes || !devices || is_within(part, mesh);
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

/* ---- Images of a choice ------------------------------------------------- */

enum { MOST_PARTS = 12 }; /* whose halves are exchanged */

struct images {
    const struct weft_search *s;
    const int32_t *choice;
    int32_t n;
    struct weft_mesh part[MOST_PARTS];
};

/* Adds a part that a call is in a half of, if a gang has all of it. Returns
 * false where there are too many. */
static bool add_part(struct images *images, const struct weft_mesh *part)
{
    const struct weft_search *s = images->s;
    bool in_gang = false;
    for (int32_t c = 0; c < s->p->n_calls; c++) {
        const struct weft_option *o = weft_search_chosen(s, images->choice,
                                                         c);
        in_gang = in_gang || (o->gang && is_within(part, &o->plan.mesh));
    }
    for (int32_t i = 0; i < images->n && in_gang; i++)
        in_gang = !weft_search_same_mesh(&images->part[i], part);
    if (!in_gang)
        return true;
    if (images->n == MOST_PARTS)
        return false;
    images->part[images->n++] = *part;
    return true;
}

/* All parts that a mesh is in a half of. */
static bool add_parts(struct images *images, const struct weft_mesh *mesh)
{
    const struct weft_search_problem *p = images->s->p;
    struct weft_mesh part = *mesh;
    bool ok = true;
    for (int32_t n = 2 * mesh->n_devices;
         mesh->n_nodes == 1 && n <= p->n_devices; n *= 2) {
        part.device = mesh->device / n * n;
        part.n_devices = n;
        ok = ok && add_part(images, &part);
    }
    part.device = 0;
    part.n_devices = p->n_devices;
    for (int32_t n = 2 * mesh->n_nodes; n <= p->n_nodes; n *= 2) {
        part.node = mesh->node / n * n;
        part.n_nodes = n;
        ok = ok && add_part(images, &part);
    }
    return ok;
}

/* A mesh when the halves of a set of parts are exchanged. */
static struct weft_mesh exchanged(const struct images *images,
                                  const struct weft_mesh *mesh, uint32_t set)
{
    struct weft_mesh out = *mesh;
    for (int32_t i = 0; i < images->n; i++) {
        const struct weft_mesh *part = &images->part[i];
        if (!(set >> i & 1) || !is_within(mesh, part))
            continue;
        if (part->n_nodes > 1 && 2 * mesh->n_nodes <= part->n_nodes)
            out.node ^= part->n_nodes / 2;
        if (part->n_nodes == 1 && 2 * mesh->n_devices <= part->n_devices)
            out.device ^= part->n_devices / 2;
    }
    return out;
}

static bool same_layout(const struct weft_call_plan *a,
                        const struct weft_call_plan *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->pp == b->pp
        && a->micro_batches == b->micro_batches && a->zero == b->zero
        && a->recompute == b->recompute && a->offload == b->offload;
}

/* Whether options differ in their meshes alone, as far as periods know. */
static bool same_option(const struct weft_option *a,
                        const struct weft_option *b)
{
    return same_layout(&a->plan, &b->plan) && same_layout(&a->with, &b->with)
        && a->seconds <= b->seconds && a->seconds >= b->seconds
        && a->share <= b->share && a->share >= b->share
        && a->task_s <= b->task_s && a->task_s >= b->task_s
        && a->held <= b->held && a->held >= b->held && a->gang == b->gang
        && a->any_device == b->any_device
        && memcmp(a->came, b->came, sizeof a->came) == 0;
}

/* The option of a call that is the one chosen, on another mesh. */
static int32_t find_option(const struct images *images, int32_t call,
                           const struct weft_mesh *mesh)
{
    const struct weft_search_call *c = &images->s->p->call[call];
    const struct weft_option *o = &c->option[images->choice[call]];
    if (weft_search_same_mesh(&o->plan.mesh, mesh))
        return images->choice[call];
    for (int32_t i = 0; i < c->n_options; i++)
        if (weft_search_same_mesh(&c->option[i].plan.mesh, mesh)
            && same_option(o, &c->option[i]))
            return i;
    return -1;
}

bool weft_search_images(const struct weft_search *s, const int32_t *choice,
                        void (*visit)(void *ctx, const int32_t *choice),
                        void *ctx)
{
    struct images images = {.s = s, .choice = choice};
    int32_t image[WEFT_MAX_CALLS];
    bool all = true;
    for (int32_t c = 0; c < s->p->n_calls; c++)
        all = all
           && add_parts(&images,
                        &weft_search_chosen(s, choice, c)->plan.mesh);
    for (uint32_t set = 1; set < 1u << images.n; set++) {
        bool found = true;
        for (int32_t c = 0; c < s->p->n_calls && found; c++) {
            struct weft_mesh mesh = exchanged(
                &images, &weft_search_chosen(s, choice, c)->plan.mesh, set);
            image[c] = find_option(&images, c, &mesh);
            found = image[c] >= 0;
        }
        if (found)
            visit(ctx, image);
        all = all && found;
    }
    return all;
}
