/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients between backward and the optimizer: zero, tree, norm. */
#include <math.h>
#include <string.h>

#include "codelets/bag.h"
#include "codelets/group.h"
#include "rt/codelet.h"

/* Tiles whose flat sizes are known from their bytes. */
struct tiles_task {
    int32_t n;
    size_t bytes[2 * WEFT_MAX_BLOCKS];
};

static void add_sized(struct weft_bag *bag, struct tiles_task *task,
                      struct weft_tile *const tile[], int n,
                      enum weft_mode mode)
{
    for (int i = 0; i < n; i++) {
        weft_bag_add(bag, tile[i], mode);
        if (task)
            task->bytes[task->n++] = weft_tile_bytes(tile[i]);
    }
}

static int zero_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) x;
    const struct tiles_task *t = args;
    for (int i = 0; i < n_buf; i++)
        memset(buf[i], 0, t->bytes[i]);
    return 0;
}

WEFT_CODELET(zero, 0xcfd8dc, zero_cpu)

void weft_insert_zero(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_params *grad,
                      enum weft_param_group group, int32_t layer)
{
    struct weft_tile *tile[WEFT_GROUP_TILES];
    struct tiles_task task = {0};
    struct weft_bag bag;
    weft_bag_init(&bag);
    int n = weft_group_tiles(grad, group, layer, tile);
    add_sized(&bag, &task, tile, n, WEFT_WRITE);
    weft_bag_insert(&bag, seq, where, &weft_cl_zero, &task, sizeof task);
}

static int grad_add_cpu(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    (void) n_buf;
    (void) x;
    const struct tiles_task *t = args;
    for (int i = 0; i < t->n; i++)
        weft_k_add(buf[i], buf[t->n + i], t->bytes[i] / sizeof(float));
    return 0;
}

WEFT_CODELET(grad_add, 0x26a69a, grad_add_cpu)

void weft_insert_grad_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_params *left,
                          const struct weft_params *right,
                          enum weft_param_group group, int32_t layer)
{
    struct weft_tile *tile[WEFT_GROUP_TILES];
    struct tiles_task task = {0};
    struct weft_bag bag;
    weft_bag_init(&bag);
    int n = weft_group_tiles(left, group, layer, tile);
    add_sized(&bag, &task, tile, n, WEFT_READ_WRITE);
    n = weft_group_tiles(right, group, layer, tile);
    add_sized(&bag, NULL, tile, n, WEFT_READ);
    weft_bag_insert(&bag, seq, where, &weft_cl_grad_add, &task, sizeof task);
}

struct shape_task {
    const struct weft_shape *shape;
    enum weft_param_group group;
    int32_t n;
    size_t bytes[2 * WEFT_MAX_BLOCKS];
};

static int tied_add_cpu(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    (void) n_buf;
    (void) x;
    const struct shape_task *t = args;
    int n = t->shape->n_blocks;
    for (int b = 0; b < n; b++)
        weft_k_tied_add_gradient(t->shape, b, buf[n + b], buf[b]);
    return 0;
}

WEFT_CODELET(tied_add, 0x00897b, tied_add_cpu)

void weft_insert_tied_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          const struct weft_params *grad)
{
    struct shape_task task = {.shape = shape};
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add_blocks(&bag, grad->head.block, WEFT_READ_WRITE);
    weft_bag_add_blocks(&bag, grad->embed, WEFT_READ);
    weft_bag_insert(&bag, seq, where, &weft_cl_tied_add, &task, sizeof task);
}

static int sum_squares_cpu(const void *args, void *const buf[], int n_buf,
                           struct weft_exec *x)
{
    (void) n_buf;
    (void) x;
    const struct shape_task *t = args;
    double sum = 0;
    for (int i = 0; i < t->n; i++) {
        bool block = t->group == WEFT_GROUP_LAYER && i < t->shape->n_blocks;
        sum += block ? weft_k_layer_sum_squares(t->shape, i, buf[1 + i])
                     : weft_k_sum_squares(buf[1 + i],
                                          t->bytes[i] / sizeof(float));
    }
    *(double *) buf[0] = sum;
    return 0;
}

WEFT_CODELET(sum_squares, 0x80cbc4, sum_squares_cpu)

void weft_insert_sum_squares(struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_shape *shape,
                             const struct weft_params *grad,
                             enum weft_param_group group, int32_t layer,
                             struct weft_tile *partial)
{
    struct weft_tile *tile[WEFT_GROUP_TILES];
    struct shape_task task = {.shape = shape, .group = group};
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add(&bag, partial, WEFT_WRITE);
    task.n = weft_group_tiles(grad, group, layer, tile);
    for (int i = 0; i < task.n; i++) {
        task.bytes[i] = weft_tile_bytes(tile[i]);
        weft_bag_add(&bag, tile[i], WEFT_READ);
    }
    weft_bag_insert(&bag, seq, where, &weft_cl_sum_squares, &task,
                    sizeof task);
}

struct norm_task {
    float clip;
    int32_t n;
};

static int grad_norm_cpu(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    (void) n_buf;
    const struct norm_task *t = args;
    struct weft_grad_norm *out = buf[0];
    double sum = 0;
    for (int i = 0; i < t->n; i++)
        sum += *(const double *) buf[1 + i];
    double norm = sqrt(sum);
    if (!isfinite(norm))
        return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC,
                            "the gradient is not finite (norm %f); lower the "
                            "learning rate or look at the rewards",
                            norm);
    /* As torch.nn.utils.clip_grad_norm_. */
    double scale = t->clip > 0 ? (double) t->clip / (norm + 1e-6) : 1;
    *out = (struct weft_grad_norm){norm, (float) fmin(scale, 1), 0};
    return 0;
}

WEFT_CODELET(grad_norm, 0x004d40, grad_norm_cpu)

void weft_insert_grad_norm(struct weft_seq *seq,
                           const struct weft_where *where, float clip,
                           int32_t n, struct weft_tile *const partial[],
                           struct weft_tile *norm)
{
    struct norm_task task = {clip, n};
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add(&bag, norm, WEFT_WRITE);
    for (int32_t i = 0; i < n; i++)
        weft_bag_add(&bag, partial[i], WEFT_READ);
    weft_bag_insert(&bag, seq, where, &weft_cl_grad_norm, &task, sizeof task);
}
