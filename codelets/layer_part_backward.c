/* SPDX-License-Identifier: Apache-2.0 */
/* A member's parts of a decoder layer backwards, and their joins. */
#include "codelets/gpu.h"
#include "codelets/member.h"
#include "rt/codelet.h"

/* Scratch of a member's backward task; NULL: out of memory. */
static void *member_scratch(struct weft_exec *x,
                            const struct weft_member_args *args,
                            const struct weft_k_batch *batch)
{
    return weft_exec_scratch(x, weft_k_part_backward_scratch_bytes(
                                    args->shape, args->range, batch));
}

/* The same at a GPU; NULL: an error is written. */
static void *member_scratch_gpu(struct weft_exec *x,
                                const struct weft_member_args *args,
                                const struct weft_k_batch *batch)
{
    return weft_exec_scratch_gpu(x, weft_k_part_backward_scratch_bytes_cuda(
                                        args->shape, args->range, batch));
}

/* What all of these tasks access first. */
static void accesses_begin(struct weft_access_list *access,
                           struct weft_range range,
                           const struct weft_params *fwd,
                           const struct weft_params *bwd, int32_t layer,
                           struct weft_tile *batch)
{
    weft_access_list_init(access);
    weft_access_list_add_member(access, range, &fwd->layer[layer],
                                &bwd->layer[layer]);
    weft_access_list_add(access, batch, WEFT_READ);
}

static int mlp_backward_part(const void *args_, void *const buf[], int n_buf,
                             struct weft_exec *x)
{
    const struct weft_member_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer weights = {0};
    void *grad[WEFT_MAX_BLOCKS] = {NULL};
    weft_take_member(&take, args->range, true, &weights);
    struct weft_k_batch view = weft_batch_view(weft_take(&take));
    const float *x_mid = weft_take(&take);
    const void *saved = weft_take(&take);
    const float *dx = weft_take(&take);
    weft_take_range(&take, args->range, grad);
    float *roots = weft_take(&take);
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = member_scratch_gpu(x, args, &view);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_mlp_backward_cuda(stream, args->shape, args->range, &weights,
                                 &view, x_mid, saved, dx,
                                 (float *const *) grad, roots, scratch);
        return weft_gpu_end(x);
    }
    void *scratch = member_scratch(x, args, &view);
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_mlp_backward(args->shape, args->range, &weights, &view, x_mid,
                        saved, dx, (float *const *) grad, roots, scratch);
    return 0;
}

WEFT_CODELET_2(mlp_backward_part, 0x1565c0, mlp_backward_part,
               mlp_backward_part)

void weft_insert_mlp_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x_mid,
    struct weft_tile *saved, struct weft_tile *dx,
    const struct weft_params *grad, struct weft_tile *roots)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_where at = *where;
    struct weft_access_list access;
    at.layer = layer;
    accesses_begin(&access, range, fwd, bwd, layer, batch);
    weft_access_list_add(&access, x_mid, WEFT_READ);
    weft_access_list_add(&access, saved, WEFT_READ);
    weft_access_list_add(&access, dx, WEFT_READ);
    weft_access_list_add_range(&access, range, grad->layer[layer].block,
                               WEFT_READ_WRITE);
    weft_access_list_add(&access, roots, WEFT_WRITE);
    access.work = weft_member_work(&args, WEFT_WORK_MLP_BACKWARD, batch);
    weft_access_list_insert(&access, seq, &at, &weft_cl_mlp_backward_part,
                            &args, sizeof args);
}

static int heads_backward_part(const void *args_, void *const buf[],
                               int n_buf, struct weft_exec *x)
{
    const struct weft_member_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer weights = {0};
    void *grad[WEFT_MAX_BLOCKS] = {NULL};
    weft_take_member(&take, args->range, true, &weights);
    struct weft_k_batch view = weft_batch_view(weft_take(&take));
    const void *saved = weft_take(&take);
    const float *dx = weft_take(&take);
    weft_take_range(&take, args->range, grad);
    float *dqkv = weft_take(&take);
    float *shared = args->shared ? weft_take(&take) : NULL;
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = member_scratch_gpu(x, args, &view);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_heads_backward_cuda(stream, args->shape, args->range, &weights,
                                   &view, saved, dx, (float *const *) grad,
                                   dqkv, shared, scratch);
        return weft_gpu_end(x);
    }
    void *scratch = member_scratch(x, args, &view);
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_heads_backward(args->shape, args->range, &weights, &view, saved,
                          dx, (float *const *) grad, dqkv, shared, scratch);
    return 0;
}

WEFT_CODELET_2(heads_backward_part, 0x0d47a1, heads_backward_part,
               heads_backward_part)

