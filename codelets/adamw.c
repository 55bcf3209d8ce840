/* SPDX-License-Identifier: Apache-2.0 */
/* One AdamW step of a parameter group, and the publishing of its weights. */
#include "codelets/group.h"
#include "kern/kern_cuda.h"
#include "rt/codelet.h"

struct adamw_task {
    const struct weft_shape *shape;
    struct weft_k_adamw adamw;
    enum weft_param_group group;
    struct weft_chunks chunks;
    struct weft_group_list list;
};

bool weft_master_apart(const struct weft_shape *shape,
                       enum weft_tile_kind kind)
{
    return shape->dtype == WEFT_BF16 && kind != WEFT_TILE_NORMS
        && kind != WEFT_TILE_FINAL;
}

size_t weft_opt_bytes(const struct weft_shape *shape,
                      enum weft_tile_kind kind, size_t n_elements)
{
    return n_elements * sizeof(float)
         * (weft_master_apart(shape, kind) ? 3 : 2);
}

/* One tile of the step. */
struct adamw_tile {
    struct weft_layout layout;
    struct weft_range chunks;
    size_t n; /* elements */
    bool apart;
    const float *grad;
    float *master, *m, *v;
    void *fwd;
};

static struct adamw_tile tile_of(const struct adamw_task *t,
                                 void *const buf[], int32_t i)
{
    int32_t n_tiles = t->list.n, index = t->list.index[i];
    struct adamw_tile tile = {.chunks = t->chunks.of[index],
                              .grad = buf[i],
                              .fwd = buf[2 * n_tiles + i]};
    weft_group_layout(t->shape, t->group, index, &tile.layout);
    tile.n = weft_layout_chunk(&tile.layout, weft_range_end(tile.chunks))
           - weft_layout_chunk(&tile.layout, tile.chunks.first);
    tile.apart = weft_master_apart(t->shape,
                                   weft_group_kind(t->group, index));
    float *opt = buf[n_tiles + i];
    tile.master = tile.apart ? opt : tile.fwd;
    tile.m = opt + (tile.apart ? tile.n : 0);
    tile.v = tile.m + tile.n;
    return tile;
}

/* Replicas of KV rows begin with equal masters and moments and get equal
 * gradients, so that they stay equal without further care. */
static int adamw_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) x;
    const struct adamw_task *t = args;
    const struct weft_grad_norm *norm = buf[0];
    weft_assert(n_buf == 1 + 3 * t->list.n);
    for (int32_t i = 0; i < t->list.n && norm->skip == 0; i++) {
        struct adamw_tile p = tile_of(t, buf + 1, i);
        weft_k_adamw(&t->adamw, p.n, norm->scale, p.grad, p.master, p.m, p.v);
        if (p.apart)
            weft_k_publish_chunks(&p.layout, t->shape->dtype, p.chunks,
                                  p.master, p.fwd);
    }
    return 0;
}

static int adamw_cuda(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const struct adamw_task *t = args;
    const struct weft_grad_norm *norm = buf[0]; /* in host memory */
    struct CUstream_st *stream = weft_exec_stream(x);
    weft_assert(n_buf == 1 + 3 * t->list.n);
    for (int32_t i = 0; i < t->list.n && norm->skip == 0; i++) {
        struct adamw_tile p = tile_of(t, buf + 1, i);
        weft_k_adamw_cuda(stream, &t->adamw, p.n, norm->scale, p.grad,
                          p.master, p.m, p.v);
        if (p.apart)
            weft_k_publish_cuda(stream, &p.layout, t->shape->dtype, p.chunks,
                                p.master, p.fwd);
    }
    return 0;
}

WEFT_CODELET_2(adamw, 0x2e7d32, adamw_cpu, adamw_cuda)

void weft_insert_adamw(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_k_adamw *adamw,
    enum weft_param_group group, const struct weft_chunks *chunks,
    const struct weft_layer_tiles *grad, struct weft_tile *norm,
    const struct weft_layer_tiles *opt, const struct weft_layer_tiles *fwd)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct adamw_task task = {
        .shape = shape, .adamw = *adamw, .group = group, .chunks = *chunks};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, norm, WEFT_READ);
    task.list = weft_access_list_add_group(&access, grad, WEFT_READ);
    weft_access_list_add_group(&access, opt, WEFT_READ_WRITE);
    weft_access_list_add_group(&access, fwd, WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_adamw, &task,
                            sizeof task);
}
