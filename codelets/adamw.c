/* SPDX-License-Identifier: Apache-2.0 */
/* One AdamW step of a parameter group, and the publishing of its weights. */
#include "codelets/group.h"
#include "rt/codelet.h"

struct adamw_task {
    const struct weft_shape *shape;
    struct weft_k_adamw adamw;
    enum weft_param_group group;
    bool bwd, table;
    struct weft_group_list list;
};

bool weft_master_apart(const struct weft_shape *shape,
                       enum weft_tile_kind kind)
{
    return shape->dtype == WEFT_BF16 && kind != WEFT_TILE_NORMS
        && kind != WEFT_TILE_FINAL;
}

size_t weft_opt_bytes(const struct weft_shape *shape,
                      enum weft_tile_kind kind, int32_t block)
{
    struct weft_layout layout;
    weft_layout_get(shape, kind, block, &layout);
    return layout.n_flat * sizeof(float)
         * (weft_master_apart(shape, kind) ? 3 : 2);
}

/* Pointers into one tile's optimizer state. */
struct state {
    struct weft_layout layout;
    float *master, *m, *v;
};

static void state_get(const struct weft_shape *shape,
                      enum weft_tile_kind kind, int32_t block, float *opt,
                      void *fwd, struct state *out)
{
    weft_layout_get(shape, kind, block, &out->layout);
    bool apart = weft_master_apart(shape, kind);
    size_t n = out->layout.n_flat;
    out->master = apart ? opt : fwd;
    out->m = apart ? opt + n : opt;
    out->v = out->m + n;
}

static enum weft_tile_kind kind_of(enum weft_param_group group, int32_t index)
{
    static const enum weft_tile_kind block_kind[] = {
        WEFT_TILE_LAYER, WEFT_TILE_EMBED, WEFT_TILE_HEAD};
    if (index < WEFT_MAX_BLOCKS)
        return block_kind[group];
    return group == WEFT_GROUP_LAYER ? WEFT_TILE_NORMS : WEFT_TILE_FINAL;
}

/* KV rows that blocks share need no more than equal gradients: replicas have
 * equal masters and moments, so they stay equal. */
static int adamw_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) x;
    const struct adamw_task *t = args;
    const struct weft_shape *shape = t->shape;
    int32_t n = t->list.n;
    int32_t n_blocks = n - (n > 0 && t->list.index[n - 1] == WEFT_MAX_BLOCKS);
    const struct weft_grad_norm *norm = buf[0];
    void *const *grad = buf + 1, *const *opt = grad + n,
                *const *fwd = opt + n, *const *bwd = fwd + n,
                *const *table = bwd + (t->bwd ? n_blocks : 0);
    weft_assert(table + (t->table ? n_blocks : 0) == buf + n_buf);

    for (int32_t i = 0; i < n; i++) {
        struct state s;
        int32_t index = t->list.index[i];
        bool block = index < WEFT_MAX_BLOCKS;
        state_get(shape, kind_of(t->group, index), block ? index : 0, opt[i],
                  fwd[i], &s);
        weft_k_adamw(&t->adamw, s.layout.n_flat, norm->scale, grad[i],
                     s.master, s.m, s.v);
        if (!block)
            continue;
        weft_k_publish(&s.layout, shape->dtype, s.master, fwd[i],
                       t->bwd ? bwd[i] : NULL);
        if (t->table)
            weft_k_tied_publish(shape, index, s.master, table[i]);
    }
    return 0;
}

WEFT_CODELET(adamw, 0x2e7d32, adamw_cpu)

void weft_insert_adamw(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_k_adamw *adamw,
    enum weft_param_group group, const struct weft_layer_tiles *grad,
    struct weft_tile *norm, const struct weft_layer_tiles *opt,
    const struct weft_layer_tiles *fwd, const struct weft_layer_tiles *bwd,
    const struct weft_layer_tiles *table)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct adamw_task task = {.shape = shape,
                              .adamw = *adamw,
                              .group = group,
                              .bwd = bwd != NULL,
                              .table = table != NULL};
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add(&bag, norm, WEFT_READ);
    task.list = weft_bag_add_group(&bag, grad, WEFT_READ);
    weft_bag_add_group(&bag, opt, WEFT_READ_WRITE);
    weft_bag_add_group(&bag, fwd, WEFT_READ_WRITE);
    if (bwd)
        weft_bag_add_blocks(&bag, bwd->block, WEFT_WRITE);
    if (table)
        weft_bag_add_blocks(&bag, table->block, WEFT_WRITE);
    weft_bag_insert(&bag, seq, where, &weft_cl_adamw, &task, sizeof task);
}
