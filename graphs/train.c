/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One optimizer step. Gradient groups are the leaves of a fixed binary tree;
 * a device takes a contiguous range of them, accumulates each leaf in one
 * chain over its samples, and joins finished leaves like a binary counter:
 *
 *     leaf    0   1   2   3        device 0: (0+1)   device 1: (2+3)
 *              \ /     \ /
 *               +       +          then the devices' roots: (0+1) + (2+3)
 */
#include <string.h>

#include "base/alloc.h"
#include "graphs/micro_batch.h"
#include "plan/deal.h"

/* A root that waits on a device: leaves lo .. lo + size - 1. */
struct root {
    int32_t lo, size, device;
    struct weft_params *set; /* NULL: no sample in these leaves */
};

struct build {
    struct weft_seq *seq;
    const struct weft_g_train *t;
    const struct weft_pack_sample *sample;
    int32_t *order, *group_first;  /* samples by group */
    struct weft_params **free_set; /* per device: stack of free sets */
    int32_t n_free[64];
    struct root *root; /* per device: stack of up to 8 */
    int32_t n_root[64];
    struct weft_g_stats *stats;
    int32_t n_stats;
    struct weft_err *err;
};

enum { MAX_ROOTS = 16, MAX_SETS = 16 };

static struct weft_where where_of(const struct build *b, int32_t device)
{
    return (struct weft_where){.device = device,
                               .call = b->t->call,
                               .iteration = b->t->iteration,
                               .micro_batch = b->n_stats,
                               .layer = -1};
}

static void for_each_group(const struct weft_g_model *m,
                           void (*visit)(void *arg,
                                         enum weft_param_group group,
                                         int32_t layer),
                           void *arg)
{
    visit(arg, WEFT_GROUP_EMBED, -1);
    for (int32_t l = 0; l < m->shape.n_layers; l++)
        visit(arg, WEFT_GROUP_LAYER, l);
    visit(arg, WEFT_GROUP_HEAD, -1);
}

/* ---- The tree over gradient groups ------------------------------------ */

struct pair {
    struct build *b;
    struct weft_where where;
    const struct weft_params *left, *right;
};

static void zero_group(void *arg, enum weft_param_group group, int32_t layer)
{
    struct pair *p = arg;
    weft_insert_zero(p->b->seq, &p->where, p->left, group, layer);
}

static void add_group(void *arg, enum weft_param_group group, int32_t layer)
{
    struct pair *p = arg;
    weft_insert_grad_add(p->b->seq, &p->where, p->left, p->right, group,
                         layer);
}

/* left + right in left's set; the right set is given back. */
static struct root join(struct build *b, struct root left, struct root right)
{
    struct root out = {left.lo, 2 * left.size, left.device, left.set};
    if (!left.set) {
        out.set = right.set;
        out.device = right.device;
    } else if (right.set) {
        struct pair p = {b, where_of(b, left.device), left.set, right.set};
        for_each_group(b->t->model, add_group, &p);
        b->free_set[right.device * MAX_SETS + b->n_free[right.device]++] =
            right.set;
    }
    return out;
}

static void push_root(struct build *b, int32_t device, struct root leaf)
{
    struct root *stack = b->root + (size_t) device * MAX_ROOTS;
    int32_t *n = &b->n_root[device];
    stack[(*n)++] = leaf;
    while (*n >= 2 && stack[*n - 1].size == stack[*n - 2].size
           && stack[*n - 2].lo % (2 * stack[*n - 1].size) == 0) {
        stack[*n - 2] = join(b, stack[*n - 2], stack[*n - 1]);
        (*n)--;
    }
}

/* Joins the devices' roots along the global tree. */
static struct root collect(struct build *b, int32_t lo, int32_t size)
{
    for (int32_t d = 0; d < b->t->grads->dp; d++)
        for (int32_t i = 0; i < b->n_root[d]; i++) {
            struct root r = b->root[(size_t) d * MAX_ROOTS + (size_t) i];
            if (r.lo == lo && r.size == size)
                return r;
        }
    struct root left = collect(b, lo, size / 2);
    return join(b, left, collect(b, lo + size / 2, size / 2));
}

