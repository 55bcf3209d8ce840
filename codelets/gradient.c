/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients between backward and the optimizer: setting them to zero, summing
 * them in a tree, and their norm. */
#include <math.h>
#include <string.h>

#include "codelets/gpu.h"
#include "codelets/group.h"
#include "kern/kern_cuda.h"
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

static int zero_cuda(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct weft_group_list *list = args;
    weft_assert(n_buf == list->n);
    for (int32_t i = 0; i < list->n; i++)
        weft_k_zero_cuda(weft_exec_stream(x), buf[i], list->bytes[i]);
    return 0;
}

WEFT_CODELET_2(zero, 0xcfd8dc, zero_cpu, zero_cuda)

void weft_insert_zero(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_layer_tiles *grad)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_access_list access;
    weft_access_list_init(&access);
    struct weft_group_list list = weft_access_list_add_group(&access, grad,
                                                             WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_zero, &list,
                            sizeof list);
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

static int grad_add_cuda(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct weft_group_list *list = args;
    weft_assert(n_buf == 2 * list->n);
    for (int32_t i = 0; i < list->n; i++)
        weft_k_add_cuda(weft_exec_stream(x), buf[i], buf[list->n + i],
                        list->bytes[i] / sizeof(float));
    return 0;
}

WEFT_CODELET_2(grad_add, 0x26a69a, grad_add_cpu, grad_add_cuda)

void weft_insert_grad_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_layer_tiles *left,
                          const struct weft_layer_tiles *right)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_access_list access;
    weft_access_list_init(&access);
    struct weft_group_list list = weft_access_list_add_group(&access, left,
                                                             WEFT_READ_WRITE);
    weft_access_list_add_group(&access, right, WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_grad_add, &list,
                            sizeof list);
}

struct chunks_task {
    const struct weft_shape *shape;
    enum weft_param_group group;
    int32_t number;
    struct weft_chunks chunks;
    struct weft_group_list list;
};

static int tied_add_cpu(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    (void) x;
    const struct chunks_task *t = args;
    const struct weft_group_list *list = &t->list;
    weft_assert(n_buf == 2 * list->n);
    for (int32_t i = 0; i < list->n; i++)
        weft_k_tied_add_gradient(t->shape, list->index[i],
                                 t->chunks.of[list->index[i]], buf[i],
                                 buf[list->n + i]);
    return 0;
}

static int tied_add_cuda(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct chunks_task *t = args;
    const struct weft_group_list *list = &t->list;
    weft_assert(n_buf == 2 * list->n);
    for (int32_t i = 0; i < list->n; i++)
        weft_k_tied_add_gradient_cuda(
            weft_exec_stream(x), t->shape, list->index[i],
            t->chunks.of[list->index[i]], buf[i], buf[list->n + i]);
    return 0;
}

WEFT_CODELET_2(tied_add, 0x00897b, tied_add_cpu, tied_add_cuda)

void weft_insert_tied_add(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          const struct weft_chunks *chunks,
                          const struct weft_layer_tiles *head,
                          const struct weft_layer_tiles *embed)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct chunks_task task = {.shape = shape, .chunks = *chunks};
    struct weft_access_list access;
    weft_access_list_init(&access);
    task.list = weft_access_list_add_group(&access, embed, WEFT_READ);
    weft_access_list_add_blocks(&access, head->block, WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_tied_add, &task,
                            sizeof task);
}

/* ---- Norm -------------------------------------------------------------- */

/* A tile of partial sums: the group, and how many of the sums belong to each of
 * the group's tiles, its T blocks and its norms; then the sums. */
struct squares {
    int32_t number;
    int32_t n[];
};

static size_t squares_head(const struct weft_shape *shape)
{
    size_t n = (size_t) shape->n_blocks + 1;
    return (sizeof(struct squares) + n * sizeof(int32_t) + 7) / 8 * 8;
}

/* Where the number of sums of a group's tile is. */
static int32_t slot_of(const struct weft_shape *shape, int32_t index)
{
    return index == WEFT_MAX_BLOCKS ? shape->n_blocks : index;
}

/* How many sums a tile has: one if it holds all its chunks, else one per
 * chunk. */
static int32_t numbers_of(const struct weft_shape *shape,
                          enum weft_param_group group, int32_t index,
                          struct weft_range chunks)
{
    struct weft_layout layout;
    weft_group_layout(shape, group, index, &layout);
    return chunks.n == weft_layout_n_chunks(&layout) ? chunks.n > 0
                                                     : chunks.n;
}

size_t weft_squares_bytes(const struct weft_shape *shape,
                          enum weft_param_group group,
                          const struct weft_chunks *chunks)
{
    int32_t n = 0;
    for (int32_t i = 0; i < WEFT_GROUP_TILES; i++)
        if (chunks->of[i].n > 0)
            n += numbers_of(shape, group, i, chunks->of[i]);
    return squares_head(shape) + (size_t) n * sizeof(double);
}

/* Room for one tile after the other, where the task runs. NULL: an error is
 * written. */
