/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients between backward and the optimizer: zero, tree, norm. */
#include <math.h>
#include <string.h>

#include "codelets/group.h"
#include "rt/codelet.h"

static int zero_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) x;
    const struct weft_group_list *list = args;
    weft_assert(n_buf == list->n);
    for (int32_t i = 0; i < list->n; i++)
        memset(buf[i], 0, list->bytes[i]);
    return 0;
}

WEFT_CODELET(zero, 0xcfd8dc, zero_cpu)

void weft_insert_zero(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_layer_tiles *grad)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_bag bag;
    weft_bag_init(&bag);
    struct weft_group_list list = weft_bag_add_group(&bag, grad, WEFT_WRITE);
    weft_bag_insert(&bag, seq, where, &weft_cl_zero, &list, sizeof list);
}

static int grad_add_cpu(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    (void) x;
    const struct weft_group_list *list = args;
    weft_assert(n_buf == 2 * list->n);
    for (int32_t i = 0; i < list->n; i++)
        weft_k_add(buf[i], buf[list->n + i], list->bytes[i] / sizeof(float));
    return 0;
}

WEFT_CODELET(grad_add, 0x26a69a, grad_add_cpu)

void weft_insert_grad_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_layer_tiles *left,
                          const struct weft_layer_tiles *right)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_bag bag;
    weft_bag_init(&bag);
    struct weft_group_list list = weft_bag_add_group(&bag, left,
                                                     WEFT_READ_WRITE);
    weft_bag_add_group(&bag, right, WEFT_READ);
    weft_bag_insert(&bag, seq, where, &weft_cl_grad_add, &list, sizeof list);
}

struct shape_task {
    const struct weft_shape *shape;
    enum weft_param_group group;
    struct weft_group_list list;
};

static int tied_add_cpu(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    (void) x;
    const struct shape_task *t = args;
    const struct weft_group_list *list = &t->list;
    weft_assert(n_buf == 2 * list->n);
    for (int32_t i = 0; i < list->n; i++)
        weft_k_tied_add_gradient(t->shape, list->index[i], buf[i],
                                 buf[list->n + i]);
    return 0;
}

WEFT_CODELET(tied_add, 0x00897b, tied_add_cpu)

void weft_insert_tied_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          const struct weft_layer_tiles *head,
                          const struct weft_layer_tiles *embed)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct shape_task task = {.shape = shape};
    struct weft_bag bag;
    weft_bag_init(&bag);
    task.list = weft_bag_add_group(&bag, embed, WEFT_READ);
    weft_bag_add_blocks(&bag, head->block, WEFT_READ_WRITE);
    weft_bag_insert(&bag, seq, where, &weft_cl_tied_add, &task, sizeof task);
}

static int sum_squares_cpu(const void *args, void *const buf[], int n_buf,
                           struct weft_exec *x)
{
    (void) x;
    const struct shape_task *t = args;
    const struct weft_group_list *list = &t->list;
    weft_assert(n_buf == 1 + list->n);
    double *sum = buf[0];
    memset(sum, 0, WEFT_SQUARES * sizeof *sum);
    for (int32_t i = 0; i < list->n; i++) {
        int32_t at = list->index[i];
        bool block = t->group == WEFT_GROUP_LAYER && at < WEFT_MAX_BLOCKS;
        sum[at] = block ? weft_k_layer_sum_squares(t->shape, at, buf[1 + i])
                        : weft_k_sum_squares(buf[1 + i],
                                             list->bytes[i] / sizeof(float));
    }
    return 0;
}

WEFT_CODELET(sum_squares, 0x80cbc4, sum_squares_cpu)

void weft_insert_sum_squares(struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_shape *shape,
                             enum weft_param_group group,
                             const struct weft_layer_tiles *grad,
                             struct weft_tile *partial)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct shape_task task = {.shape = shape, .group = group};
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add(&bag, partial, WEFT_WRITE);
    task.list = weft_bag_add_group(&bag, grad, WEFT_READ);
    weft_bag_insert(&bag, seq, where, &weft_cl_sum_squares, &task,
                    sizeof task);
}

struct norm_task {
    float clip;
    int32_t n_groups, n_parts;
};

static int grad_norm_cpu(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct norm_task *t = args;
    weft_assert(n_buf == 1 + t->n_groups * t->n_parts);
    struct weft_grad_norm *out = buf[0];
    double sum = 0;
    for (int32_t g = 0; g < t->n_groups; g++) {
        double group = 0;
        for (int k = 0; k < WEFT_SQUARES; k++) /* one part has it, if any */
            for (int32_t i = 0; i < t->n_parts; i++)
                group += ((const double *) buf[1 + g * t->n_parts + i])[k];
        sum += group;
    }
    double norm = sqrt(sum);
    if (!isfinite(norm))
        return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC,
                            "the gradient is not finite (norm %f); lower the "
                            "learning rate or look at the rewards",
                            norm);
    *out = (struct weft_grad_norm){norm, weft_k_clip_scale(norm, t->clip), 0};
    return 0;
}

WEFT_CODELET(grad_norm, 0x004d40, grad_norm_cpu)

void weft_insert_grad_norm(struct weft_seq *seq,
                           const struct weft_where *where, float clip,
                           int32_t n_groups, int32_t n_parts,
                           struct weft_tile *const partial[],
                           struct weft_tile *norm)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct norm_task task = {clip, n_groups, n_parts};
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add(&bag, norm, WEFT_WRITE);
    for (int32_t i = 0; i < n_groups * n_parts; i++)
        weft_bag_add(&bag, partial[i], WEFT_READ);
    weft_bag_insert(&bag, seq, where, &weft_cl_grad_norm, &task, sizeof task);
}
