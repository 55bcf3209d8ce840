/* SPDX-License-Identifier: Apache-2.0 */
/* Published weights of one kind of device for the other. */
#include "codelets/access_list.h"
#include "kern/kern_cuda.h"
#include "rt/codelet.h"

struct reorder_task {
    const struct weft_shape *shape;
    enum weft_tile_kind kind;
    int32_t block;
    bool to_rows;
};

static struct weft_layout layout_of(const struct reorder_task *t)
{
    struct weft_layout layout;
    weft_layout_get(t->shape, t->kind, t->block, &layout);
    return layout;
}

static int reorder_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    (void) x;
    const struct reorder_task *t = args;
    struct weft_layout layout = layout_of(t);
    weft_assert(n_buf == 2);
    weft_k_reorder(&layout, t->shape->dtype, t->to_rows, buf[0], buf[1]);
    return 0;
}

static int reorder_cuda(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    const struct reorder_task *t = args;
    struct weft_layout layout = layout_of(t);
    weft_assert(n_buf == 2);
    weft_k_reorder_cuda(weft_exec_stream(x), &layout, t->shape->dtype,
                        t->to_rows, buf[0], buf[1]);
    return 0;
}

WEFT_CODELET_2(reorder, 0xb39ddb, reorder_cpu, reorder_cuda)

bool weft_reorders(const struct weft_shape *shape, enum weft_tile_kind kind)
{
    return shape->dtype == WEFT_BF16
        && (kind == WEFT_TILE_LAYER || kind == WEFT_TILE_HEAD);
}

void weft_insert_reorder(struct weft_seq *seq, const struct weft_where *where,
                         const struct weft_shape *shape,
                         enum weft_tile_kind kind, int32_t block,
                         bool to_rows, struct weft_tile *from,
                         struct weft_tile *to)
{
    struct reorder_task task = {shape, kind, block, to_rows};
    const struct weft_access access[] = {{from, WEFT_READ}, {to, WEFT_WRITE}};
    weft_insert(seq, &weft_cl_reorder, &task, sizeof task, access, 2, where);
}