static void *squares_scratch(const struct chunks_task *t, struct weft_exec *x)
{
    bool on_gpu = WEFT_ON_GPU(weft_exec_stream(x));
    size_t most = 0;
    for (int32_t i = 0; i < t->list.n; i++) {
        int32_t index = t->list.index[i], n = t->chunks.of[index].n;
        size_t bytes = (size_t) n * sizeof(double);
        if (on_gpu)
            bytes = weft_k_chunk_squares_scratch_bytes_cuda(
                t->shape, weft_group_kind(t->group, index),
                index < WEFT_MAX_BLOCKS ? index : 0, n);
        most = bytes > most ? bytes : most;
    }
    return on_gpu ? weft_exec_scratch_gpu(x, most)
                  : weft_exec_scratch(x, most);
}

/* The n sums of a tile. */
static void tile_squares(const struct chunks_task *t, int32_t index,
                         const float *grad, int32_t n, double *out,
                         struct CUstream_st *stream, void *scratch)
{
    enum weft_tile_kind kind = weft_group_kind(t->group, index);
    struct weft_range chunks = t->chunks.of[index];
    int32_t block = index < WEFT_MAX_BLOCKS ? index : 0;
    double *sum = n == 1 ? scratch : out;
    if (WEFT_ON_GPU(stream)) {
        weft_k_chunk_squares_cuda(stream, t->shape, kind, block, chunks, grad,
                                  n == 1, out, scratch);
        return;
    }
    weft_k_chunk_squares(t->shape, kind, block, chunks, grad, sum);
    if (n != 1)
        return;
    *out = 0;
    for (int32_t k = 0; k < chunks.n; k++)
        *out += sum[k];
}

static int sum_squares(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    const struct chunks_task *t = args;
    weft_assert(n_buf == 1 + t->list.n);
    struct squares *head = buf[0];
    size_t head_bytes = squares_head(t->shape);
    double *out = (double *) (void *) ((char *) buf[0] + head_bytes);
    struct CUstream_st *stream = weft_exec_stream(x);
    void *scratch = squares_scratch(t, x);
    if (!scratch)
        return WEFT_ON_GPU(stream) ? weft_gpu_failed(x) : WEFT_ENOMEM;
    memset(head, 0, head_bytes);
    head->number = t->number;
    for (int32_t i = 0; i < t->list.n; i++) {
        int32_t index = t->list.index[i];
        int32_t n = numbers_of(t->shape, t->group, index,
                               t->chunks.of[index]);
        head->n[slot_of(t->shape, index)] = n;
        tile_squares(t, index, buf[1 + i], n, out, stream, scratch);
        out += n;
    }
    return 0;
}

WEFT_CODELET_2(sum_squares, 0x80cbc4, sum_squares, sum_squares)

void weft_insert_sum_squares(struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_shape *shape,
                             enum weft_param_group group, int32_t number,
                             const struct weft_chunks *chunks,
                             const struct weft_layer_tiles *grad,
                             struct weft_tile *partial)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct chunks_task task = {
        .shape = shape, .group = group, .number = number, .chunks = *chunks};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, partial, WEFT_WRITE);
    task.list = weft_access_list_add_group(&access, grad, WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_sum_squares, &task,
                            sizeof task);
}

struct norm_task {
    const struct weft_shape *shape;
    float clip;
    int32_t n;
    bool gate;
};

/* The sum of squares of a group's tile, whose sums are in n buffers. */
static double tile_sum(const struct weft_shape *shape, void *const buf[],
                       int32_t n, int32_t slot)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct squares *head = buf[i];
        const double *value = (const void *) ((const char *) head
                                              + squares_head(shape));
        for (int32_t k = 0; k < slot; k++)
            value += head->n[k];
        for (int32_t k = 0; k < head->n[slot]; k++)
            sum += value[k];
    }
    return sum;
}

static double squares_sum(const struct weft_shape *shape, void *const buf[],
                          int32_t n)
{
    double sum = 0;
    for (int32_t first = 0, end; first < n; first = end) {
        int32_t number = ((const struct squares *) buf[first])->number;
        double group = 0;
        for (end = first; end < n; end++)
            if (((const struct squares *) buf[end])->number != number)
                break;
        for (int32_t k = 0; k <= shape->n_blocks; k++)
            group += tile_sum(shape, buf + first, end - first, k);
        sum += group;
    }
    return sum;
}

static int grad_norm_cpu(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct norm_task *t = args;
    weft_assert(n_buf == 1 + t->n + t->gate);
    bool skip = t->gate && *(const float *) buf[n_buf - 1] == 0;
    struct weft_grad_norm *out = buf[0];
    double norm = sqrt(squares_sum(t->shape, buf + 1, t->n));
    if (!isfinite(norm))
        return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC,
                            "the gradient is not finite (norm %f); lower the "
                            "learning rate or look at the rewards",
                            norm);
    *out = (struct weft_grad_norm){norm, weft_k_clip_scale(norm, t->clip),
                                   skip};
    return 0;
}

WEFT_CODELET(grad_norm, 0x004d40, grad_norm_cpu)

void weft_insert_grad_norm(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape, float clip,
                           int32_t n, struct weft_tile *const partial[],
                           struct weft_tile *gate, struct weft_tile *norm)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct norm_task task = {shape, clip, n, gate != NULL};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, norm, WEFT_WRITE);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, partial[i], WEFT_READ);
    if (gate)
        weft_access_list_add(&access, gate, WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_grad_norm, &task,
                            sizeof task);
}
