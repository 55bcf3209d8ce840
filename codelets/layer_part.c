/* SPDX-License-Identifier: Apache-2.0 */
/* A member's parts of a decoder layer forwards, and their joins. */
#include "codelets/gen.h"
#include "codelets/gpu.h"
#include "codelets/member.h"

static int attention_part(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    const struct weft_member_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer weights = {0};
    struct weft_k_kv kv = {.page_bytes = args->page_bytes};
    weft_take_member(&take, args->range, false, &weights);
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_batch view = weft_batch_view(b);
    const float *in = weft_take(&take);
    if (args->page_bytes)
        kv.arena = weft_take(&take);
    void *saved = args->saved ? weft_take(&take) : NULL;
    float *roots = weft_take(&take);
    weft_take_end(&take);
    if (view.n_rows == 0)
        return 0;
    struct CUstream_st *stream = weft_exec_stream(x);
    if (args->page_bytes)
        weft_gen_open_cache(stream, b, &args->range, args->shape, args->layer,
                            &kv);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_gpu_layer_scratch(
            x, b,
            weft_k_part_forward_scratch_bytes_cuda(args->shape, args->range,
                                                   &view),
            args->page_bytes ? &kv : NULL);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_attention_forward_cuda(
            stream, args->shape, args->range, &weights, args->layer, &view,
            args->page_bytes ? &kv : NULL, in, saved, roots, scratch);
        return weft_gpu_end(x);
    }
    void *scratch = weft_exec_scratch(
        x,
        weft_k_part_forward_scratch_bytes(args->shape, args->range, &view));
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_attention_forward(args->shape, args->range, &weights, args->layer,
                             &view, args->page_bytes ? &kv : NULL, in, saved,
                             roots, scratch);
    return 0;
}

WEFT_CODELET_2(attention_part, 0x42a5f5, attention_part, attention_part)

void weft_insert_attention_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, int32_t layer, struct weft_tile *batch,
    struct weft_tile *x, const struct weft_part_kv *kv,
    struct weft_tile *saved, struct weft_tile *roots)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_where at = *where;
    at.layer = layer;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_member(&access, range, &fwd->layer[layer], NULL);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    if (kv) {
        args.layer = kv->layer;
        args.page_bytes = weft_k_part_kv_page_bytes(shape, range,
                                                    kv->n_layers);
        weft_access_list_add(&access, kv->arena, WEFT_READ_WRITE);
    }
    args.saved = weft_access_list_add_optional(&access, saved, WEFT_WRITE);
    weft_access_list_add(&access, roots, WEFT_WRITE);
    access.work = weft_member_work(&args, WEFT_WORK_ATTENTION, batch);
    weft_access_list_insert(&access, seq, &at, &weft_cl_attention_part, &args,
                            sizeof args);
}

static int mlp_part(const void *args_, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct weft_member_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer weights = {0};
    weft_take_member(&take, args->range, false, &weights);
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_batch view = weft_batch_view(b);
    const float *x_mid = weft_take(&take);
    void *saved = args->saved ? weft_take(&take) : NULL;
    float *roots = args->roots ? weft_take(&take) : NULL;
    weft_take_end(&take);
    if (view.n_rows == 0)
        return 0;
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_exec_scratch_gpu(
            x, weft_k_part_forward_scratch_bytes_cuda(args->shape,
                                                      args->range, &view));
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_mlp_forward_cuda(stream, args->shape, args->range, &weights,
                                &view, x_mid, saved, roots, scratch);
        return weft_gpu_end(x);
    }
    void *scratch = weft_exec_scratch(
        x,
        weft_k_part_forward_scratch_bytes(args->shape, args->range, &view));
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_mlp_forward(args->shape, args->range, &weights, &view, x_mid,
                       saved, roots, scratch);
    return 0;
}

WEFT_CODELET_2(mlp_part, 0x1e88e5, mlp_part, mlp_part)

void weft_insert_mlp_part(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          struct weft_range range,
                          const struct weft_params *fwd, int32_t layer,
                          struct weft_tile *batch, struct weft_tile *x_mid,
                          struct weft_tile *saved, struct weft_tile *roots)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_where at = *where;
    at.layer = layer;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_member(&access, range, &fwd->layer[layer], NULL);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x_mid, WEFT_READ);
    /* READ_WRITE: the attention part has already written its fields of the
     * tile. */
    args.saved = weft_access_list_add_optional(&access, saved,
                                               WEFT_READ_WRITE);
    args.roots = weft_access_list_add_optional(&access, roots, WEFT_WRITE);
    access.work = weft_member_work(
        &args, roots ? WEFT_WORK_MLP : WEFT_WORK_MLP_INPUT, batch);
    weft_access_list_insert(&access, seq, &at, &weft_cl_mlp_part, &args,
                            sizeof args);
}

