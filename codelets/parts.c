/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that graphs need for members' tiles, and the transposed weights. */
#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/member.h"

size_t weft_part_bytes(const struct weft_shape *shape,
                       struct weft_range range, int64_t n)
{
    return (size_t) (weft_part_n_roots(shape, range) * n) * sizeof(float);
}

size_t weft_part_saved_bytes(const struct weft_shape *shape,
                             struct weft_range range, int64_t n_rows)
{
    return weft_k_part_saved_bytes(shape, range, n_rows);
}

size_t weft_part_dqkv_bytes(const struct weft_shape *shape,
                            struct weft_range range, int64_t n_rows)
{
    return weft_k_dqkv_bytes(shape, range, n_rows);
}

size_t weft_part_shared_bytes(const struct weft_shape *shape,
                              struct weft_range range, int64_t n_rows)
{
    return weft_k_shared_kv_bytes(shape, range, n_rows);
}

size_t weft_part_head_norms_bytes(const struct weft_shape *shape,
                                  struct weft_range range, int64_t n_rows)
{
    return shape->qk_norm
             ? 2 * weft_part_bytes(shape, range, n_rows * shape->head_dim)
             : 0;
}

size_t weft_part_head_bytes(struct weft_range range, int32_t n_targets)
{
    return weft_k_head_part_bytes(range, n_targets);
}

size_t weft_part_logits_bytes(const struct weft_shape *shape,
                              struct weft_range range, int32_t n_targets)
{
    int32_t first, columns;
    weft_k_vocab_range(shape, range, &first, &columns);
    return (size_t) weft_head_n_kept(shape, range, n_targets)
         * (size_t) columns * sizeof(float);
}

size_t weft_part_kv_page_bytes(const struct weft_shape *shape,
                               struct weft_range range, int32_t n_layers)
{
    return weft_k_part_kv_page_bytes(shape, range, n_layers);
}

size_t weft_part_dloss_bytes(int32_t n_targets)
{
    return weft_loss_columns_bytes(n_targets);
}

/* ---- Transposed weights ------------------------------------------------ */

struct transpose_args {
    const struct weft_shape *shape;
    enum weft_tile_kind kind;
    struct weft_range range;
};

static int transpose(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct transpose_args *args = args_;
    struct CUstream_st *stream = weft_exec_stream(x);
    weft_assert(n_buf == 2 * args->range.n);
    for (int32_t i = 0; i < args->range.n; i++) {
        struct weft_layout layout;
        weft_layout_get(args->shape, args->kind, args->range.first + i,
                        &layout);
        if (WEFT_ON_GPU(stream))
            weft_k_transpose_cuda(stream, &layout, args->shape->dtype, buf[i],
                                  buf[args->range.n + i]);
        else
            weft_k_transpose(&layout, args->shape->dtype, buf[i],
                             buf[args->range.n + i]);
    }
    return 0;
}

WEFT_CODELET_2(transpose, 0xb0bec5, transpose, transpose)

void weft_insert_transpose(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           struct weft_range range,
                           enum weft_param_group group, int32_t layer,
                           const struct weft_params *fwd,
                           const struct weft_params *bwd)
{
    if (!weft_seq_is_here(seq, where))
        return;
    bool head = group == WEFT_GROUP_HEAD;
    struct transpose_args args = {
        shape, head ? WEFT_TILE_HEAD : WEFT_TILE_LAYER, range};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_range(
        &access, range, head ? fwd->head.block : fwd->layer[layer].block,
        WEFT_READ);
    weft_access_list_add_range(
        &access, range, head ? bwd->head.block : bwd->layer[layer].block,
        WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_transpose, &args,
                            sizeof args);
}

/* ---- Tied tables ------------------------------------------------------- */

struct table_args {
    const struct weft_shape *shape;
    struct weft_range range;
    bool in_place;
};

static int tied_table_cpu(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    const struct table_args *args = args_;
    weft_assert(n_buf == (args->in_place ? 1 : 2) * args->range.n);
    void *scratch = weft_exec_scratch(
        x, weft_k_tied_table_scratch_bytes(args->shape));
    if (!scratch)
        return WEFT_ENOMEM;
    for (int32_t i = 0; i < args->range.n; i++)
        weft_k_tied_table(args->shape, args->range.first + i,
                          buf[args->in_place ? i : args->range.n + i], buf[i],
                          scratch);
    return 0;
}

static int tied_table_cuda(const void *args_, void *const buf[], int n_buf,
                           struct weft_exec *x)
{
    const struct table_args *args = args_;
    struct weft_range range = args->range;
    size_t most = 0;
    weft_assert(n_buf == (args->in_place ? 1 : 2) * range.n);
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        size_t n = weft_k_tied_table_scratch_bytes_cuda(args->shape, t);
        most = n > most ? n : most;
    }
    void *scratch = args->in_place ? weft_exec_scratch_gpu(x, most) : NULL;
    if (args->in_place && !scratch)
        return weft_gpu_failed(x);
    for (int32_t i = 0; i < range.n; i++)
        weft_k_tied_table_cuda(
            weft_exec_stream(x), args->shape, range.first + i,
            buf[args->in_place ? i : range.n + i], buf[i], scratch);
    return 0;
}

WEFT_CODELET_2(tied_table, 0xb0bec5, tied_table_cpu, tied_table_cuda)

void weft_insert_tied_table(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            struct weft_range range,
                            struct weft_tile *const head[],
                            struct weft_tile *const table[])
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct table_args args = {shape, range, head == NULL};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_range(&access, range, table,
                               head ? WEFT_WRITE : WEFT_READ_WRITE);
    if (head)
        weft_access_list_add_range(&access, range, head, WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_tied_table, &args,
                            sizeof args);
}
