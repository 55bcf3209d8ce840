/* SPDX-License-Identifier: Apache-2.0 */
/* A member's part of the head, forwards and backwards. */
#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/member.h"

struct head_args {
    struct weft_member_args member;
    float inv_temperature;
    bool entropy, keeps; /* logits */
};

/* Adds the range's published blocks and FINAL and, unless bwd is NULL, the
 * transposed blocks. */
static void add_head(struct weft_access_list *access, struct weft_range range,
                     const struct weft_params *fwd,
                     const struct weft_params *bwd)
{
    weft_access_list_add_member(access, range, &fwd->head,
                                bwd ? &bwd->head : NULL);
}

static struct weft_k_head take_head(struct weft_take *take,
                                    struct weft_range range, bool backward)
{
    struct weft_k_layer tiles = {0};
    struct weft_k_head head = {0};
    weft_take_member(take, range, backward, &tiles);
    memcpy(head.fwd, tiles.fwd, sizeof head.fwd);
    memcpy(head.bwd, tiles.bwd, sizeof head.bwd);
    head.final = tiles.norms;
    return head;
}

static int head_part(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct head_args *args = args_;
    const struct weft_member_args *m = &args->member;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head head = take_head(&take, m->range, false);
    const struct weft_batch *b = weft_take(&take);
    const float *in = weft_take(&take);
    struct weft_k_targets targets = weft_head_targets(
        b, m->shape, m->range, args->keeps ? weft_take(&take) : NULL);
    void *out = weft_take(&take);
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_gpu_head_scratch(
            x, b, weft_k_head_scratch_bytes_cuda(m->shape, targets.n, false),
            &targets);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_head_part_cuda(stream, m->shape, m->range, &head, in, &targets,
                              args->inv_temperature, out, scratch);
        return weft_gpu_end(x);
    }
    void *scratch = weft_exec_scratch(
        x, weft_k_head_scratch_bytes(m->shape, targets.n));
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_head_part(m->shape, m->range, &head, in, &targets,
                     args->inv_temperature, out, scratch);
    return 0;
}

WEFT_CODELET_2(head_part, 0xffca28, head_part, head_part)

void weft_insert_head_part(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           struct weft_range range,
                           const struct weft_params *fwd,
                           struct weft_tile *batch, struct weft_tile *x,
                           float inv_temperature, struct weft_tile *logits,
                           struct weft_tile *out)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct head_args args = {.member = {.shape = shape, .range = range},
                             .inv_temperature = inv_temperature};
    struct weft_access_list access;
    weft_access_list_init(&access);
    add_head(&access, range, fwd, NULL);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    args.keeps = weft_access_list_add_optional(&access, logits, WEFT_WRITE);
    weft_access_list_add(&access, out, WEFT_WRITE);
    struct weft_work_rows rows = weft_tile_rows(batch);
    access.work = weft_work_head(shape, range, 1, &rows);
    weft_access_list_insert(&access, seq, where, &weft_cl_head_part, &args,
                            sizeof args);
}

/* ---- Backward ---------------------------------------------------------- */

static int head_backward_part(const void *args_, void *const buf[], int n_buf,
                              struct weft_exec *x)
{
    const struct head_args *args = args_;
    const struct weft_member_args *m = &args->member;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head head = take_head(&take, m->range, true);
    const struct weft_batch *b = weft_take(&take);
    const float *in = weft_take(&take);
    struct weft_k_targets targets = weft_head_targets(
        b, m->shape, m->range, args->keeps ? weft_take(&take) : NULL);
    struct weft_loss_columns c = weft_loss_columns_of(weft_take(&take),
                                                      targets.n);
    void *grad[WEFT_MAX_BLOCKS] = {NULL};
    weft_take_range(&take, m->range, grad);
    float *roots = weft_take(&take);
    weft_take_end(&take);
    const int32_t *run_rows = weft_batch_at(b, b->run_targets);
    float *dentropy = args->entropy ? c.dentropy : NULL;
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_gpu_head_scratch(
            x, b, weft_k_head_scratch_bytes_cuda(m->shape, targets.n, true),
            &targets);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_head_backward_part_cuda(
            stream, m->shape, m->range, &head, in, &targets, b->n_runs,
            run_rows, args->inv_temperature, c.lse, c.entropy, c.dlogp,
            dentropy, (float *const *) grad, roots, scratch);
        return weft_gpu_end(x);
    }
    void *scratch = weft_exec_scratch(x, weft_k_head_backward_scratch_bytes(
                                             m->shape, targets.n, b->n_runs));
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_head_backward_part(m->shape, m->range, &head, in, &targets,
                              b->n_runs, run_rows, args->inv_temperature,
                              c.lse, c.entropy, c.dlogp, dentropy,
                              (float *const *) grad, roots, scratch);
    return 0;
}

