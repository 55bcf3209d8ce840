/* SPDX-License-Identifier: Apache-2.0 */
/* One decoder layer of a micro-batch, forward and backward. */
#include "codelets/gen.h"
#include "codelets/gpu.h"
#include "codelets/work.h"
#include "kern/parts.h"

struct layer_args {
    const struct weft_shape *shape;
    int32_t layer;     /* index in the KV arena */
    size_t page_bytes; /* 0: no cache */
    bool in_place, saved;
};

static struct weft_work work_of(const struct weft_shape *shape, int parts,
                                const struct weft_tile *batch)
{
    struct weft_work_rows rows = weft_tile_rows(batch);
    return weft_work_layer(shape, (struct weft_range){0, shape->n_blocks},
                           parts, &rows);
}

/* Takes the published tiles of a layer. */
static void take_layer(struct weft_take *take, int n_blocks,
                       struct weft_k_layer *out)
{
    for (int b = 0; b < n_blocks; b++)
        out->fwd[b] = weft_take(take);
    out->norms = weft_take(take);
}

static int layer_forward(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct layer_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer weights = {0};
    take_layer(&take, args->shape->n_blocks, &weights);
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_batch view = weft_batch_view(b);
    float *in = weft_take(&take);
    struct weft_k_kv kv = {.page_bytes = args->page_bytes};
    if (args->page_bytes)
        kv.arena = weft_take(&take);
    float *out = args->in_place ? in : weft_take(&take);
    void *saved = args->saved ? weft_take(&take) : NULL;
    weft_take_end(&take);
    if (view.n_rows == 0)
        return 0;
    struct weft_range all = weft_all_blocks(args->shape);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (args->page_bytes)
        weft_gen_open_cache(stream, b, &all, args->shape, args->layer, &kv);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_gpu_layer_scratch(
            x, b,
            weft_k_part_forward_scratch_bytes_cuda(args->shape, all, &view),
            args->page_bytes ? &kv : NULL);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_layer_forward_cuda(stream, args->shape, &weights, args->layer,
                                  &view, args->page_bytes ? &kv : NULL, in,
                                  out, saved, scratch);
        return weft_gpu_end(x);
    }
    void *scratch = weft_exec_scratch(
        x, weft_k_layer_forward_scratch_bytes(args->shape, &view));
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_layer_forward(args->shape, &weights, args->layer, &view,
                         args->page_bytes ? &kv : NULL, in, out, saved,
                         scratch);
    return 0;
}

WEFT_CODELET_2(layer_forward, 0x42a5f5, layer_forward, layer_forward)

void weft_insert_layer_forward(struct weft_seq *seq,
                               const struct weft_where *where,
                               const struct weft_shape *shape,
                               const struct weft_params *fwd, int32_t layer,
                               struct weft_tile *batch, struct weft_tile *x,
                               const struct weft_part_kv *kv,
                               struct weft_tile *y, struct weft_tile *saved)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct layer_args args = {.shape = shape, .in_place = x == y};
    struct weft_where at = *where;
    at.layer = layer;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_layer(&access, &fwd->layer[layer], WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, x == y ? WEFT_READ_WRITE : WEFT_READ);
    if (kv) {
        args.layer = kv->layer;
        args.page_bytes = weft_k_kv_page_bytes(shape, kv->n_layers);
        weft_access_list_add(&access, kv->arena, WEFT_READ_WRITE);
    }
    if (x != y)
        weft_access_list_add(&access, y, WEFT_WRITE);
    args.saved = weft_access_list_add_optional(&access, saved, WEFT_WRITE);
    access.work = work_of(shape, WEFT_WORK_ATTENTION | WEFT_WORK_MLP, batch);
    weft_access_list_insert(&access, seq, &at, &weft_cl_layer_forward, &args,
                            sizeof args);
}

static int layer_backward(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    const struct layer_args *args = args_;
    const struct weft_shape *shape = args->shape;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer weights = {0};
    take_layer(&take, shape->n_blocks, &weights);
    for (int b = 0; b < shape->n_blocks; b++)
        weights.bwd[b] = weft_take(&take);
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_batch view = weft_batch_view(b);
    const float *in = weft_take(&take);
    const void *saved = args->saved ? weft_take(&take) : NULL;
    float *dx = weft_take(&take);
    void *grad[WEFT_MAX_BLOCKS];
    weft_take_blocks(&take, shape->n_blocks, grad);
    float *grad_norms = weft_take(&take);
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_exec_scratch_gpu(
            x,
            weft_k_layer_backward_scratch_bytes_cuda(shape, &view, !saved));
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_layer_backward_cuda(stream, shape, &weights, &view, in, saved,
                                   dx, (float *const *) grad, grad_norms,
                                   scratch);
        return weft_gpu_end(x);
    }
    void *scratch = weft_exec_scratch(
        x, weft_k_layer_backward_scratch_bytes(shape, &view, !saved));
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_layer_backward(shape, &weights, &view, in, saved, dx,
                          (float *const *) grad, grad_norms, scratch);
    return 0;
}

WEFT_CODELET_2(layer_backward, 0x1565c0, layer_backward, layer_backward)

void weft_insert_layer_backward(struct weft_seq *seq,
                                const struct weft_where *where,
                                const struct weft_shape *shape,
                                const struct weft_params *fwd,
                                const struct weft_params *bwd, int32_t layer,
                                struct weft_tile *batch, struct weft_tile *x,
                                struct weft_tile *saved, struct weft_tile *dx,
                                const struct weft_params *grad)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct layer_args args = {.shape = shape};
    struct weft_where at = *where;
    at.layer = layer;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_layer(&access, &fwd->layer[layer], WEFT_READ);
    weft_access_list_add_blocks(&access, bwd->layer[layer].block, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    args.saved = weft_access_list_add_optional(&access, saved, WEFT_READ);
    weft_access_list_add(&access, dx, WEFT_READ_WRITE);
    weft_access_list_add_layer(&access, &grad->layer[layer], WEFT_READ_WRITE);
    access.work = work_of(
        shape,
        WEFT_WORK_MLP_BACKWARD | WEFT_WORK_HEADS_BACKWARD
            | WEFT_WORK_QKV_BACKWARD
            | (saved ? 0 : WEFT_WORK_ATTENTION | WEFT_WORK_MLP_INPUT),
        batch);
    weft_access_list_insert(&access, seq, &at, &weft_cl_layer_backward, &args,
                            sizeof args);
}
