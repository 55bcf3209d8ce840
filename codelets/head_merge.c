/* SPDX-License-Identifier: Apache-2.0 */
/* Members' parts of the head become log-probs, or the loss. */
#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/member.h"

/* A GPU's parts come to the host, where they are merged. */
static int take_head_parts(struct weft_take *take,
                           const struct weft_join_args *args, int32_t n,
                           struct weft_k_head_parts out[],
                           struct weft_exec *x)
{
    for (int i = 0; i < args->n_parts; i++) {
        const void *part = weft_take(take);
        if (WEFT_ON_GPU(weft_exec_stream(x))) {
            size_t bytes = weft_k_head_part_bytes(args->range[i], n);
            void *host = weft_exec_scratch(x, bytes);
            if (!host)
                return WEFT_ENOMEM;
            weft_k_fetch_cuda(weft_exec_stream(x), host, part, bytes);
            part = host;
        }
        out[i] = (struct weft_k_head_parts){args->range[i], part};
    }
    return 0;
}

static int logprob_merge(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct weft_join_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head_parts part[WEFT_MAX_BLOCKS];
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    int rc = take_head_parts(&take, args, targets.n, part, x);
    float *logp = weft_exec_scratch(x, (size_t) targets.n * sizeof *logp);
    if (rc || !logp)
        return WEFT_ENOMEM;
    weft_k_head_merge(args->shape, &targets, args->n_parts, part, logp, NULL,
                      NULL);
    weft_deal_targets(b, logp, &take);
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
    struct weft_join_args join;
    struct weft_loss_task loss;
    bool stats;
};

static int loss_merge(const void *args_, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const struct merge_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head_parts part[WEFT_MAX_BLOCKS];
    const struct weft_batch *b = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    int rc = take_head_parts(&take, &args->join, targets.n, part, x);
    void *columns = weft_take(&take), *there = columns;
    size_t columns_bytes = weft_loss_columns_bytes(targets.n);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream))
        columns = weft_exec_scratch(x, columns_bytes);
    if (rc || !columns)
        return WEFT_ENOMEM;
    struct weft_loss_columns c = weft_loss_columns_of(columns, targets.n);
    size_t width = (size_t) weft_loss_n_stats(args->loss.args.loss);
    size_t stats_bytes = (size_t) b->n_runs * width * sizeof(double);
    double *stats = args->stats ? weft_take(&take)
                                : weft_exec_scratch(x, stats_bytes);
    struct weft_loss_call call = weft_loss_call_take(&take, &args->loss);
    weft_take_end(&take);
    if (!stats)
        return WEFT_ENOMEM;
    weft_k_head_merge(args->join.shape, &targets, args->join.n_parts, part,
                      c.logp, c.entropy, c.lse);
    rc = weft_language_loss(&call, b, &c, stats, x);
    if (!rc && WEFT_ON_GPU(stream))
        weft_k_send_cuda(stream, there, columns, columns_bytes);
    return rc;
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
        .join = weft_join_args_of(shape, n_parts, part)};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add_parts(&access, n_parts, part);
    weft_access_list_add(&access, dloss, WEFT_WRITE);
    args.stats = weft_access_list_add_optional(&access, stats, WEFT_WRITE);
    args.loss = weft_loss_task_add(&access, loss);
    weft_access_list_insert(&access, seq, where, &weft_cl_loss_merge, &args,
                            sizeof args);
}