WEFT_CODELET_2(head_backward_part, 0xef5350, head_backward_part,
               head_backward_part)

void weft_insert_head_backward_part(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_params *fwd, const struct weft_params *bwd,
    const struct weft_loss_args *loss, struct weft_tile *batch,
    struct weft_tile *x, struct weft_tile *logits, struct weft_tile *dloss,
    const struct weft_params *grad, struct weft_tile *roots)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct head_args args = {.member = {.shape = shape, .range = range},
                             .inv_temperature = loss->inv_temperature,
                             .entropy = weft_loss_has_entropy(loss)};
    struct weft_access_list access;
    weft_access_list_init(&access);
    add_head(&access, range, fwd, bwd);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    args.keeps = weft_access_list_add_optional(&access, logits,
                                               WEFT_READ_WRITE);
    weft_access_list_add(&access, dloss, WEFT_READ);
    if (shape->lora_rank == 0) /* else the head is frozen */
        weft_access_list_add_range(&access, range, grad->head.block,
                                   WEFT_READ_WRITE);
    weft_access_list_add(&access, roots, WEFT_WRITE);
    /* by input, by weights */
    struct weft_work_rows rows = weft_tile_rows(batch);
    access.work = weft_work_head_backward(shape, range, 2, args.keeps, &rows);
    weft_access_list_insert(&access, seq, where, &weft_cl_head_backward_part,
                            &args, sizeof args);
}

static int head_norm_backward(const void *args_, void *const buf[], int n_buf,
                              struct weft_exec *x)
{
    const struct weft_join_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    const float *final = weft_take(&take);
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    const float *in = weft_take(&take);
    weft_take_parts(&take, args, part);
    float *dx = weft_take(&take);
    float *grad = args->grad ? weft_take(&take) : NULL;
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        void *scratch = weft_gpu_head_scratch(
            x, b, weft_k_head_norm_scratch_bytes_cuda(args->shape, targets.n),
            &targets);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_head_norm_backward_cuda(stream, args->shape, final, b->n_rows,
                                       in, &targets, args->n_parts, part, dx,
                                       grad, scratch);
        return 0;
    }
    void *scratch = weft_exec_scratch(
        x, (size_t) (targets.n * (int64_t) args->shape->hidden) * 4);
    if (!scratch)
        return WEFT_ENOMEM;
    weft_k_head_norm_backward(args->shape, final, b->n_rows, in, &targets,
                              args->n_parts, part, dx, grad, scratch);
    return 0;
}

WEFT_CODELET_2(head_norm_backward, 0xffab91, head_norm_backward,
               head_norm_backward)

void weft_insert_head_norm_backward(
    struct weft_seq *seq, const struct weft_where *where,
    const struct weft_shape *shape, const struct weft_params *fwd,
    struct weft_tile *batch, struct weft_tile *x, int n_parts,
    const struct weft_part_tile part[], struct weft_tile *dx,
    const struct weft_params *grad)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_join_args args = weft_join_args_of(shape, n_parts, part);
    struct weft_access_list access;
    struct weft_tile *norms = grad ? grad->head.norms : NULL;
    args.grad = norms != NULL;
    weft_access_list_init(&access);
    weft_access_list_add(&access, fwd->head.norms, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    weft_access_list_add(&access, dx, WEFT_WRITE);
    weft_access_list_add_optional(&access, norms, WEFT_READ_WRITE);
    struct weft_work_rows rows = weft_tile_rows(batch);
    if (shape->value_head) /* every place computes it, in all products */
        access.work = weft_work_value(shape, 3, &rows);
    weft_access_list_insert(&access, seq, where, &weft_cl_head_norm_backward,
                            &args, sizeof args);
}
