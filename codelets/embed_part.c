/* SPDX-License-Identifier: Apache-2.0 */
/* A member's part of the embedding, the join of parts, and its gradient. */
#include "codelets/gpu.h"
#include "codelets/member.h"

/* Rows of a member's tables, or of their gradients. */
struct embed_rows {
    const struct weft_shape *shape;
    struct weft_range range;
    void *table[WEFT_MAX_BLOCKS]; /* NULL: of no block of the range */
    const struct weft_batch *batch;
    int32_t n;
    const int32_t *token;
    float *x;
};

static struct embed_rows embed_rows_of(const struct weft_member_args *args,
                                       void *const buf[], int n_buf,
                                       bool table_first)
{
    struct embed_rows r = {.shape = args->shape, .range = args->range};
    struct weft_take take = {buf, n_buf, 0};
    if (table_first)
        weft_take_range(&take, args->range, r.table);
    r.batch = weft_take(&take);
    r.n = r.batch->n_rows;
    r.token = weft_batch_at(r.batch, r.batch->token);
    r.x = weft_take(&take);
    if (!table_first)
        weft_take_range(&take, args->range, r.table);
    weft_take_end(&take);
    return r;
}

static int embed_part_cpu(const void *args, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    (void) x;
    struct embed_rows r = embed_rows_of(args, buf, n_buf, true);
    weft_k_embed_part(r.shape, r.range, (const void *const *) r.table, r.n,
                      r.token, r.x);
    return 0;
}

static int embed_part_cuda(const void *args, void *const buf[], int n_buf,
                           struct weft_exec *x)
{
    struct embed_rows r = embed_rows_of(args, buf, n_buf, true);
    r.token = weft_gpu_tokens(x, r.batch);
    if (!r.token)
        return weft_gpu_failed(x);
    weft_k_embed_cuda(weft_exec_stream(x), r.shape,
                      (const void *const *) r.table, r.n, r.token, r.x);
    return 0;
}

WEFT_CODELET_2(embed_part, 0xa5d6a7, embed_part_cpu, embed_part_cuda)

static struct weft_work embed_work(const struct weft_member_args *args,
                                   bool backward,
                                   const struct weft_tile *batch)
{
    struct weft_work_rows rows = weft_tile_rows(batch);
    size_t size = backward ? sizeof(float)
                           : weft_dtype_bytes(args->shape->dtype);
    return weft_work_embed(args->shape, args->range, size, backward, &rows);
}

void weft_insert_embed_part(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            struct weft_range range,
                            const struct weft_params *fwd,
                            struct weft_tile *batch, struct weft_tile *x)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_range(&access, range, fwd->embed, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_WRITE);
    access.work = embed_work(&args, false, batch);
    weft_access_list_insert(&access, seq, where, &weft_cl_embed_part, &args,
                            sizeof args);
}

static int embed_select(const void *args_, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    const struct weft_join_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    const struct weft_batch *b = weft_take(&take);
    weft_take_parts(&take, args, part);
    float *out = weft_take(&take);
    weft_take_end(&take);
    const int32_t *token = weft_batch_at(b, b->token);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        token = weft_gpu_tokens(x, b);
        if (!token)
            return weft_gpu_failed(x);
        weft_k_embed_select_cuda(stream, args->shape, b->n_rows, token,
                                 args->n_parts, part, out);
        return 0;
    }
    weft_k_embed_select(args->shape, b->n_rows, token, args->n_parts, part,
                        out);
    return 0;
}

WEFT_CODELET_2(embed_select, 0xc8e6c9, embed_select, embed_select)

void weft_insert_embed_select(struct weft_seq *seq,
                              const struct weft_where *where,
                              const struct weft_shape *shape,
                              struct weft_tile *batch, int n_parts,
                              const struct weft_part_tile part[],
                              struct weft_tile *x)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_join_args args = weft_join_args_of(shape, n_parts, part);
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    weft_access_list_add(&access, x, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_embed_select, &args,
                            sizeof args);
}

static int embed_backward_part_cpu(const void *args, void *const buf[],
                                   int n_buf, struct weft_exec *x)
{
    (void) x;
    struct embed_rows r = embed_rows_of(args, buf, n_buf, false);
    weft_k_embed_backward(r.shape, r.n, r.token, r.x,
                          (float *const *) r.table);
    return 0;
}

static int embed_backward_part_cuda(const void *args, void *const buf[],
                                    int n_buf, struct weft_exec *x)
{
    struct embed_rows r = embed_rows_of(args, buf, n_buf, false);
    r.token = weft_gpu_tokens(x, r.batch);
    if (!r.token)
        return weft_gpu_failed(x);
    weft_k_embed_backward_cuda(weft_exec_stream(x), r.shape, r.n, r.token,
                               r.x, (float *const *) r.table);
    return 0;
}

WEFT_CODELET_2(embed_backward_part, 0x81c784, embed_backward_part_cpu,
               embed_backward_part_cuda)

void weft_insert_embed_backward_part(struct weft_seq *seq,
                                     const struct weft_where *where,
                                     const struct weft_shape *shape,
                                     struct weft_range range,
                                     struct weft_tile *batch,
                                     struct weft_tile *dx,
                                     const struct weft_params *grad)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, dx, WEFT_READ);
    weft_access_list_add_range(&access, range, grad->embed, WEFT_READ_WRITE);
    access.work = embed_work(&args, true, batch);
    weft_access_list_insert(&access, seq, where, &weft_cl_embed_backward_part,
                            &args, sizeof args);
}
