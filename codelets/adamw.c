/* SPDX-License-Identifier: Apache-2.0 */
/* One AdamW step of a parameter group, and the publishing of its weights. */
#include <string.h>

#include "codelets/bag.h"
#include "codelets/group.h"
#include "rt/codelet.h"

struct adamw_task {
    const struct weft_shape *shape;
    struct weft_k_adamw adamw;
    enum weft_param_group group;
    bool tied; /* the embedding's tables follow a tied head */
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

/* KV rows that blocks share: replicas follow their owners. */
static void share(const struct weft_shape *shape, struct state s[])
{
    float *master[WEFT_MAX_BLOCKS], *m[WEFT_MAX_BLOCKS], *v[WEFT_MAX_BLOCKS];
    for (int b = 0; b < shape->n_blocks; b++) {
        master[b] = s[b].master;
        m[b] = s[b].m;
        v[b] = s[b].v;
    }
    weft_k_share_kv(shape, master);
    weft_k_share_kv(shape, m);
    weft_k_share_kv(shape, v);
}

static int adamw_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) n_buf;
    (void) x;
    static const enum weft_tile_kind block_kind[] = {
        WEFT_TILE_LAYER, WEFT_TILE_EMBED, WEFT_TILE_HEAD};
    const struct adamw_task *t = args;
    const struct weft_shape *shape = t->shape;
    enum weft_tile_kind kind = block_kind[t->group];
    bool scalar = t->group == WEFT_GROUP_HEAD && shape->scalar_head;
    int n_blocks = scalar ? 0 : shape->n_blocks;
    int n = n_blocks + (t->group != WEFT_GROUP_EMBED); /* norms are last */
    const struct weft_grad_norm *norm = buf[0];
    void *const *grad = buf + 1, *const *opt = grad + n,
                *const *fwd = opt + n, *const *bwd = fwd + n,
                *const *table = bwd + n_blocks;
    struct state s[WEFT_MAX_BLOCKS + 1];

    for (int i = 0; i < n; i++) {
        bool norms = i == n_blocks;
        enum weft_tile_kind k = !norms ? kind
                              : t->group == WEFT_GROUP_LAYER
                                  ? WEFT_TILE_NORMS
                                  : WEFT_TILE_FINAL;
        state_get(shape, k, norms ? 0 : i, opt[i], fwd[i], &s[i]);
        weft_k_adamw(&t->adamw, s[i].layout.n_flat, norm->scale, grad[i],
                     s[i].master, s[i].m, s[i].v);
    }
    if (t->group == WEFT_GROUP_LAYER)
        share(shape, s);
    for (int i = 0; i < n_blocks; i++) {
        bool embed = t->group == WEFT_GROUP_EMBED;
        weft_k_publish(&s[i].layout, shape->dtype, s[i].master, fwd[i],
                       embed ? NULL : bwd[i]);
        if (t->tied)
            weft_k_tied_publish(shape, i, s[i].master, table[i]);
    }
    return 0;
}

WEFT_CODELET(adamw, 0x2e7d32, adamw_cpu)

static void add_group(struct weft_bag *bag, const struct weft_params *p,
                      enum weft_param_group group, int32_t layer,
                      enum weft_mode mode)
{
    struct weft_tile *tile[WEFT_GROUP_TILES];
    int n = weft_group_tiles(p, group, layer, tile);
    for (int i = 0; i < n; i++)
        weft_bag_add(bag, tile[i], mode);
}

void weft_insert_adamw(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_shape *shape,
                       const struct weft_k_adamw *adamw,
                       enum weft_param_group group, int32_t layer,
                       const struct weft_params *grad, struct weft_tile *norm,
                       const struct weft_params *opt,
                       const struct weft_params *fwd,
                       const struct weft_params *bwd)
{
    struct adamw_task task = {shape, *adamw, group,
                              shape->tied && group == WEFT_GROUP_HEAD};
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add(&bag, norm, WEFT_READ);
    add_group(&bag, grad, group, layer, WEFT_READ);
    add_group(&bag, opt, group, layer, WEFT_READ_WRITE);
    add_group(&bag, fwd, group, layer, WEFT_READ_WRITE);
    if (group == WEFT_GROUP_HEAD)
        weft_bag_add_blocks(&bag, bwd->head.block, WEFT_WRITE);
    else if (group == WEFT_GROUP_LAYER)
        weft_bag_add_blocks(&bag, bwd->layer[layer].block, WEFT_WRITE);
    if (task.tied)
        weft_bag_add_blocks(&bag, fwd->embed, WEFT_WRITE);
    weft_bag_insert(&bag, seq, where, &weft_cl_adamw, &task, sizeof task);
}