static int run_micro_batch(struct build *b, int32_t device, int32_t n,
                           const int32_t *index,
                           const struct weft_params *grad)
{
    struct weft_where where = where_of(b, device);
    int rc = weft_g_micro_batch(b->seq, &where, b->t, n, index, b->sample,
                                grad, &b->stats[b->n_stats], b->err);
    b->n_stats += !rc;
    return rc;
}

static int leaf(struct build *b, int32_t g)
{
    const struct weft_g_grads *grads = b->t->grads;
    int32_t device = weft_plan_group_device(g, grads->n_groups, grads->dp);
    int32_t n = b->group_first[g + 1] - b->group_first[g];
    const int32_t *index = b->order + b->group_first[g];
    struct root root = {g, 1, device, NULL};
    int32_t *rows = weft_alloc((size_t) n, sizeof *rows);
    int32_t *first = weft_alloc((size_t) n + 1, sizeof *first);
    int rc = 0;

    if (!rows || !first) {
        rc = weft_err_nomem(b->err, "a gradient group",
                            (size_t) n * sizeof *rows);
        goto out;
    }
    if (n > 0) {
        weft_assert(b->n_free[device] > 0);
        root.set = b->free_set[device * MAX_SETS + --b->n_free[device]];
        struct pair p = {b, where_of(b, device), root.set, NULL};
        for_each_group(b->t->model, zero_group, &p);
    }
    for (int32_t i = 0; i < n; i++)
        rows[i] = b->sample[index[i]].n_total;
    int32_t parts = weft_plan_split(n, rows, b->t->micro_batch_rows, first);
    for (int32_t i = 0; i < parts && !rc; i++)
        rc = run_micro_batch(b, device, first[i + 1] - first[i],
                             index + first[i], root.set);
    push_root(b, device, root);
out:
    weft_free(rows);
    weft_free(first);
    return rc;
}

/* ---- Norm and update -------------------------------------------------- */

struct update {
    struct build *b;
    const struct weft_params *grad;
    struct weft_tile **partial;
    int32_t n_partial;
    struct weft_tile *norm;
};

static bool skips(const struct update *u, enum weft_param_group group)
{
    return group == WEFT_GROUP_EMBED && u->b->t->model->shape.tied;
}

/* Update tasks are spread over the devices by layer. */
static struct weft_where update_where(const struct update *u, int32_t layer)
{
    struct weft_where where = where_of(u->b,
                                       (layer + 2) % u->b->t->grads->dp);
    where.micro_batch = -1;
    where.layer = layer;
    return where;
}

static void square_group(void *arg, enum weft_param_group group,
                         int32_t layer)
{
    struct update *u = arg;
    const struct weft_g_model *m = u->b->t->model;
    struct weft_where where = update_where(u, layer);
    struct weft_tile_id id = {m->name, "norm", 0, layer, -1, 0};
    struct weft_tile *tile;
    struct weft_err err;
    if (skips(u, group))
        return;
    int rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_SAMPLES,
                                   sizeof(double), &tile, &err);
    if (rc) {
        weft_seq_fail(u->b->seq, rc, "%s", err.text);
        return;
    }
    weft_insert_sum_squares(u->b->seq, &where, &m->shape, u->grad, group,
                            layer, tile);
    u->partial[u->n_partial++] = tile;
}

static void adamw_group(void *arg, enum weft_param_group group, int32_t layer)
{
    struct update *u = arg;
    const struct weft_g_model *m = u->b->t->model;
    struct weft_where where = update_where(u, layer);
    if (!skips(u, group))
        weft_insert_adamw(u->b->seq, &where, &m->shape, &u->b->t->adamw,
                          group, layer, u->grad, u->norm, &m->opt, &m->fwd,
                          &m->bwd);
}

