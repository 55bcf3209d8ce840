/* SPDX-License-Identifier: Apache-2.0 */
/* Members' parts of the head become log-probs, or the loss. */
#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/member.h"

static void take_head_parts(struct weft_take *take,
                            const struct weft_join_args *args,
                            struct weft_k_head_parts out[])
{
    for (int i = 0; i < args->n_parts; i++)
        out[i] = (struct weft_k_head_parts){args->range[i], weft_take(take)};
}

static int logprob_merge(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct weft_join_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head_parts part[WEFT_MAX_BLOCKS];
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    size_t bytes = (size_t) targets.n * sizeof(float);
    struct CUstream_st *stream = weft_exec_stream(x);
    float *logp;
    take_head_parts(&take, args, part);
    if (WEFT_ON_GPU(stream)) {
        logp = weft_exec_scratch_gpu(x, bytes);
        if (!logp)
            return weft_gpu_failed(x);
        weft_k_head_merge_cuda(stream, args->shape, &targets, args->n_parts,
                               part, logp, NULL, NULL);
    } else {
        logp = weft_exec_scratch(x, bytes);
        if (!logp)
            return WEFT_ENOMEM;
        weft_k_head_merge(args->shape, &targets, args->n_parts, part, logp,
                          NULL, NULL);
    }
    weft_deal_targets(b, logp, &take, x);
    weft_take_end(&take);
    return 0;
}

WEFT_CODELET_2(logprob_merge, 0xffe082, logprob_merge, logprob_merge)

void weft_insert_logprob_merge(struct weft_seq *seq,
                               const struct weft_where *where,
                               const struct weft_shape *shape,
                               struct weft_tile *batch, int n_parts,
                               const struct weft_part_tile part[], int32_t n,
                               struct weft_tile *const out[])
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_join_args args = weft_join_args_of(shape, n_parts, part);
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, out[i], WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_logprob_merge,
                            &args, sizeof args);
}

struct merge_args {
    struct weft_loss_task loss;
    struct weft_join_args join;
};

static int loss_merge(const void *args_, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const struct merge_args *args = args_;
    const struct weft_shape *shape = args->join.shape;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head_parts part[WEFT_MAX_BLOCKS];
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    take_head_parts(&take, &args->join, part);
    struct weft_loss_columns c = weft_loss_columns_of(weft_take(&take),
                                                      targets.n);
    double *stats = args->loss.stats >= 0 ? weft_take(&take) : NULL;
    struct weft_loss_call call = weft_loss_call_take(&take, &args->loss);
    weft_take_end(&take);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        if (!weft_loss_copy(&call, b, 0, x))
            return weft_gpu_failed(x);
        weft_loss_targets(&call, b, &targets);
        weft_k_head_merge_cuda(stream, shape, &targets, args->join.n_parts,
                               part, c.logp, c.entropy, c.lse);
        return weft_language_loss(&call, b, &c, stats, x);
    }
    size_t width = (size_t) weft_loss_n_stats(args->loss.args.loss);
    if (!stats)
        stats = weft_exec_scratch(x, (size_t) b->n_runs * width
                                         * sizeof(double));
    if (!stats)
        return WEFT_ENOMEM;
    weft_k_head_merge(shape, &targets, args->join.n_parts, part, c.logp,
                      c.entropy, c.lse);
    return weft_language_loss(&call, b, &c, stats, x);
}

WEFT_CODELET_2(loss_merge, 0xe57373, loss_merge, loss_merge)

void weft_insert_loss_merge(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            const struct weft_loss_args *loss,
                            struct weft_tile *batch, int n_parts,
                            const struct weft_part_tile part[],
                            struct weft_tile *dloss, struct weft_tile *stats)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct merge_args args = {
        .loss = {.batch = 0, .stats = -1},
        .join = weft_join_args_of(shape, n_parts, part)};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    weft_access_list_add(&access, dloss, WEFT_WRITE);
    if (weft_access_list_add_optional(&access, stats, WEFT_WRITE))
        args.loss.stats = access.n - 1;
    weft_loss_task_add(&args.loss, &access, loss);
    weft_access_list_insert(&access, seq, where, &weft_cl_loss_merge, &args,
                            sizeof args);
}