void weft_insert_heads_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *saved,
    struct weft_tile *dx, const struct weft_params *grad,
    struct weft_tile *dqkv, struct weft_tile *shared)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_where at = *where;
    struct weft_access_list access;
    at.layer = layer;
    accesses_begin(&access, range, fwd, bwd, layer, batch);
    weft_access_list_add(&access, saved, WEFT_READ);
    weft_access_list_add(&access, dx, WEFT_READ);
    weft_access_list_add_range(&access, range, grad->layer[layer].block,
                               WEFT_READ_WRITE);
    weft_access_list_add(&access, dqkv, WEFT_WRITE);
    args.shared = weft_access_list_add_optional(&access, shared, WEFT_WRITE);
    access.work = weft_member_work(&args, WEFT_WORK_HEADS_BACKWARD, batch);
    weft_access_list_insert(&access, seq, &at, &weft_cl_heads_backward_part,
                            &args, sizeof args);
}

/* Followed by the ranges of all members, and which of them share heads. */
struct qkv_args {
    struct weft_member_args member;
    int32_t n_members;
    struct weft_range range[WEFT_MAX_BLOCKS];
    bool shares[WEFT_MAX_BLOCKS];
};

static int qkv_backward_part(const void *args_, void *const buf[], int n_buf,
                             struct weft_exec *x)
{
    const struct qkv_args *args = args_;
    const struct weft_member_args *m = &args->member;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer weights = {0};
    struct weft_k_shared shared[WEFT_MAX_BLOCKS];
    void *grad[WEFT_MAX_BLOCKS] = {NULL};
    weft_take_member(&take, m->range, true, &weights);
    struct weft_k_batch view = weft_batch_view(weft_take(&take));
    const float *in = weft_take(&take);
    const void *saved = weft_take(&take);
    for (int32_t i = 0; i < args->n_members; i++)
        shared[i] = (struct weft_k_shared){
            args->range[i], args->shares[i] ? weft_take(&take) : NULL};
    float *dqkv = weft_take(&take);
    weft_take_range(&take, m->range, grad);
    float *roots = weft_take(&take);
    float *head_norms = m->head_norms ? weft_take(&take) : NULL;
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = member_scratch_gpu(x, m, &view);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_qkv_backward_cuda(stream, m->shape, m->range, &weights, &view,
                                 in, saved, args->n_members, shared, dqkv,
                                 (float *const *) grad, roots, head_norms,
                                 scratch);
        return weft_gpu_end(x);
    }
    void *scratch = member_scratch(x, m, &view);
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_qkv_backward(m->shape, m->range, &weights, &view, in, saved,
                        args->n_members, shared, dqkv, (float *const *) grad,
                        roots, head_norms, scratch);
    return 0;
}

WEFT_CODELET_2(qkv_backward_part, 0x283593, qkv_backward_part,
               qkv_backward_part)

void weft_insert_qkv_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x,
    struct weft_tile *saved, int n_members,
    const struct weft_part_tile shared[], struct weft_tile *dqkv,
    const struct weft_params *grad, struct weft_tile *roots,
    struct weft_tile *head_norms)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct qkv_args args = {.member = {.shape = shape, .range = range},
                            .n_members = n_members};
    struct weft_where at = *where;
    struct weft_access_list access;
    at.layer = layer;
    accesses_begin(&access, range, fwd, bwd, layer, batch);
    weft_access_list_add(&access, x, WEFT_READ);
    weft_access_list_add(&access, saved, WEFT_READ);
    for (int i = 0; i < n_members; i++) {
        args.range[i] = shared[i].range;
        args.shares[i] = weft_access_list_add_optional(
            &access, shared[i].tile, WEFT_READ);
    }
    weft_access_list_add(&access, dqkv, WEFT_READ_WRITE);
    weft_access_list_add_range(&access, range, grad->layer[layer].block,
                               WEFT_READ_WRITE);
    weft_access_list_add(&access, roots, WEFT_WRITE);
    args.member.head_norms = weft_access_list_add_optional(
        &access, head_norms, WEFT_WRITE);
    access.work = weft_member_work(&args.member, WEFT_WORK_QKV_BACKWARD,
                                   batch);
    weft_access_list_insert(&access, seq, &at, &weft_cl_qkv_backward_part,
                            &args, sizeof args);
}

/* ---- Joins and norms --------------------------------------------------- */