static int update(struct build *b, const struct root *root,
                  struct weft_tile **norm_out)
{
    const struct weft_g_model *m = b->t->model;
    struct weft_where where = where_of(b, root->device);
    struct weft_tile_id id = {m->name, "norm", 0, -1, -1, 0};
    struct update u = {b, root->set, NULL, 0, NULL};
    size_t n = (size_t) m->shape.n_layers + 2;
    u.partial = weft_alloc(n, sizeof *u.partial);
    if (!u.partial)
        return weft_err_nomem(b->err, "the update", n * sizeof *u.partial);
    int rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_SAMPLES,
                                   sizeof(struct weft_grad_norm), &u.norm,
                                   b->err);
    if (rc)
        goto out;
    if (m->shape.tied && !m->shape.scalar_head)
        weft_insert_tied_add(b->seq, &where, &m->shape, u.grad);
    for_each_group(m, square_group, &u);
    weft_insert_grad_norm(b->seq, &where, b->t->grad_clip, u.n_partial,
                          u.partial, u.norm);
    for_each_group(m, adamw_group, &u);
    *norm_out = u.norm;
out:
    for (int32_t i = 0; i < u.n_partial; i++)
        weft_tile_release(u.partial[i]);
    weft_free(u.partial);
    return rc;
}

/* ---- The step --------------------------------------------------------- */

/* Samples by gradient group, ascending inside a group. */
static int deal(struct build *b, int32_t n)
{
    const struct weft_shape *shape = &b->t->model->shape;
    int32_t n_groups = b->t->grads->n_groups;
    double *cost = weft_alloc((size_t) n, sizeof *cost);
    int32_t *group = weft_alloc((size_t) n, sizeof *group);
    int rc = WEFT_ENOMEM;
    if (!cost || !group) {
        weft_err_nomem(b->err, "a mini-batch", (size_t) n * sizeof *cost);
        goto out;
    }
    for (int32_t i = 0; i < n; i++)
        cost[i] = weft_plan_sample_cost(shape, b->sample[i].n_total);
    rc = weft_plan_deal(n, cost, n_groups, group, b->err);
    if (rc)
        goto out;
    int32_t at = 0;
    for (int32_t g = 0; g < n_groups; g++) {
        b->group_first[g] = at;
        for (int32_t i = 0; i < n; i++)
            if (group[i] == g)
                b->order[at++] = i;
    }
    b->group_first[n_groups] = at;
out:
    weft_free(cost);
    weft_free(group);
    return rc;
}

int weft_g_train_step(struct weft_seq *seq, const struct weft_g_train *train,
                      int32_t n, const struct weft_pack_sample *sample,
                      struct weft_g_stats *stats_out, int32_t *n_stats_out,
                      struct weft_tile **norm_out, struct weft_err *err)
{
    const struct weft_g_grads *grads = train->grads;
    size_t dp = (size_t) grads->dp, n_groups = (size_t) grads->n_groups;
    struct build b = {
        .seq = seq,
        .t = train,
        .sample = sample,
        .stats = stats_out,
        .err = err,
        .order = weft_alloc((size_t) n, sizeof *b.order),
        .group_first = weft_alloc(n_groups + 1, sizeof *b.group_first),
        .free_set = weft_alloc(dp * MAX_SETS, sizeof *b.free_set),
        .root = weft_alloc(dp * MAX_ROOTS, sizeof *b.root),
    };
    int rc;
    if (!b.order || !b.group_first || !b.free_set || !b.root) {
        rc = weft_err_nomem(err, "a mini-batch", (size_t) n * 4);
        goto out;
    }
    for (int32_t d = 0; d < grads->dp; d++)
        for (int32_t i = grads->n_sets[d] - 1; i >= 0; i--)
            b.free_set[d * MAX_SETS + b.n_free[d]++] = &grads->set[d][i];
    rc = deal(&b, n);
    /* Leaves in turn over the devices, so that all start at once. */
    for (int32_t k = 0; k < grads->n_groups && !rc; k++)
        for (int32_t d = 0; d < grads->dp && !rc; d++) {
            int32_t first = (int32_t) weft_ceil_div(
                (int64_t) d * grads->n_groups, grads->dp);
            int32_t g = first + k;
            if (g < grads->n_groups
                && weft_plan_group_device(g, grads->n_groups, grads->dp) == d)
                rc = leaf(&b, g);
        }
    if (!rc) {
        struct root root = collect(&b, 0, grads->n_groups);
        rc = update(&b, &root, norm_out);
    }
    *n_stats_out = b.n_stats;
out:
    weft_free(b.order);
    weft_free(b.group_first);
    weft_free(b.free_set);
    weft_free(b.root);
    return rc;
}