static int join_rows(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct weft_join_args *args = args_;
    const struct weft_shape *shape = args->shape;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    const float *norms = args->bias ? weft_take(&take) : NULL;
    const struct weft_batch *b = weft_take(&take);
    weft_take_parts(&take, args, part);
    float *residual = weft_take(&take);
    float *y = args->in_place ? residual : weft_take(&take);
    weft_take_end(&take);
    if (b->n_rows == 0)
        return 0;
    int64_t h = shape->hidden;
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        weft_k_join_rows_cuda(stream, shape->n_blocks, args->n_parts, part,
                              weft_all_blocks(shape), b->n_rows, h,
                              norms ? weft_k_o_bias(shape, norms) : NULL,
                              residual, y);
        return 0;
    }
    void *scratch = weft_exec_scratch(x, (size_t) (b->n_rows * h)
                                             * sizeof(float));
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_join_rows(shape->n_blocks, args->n_parts, part, b->n_rows, h,
                     norms ? weft_k_o_bias(shape, norms) : NULL, residual, y,
                     scratch);
    return 0;
}

WEFT_CODELET_2(join_rows, 0x90caf9, join_rows, join_rows)

void weft_insert_join_rows(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           const struct weft_params *fwd, int32_t layer,
                           bool attention, struct weft_tile *batch,
                           int n_parts, const struct weft_part_tile part[],
                           struct weft_tile *x, struct weft_tile *y)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_join_args args = weft_join_args_of(shape, n_parts, part);
    struct weft_where at = *where;
    struct weft_access_list access;
    at.layer = layer;
    args.in_place = x == y;
    args.bias = attention && shape->o_bias;
    weft_access_list_init(&access);
    if (args.bias)
        weft_access_list_add(&access, fwd->layer[layer].norms, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    weft_access_list_add(&access, x, x == y ? WEFT_READ_WRITE : WEFT_READ);
    if (x != y)
        weft_access_list_add(&access, y, WEFT_WRITE);
    weft_access_list_insert(&access, seq, &at, &weft_cl_join_rows, &args,
                            sizeof args);
}

/* The roots of the union of the parts, at a GPU. */
static void join_roots_gpu(struct CUstream_st *stream,
                           const struct weft_join_args *args,
                           struct weft_range all,
                           const struct weft_k_part part[], int64_t n_rows,
                           float *out)
{
    struct weft_range root[WEFT_MAX_ROOTS];
    int32_t n_blocks = args->shape->n_blocks;
    int32_t n_roots = weft_k_roots(n_blocks, all, root);
    for (int32_t i = 0; i < n_roots; i++)
        weft_k_join_rows_cuda(stream, n_blocks, args->n_parts, part, root[i],
                              n_rows, args->n, NULL, NULL,
                              out + i * n_rows * args->n);
}

static int join_parts(const void *args_, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const struct weft_join_args *args = args_;
    const struct weft_shape *shape = args->shape;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    const struct weft_batch *b = weft_take(&take);
    weft_take_parts(&take, args, part);
    float *out = weft_take(&take);
    weft_take_end(&take);
    int64_t n_rows = args->targets ? b->n_targets : b->n_rows;
    int64_t n = n_rows * args->n;
    struct CUstream_st *stream = weft_exec_stream(x);
    struct weft_range all = {part[0].range.first, 0};
    for (int32_t i = 0; i < args->n_parts; i++)
        all.n += part[i].range.n;
    for (int32_t set = 0; set < args->n_sets; set++) {
        if (WEFT_ON_GPU(stream))
            join_roots_gpu(stream, args, all, part, n_rows, out);
        else
            weft_k_join(shape->n_blocks, args->n_parts, part, n, out);
        for (int32_t i = 0; i < args->n_parts; i++)
            part[i].roots += weft_part_n_roots(shape, part[i].range) * n;
        out += weft_part_n_roots(shape, all) * n;
    }
    return 0;
}

WEFT_CODELET_2(join_parts, 0xbbdefb, join_parts, join_parts)

void weft_insert_join_parts(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            struct weft_tile *batch, bool targets, int64_t n,
                            int n_sets, int n_parts,
                            const struct weft_part_tile part[],
                            struct weft_tile *out)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_join_args args = weft_join_args_of(shape, n_parts, part);
    struct weft_access_list access;
    args.targets = targets;
    args.n = n;
    args.n_sets = n_sets;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    weft_access_list_add(&access, out, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_join_parts, &args,
                            sizeof args);
}