static int norm_backward(const struct weft_join_args *args, bool attention,
                         struct weft_take *take, struct weft_exec *x)
{
    const struct weft_shape *shape = args->shape;
    struct weft_k_part part[WEFT_MAX_BLOCKS], heads[2 * WEFT_MAX_BLOCKS];
    const float *norms = weft_take(take);
    const struct weft_batch *b = weft_take(take);
    const float *in = weft_take(take);
    weft_take_parts(take, args, part);
    if (args->head_norms)
        weft_take_parts(take, args, heads);
    for (int32_t i = 0; i < args->n_parts && args->head_norms; i++)
        heads[args->n_parts + i] = (struct weft_k_part){
            args->range[i], heads[i].roots
                                + weft_part_n_roots(shape, args->range[i])
                                      * b->n_rows * shape->head_dim};
    float *dx = weft_take(take);
    float *grad = args->grad ? weft_take(take) : NULL;
    weft_take_end(take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_exec_scratch_gpu(
            x, weft_k_norm_join_scratch_bytes_cuda(shape, b->n_rows));
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_norm_backward_cuda(
            stream, shape, attention, norms, b->n_rows, in, args->n_parts,
            part, args->head_norms ? heads : NULL, dx, grad, scratch);
        return 0;
    }
    void *scratch = weft_exec_scratch(
        x, weft_k_norm_join_scratch_bytes(shape, b->n_rows));
    if (!scratch)
        return WEFT_ENOMEM;
    if (attention)
        weft_k_attention_norm_backward(
            shape, norms, b->n_rows, in, args->n_parts, part,
            args->head_norms ? heads : NULL, dx, grad, scratch);
    else
        weft_k_mlp_norm_backward(shape, norms, b->n_rows, in, args->n_parts,
                                 part, dx, grad, scratch);
    return 0;
}

static int mlp_norm_backward(const void *args, void *const buf[], int n_buf,
                             struct weft_exec *x)
{
    return norm_backward(args, false, &(struct weft_take){buf, n_buf, 0}, x);
}

WEFT_CODELET_2(mlp_norm_backward, 0x7986cb, mlp_norm_backward,
               mlp_norm_backward)

static int attention_norm_backward(const void *args, void *const buf[],
                                   int n_buf, struct weft_exec *x)
{
    return norm_backward(args, true, &(struct weft_take){buf, n_buf, 0}, x);
}

WEFT_CODELET_2(attention_norm_backward, 0x9fa8da, attention_norm_backward,
               attention_norm_backward)

static void insert_norm(struct weft_seq *seq, const struct weft_where *where,
                        const struct weft_codelet *codelet,
                        const struct weft_shape *shape,
                        const struct weft_params *fwd, int32_t layer,
                        struct weft_tile *batch, struct weft_tile *x,
                        int n_parts, const struct weft_part_tile part[],
                        const struct weft_part_tile head_norms[],
                        struct weft_tile *dx, const struct weft_params *grad)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_join_args args = weft_join_args_of(shape, n_parts, part);
    struct weft_where at = *where;
    struct weft_access_list access;
    at.layer = layer;
    args.grad = grad != NULL;
    args.head_norms = head_norms != NULL;
    weft_access_list_init(&access);
    weft_access_list_add(&access, fwd->layer[layer].norms, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    if (head_norms)
        weft_access_list_add_parts(&access, n_parts, head_norms);
    weft_access_list_add(&access, dx, WEFT_READ_WRITE);
    if (grad)
        weft_access_list_add(&access, grad->layer[layer].norms,
                             WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, &at, codelet, &args, sizeof args);
}

void weft_insert_mlp_norm_backward(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_params *fwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x_mid,
    int n_parts, const struct weft_part_tile part[], struct weft_tile *dx,
    const struct weft_params *grad)
{
    insert_norm(seq, where, &weft_cl_mlp_norm_backward, shape, fwd, layer,
                batch, x_mid, n_parts, part, NULL, dx, grad);
}

void weft_insert_attention_norm_backward(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_params *fwd,
    int32_t layer, struct weft_tile *batch, struct weft_tile *x, int n_parts,
    const struct weft_part_tile part[],
    const struct weft_part_tile head_norms[], struct weft_tile *dx,
    const struct weft_params *grad)
{
    insert_norm(seq, where, &weft_cl_attention_norm_backward, shape, fwd,
                layer, batch, x, n_parts, part, head_norms, dx, grad);
}

static int share_kv(const void *args_, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct weft_member_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    void *grad[WEFT_MAX_BLOCKS] = {NULL};
    weft_take_range(&take, args->range, grad);
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream))
        weft_k_share_range_cuda(stream, args->shape, args->range,
                                (float *const *) grad);
    else
        weft_k_share_range(args->shape, args->range, (float *const *) grad);
    return 0;
}

WEFT_CODELET_2(share_kv, 0x80deea, share_kv, share_kv)

void weft_insert_share_kv(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          struct weft_range range,
                          const struct weft_params *grad, int32_t layer)
{
    if (!weft_k_shares_in_range(shape, range)
        || !weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_where at = *where;
    struct weft_access_list access;
    at.layer = layer;
    weft_access_list_init(&access);
    weft_access_list_add_range(&access, range, grad->layer[layer].block,
                               WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, &at, &weft_cl_share_kv, &args,
                            sizeof args);
}
