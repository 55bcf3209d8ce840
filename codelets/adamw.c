/* SPDX-License-Identifier: Apache-2.0 */
/* One AdamW step of a parameter group, and the publishing of its weights. */
#include "codelets/group.h"
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

/* Replicas of KV rows begin with equal masters and moments and get equal
 * gradients, so that they stay equal without further care. */
static int adamw_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) x;
    const struct adamw_task *t = args;
    const struct weft_shape *shape = t->shape;
    int32_t n_tiles = t->list.n;
    const struct weft_grad_norm *norm = buf[0];
    void *const *grad = buf + 1, *const *opt = grad + n_tiles,
                *const *fwd = opt + n_tiles;
    weft_assert(fwd + n_tiles == buf + n_buf);
    if (norm->skip != 0)
        return 0;

    for (int32_t i = 0; i < n_tiles; i++) {
        struct weft_layout layout;
        int32_t index = t->list.index[i];
        struct weft_range chunks = t->chunks.of[index];
        weft_group_layout(shape, t->group, index, &layout);
        size_t n = weft_layout_chunk(&layout, chunks.first + chunks.n)
                 - weft_layout_chunk(&layout, chunks.first);
        bool apart = weft_master_apart(shape,
                                       weft_group_kind(t->group, index));
        float *master = apart ? opt[i] : fwd[i];
        float *m = (float *) opt[i] + (apart ? n : 0);
        weft_k_adamw(&t->adamw, n, norm->scale, grad[i], master, m, m + n);
        if (apart)
            weft_k_publish_chunks(&layout, shape->dtype, chunks, master,
                                  fwd[i]);
    }
    return 0;
}

WEFT_CODELET(adamw, 0x2e7d32, adamw_cpu)

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
