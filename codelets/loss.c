/* SPDX-License-Identifier: Apache-2.0 */
/* Head forward, loss and head backward of a training micro-batch. */
#include <math.h>
#include <string.h>

#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/work.h"

struct loss_task {
    const struct weft_shape *shape;
    bool keeps; /* logits */
    struct weft_loss_task loss;
};

int32_t weft_loss_n_stats(enum weft_loss loss)
{
    switch (loss) {
    case WEFT_LOSS_VALUE:
        return WEFT_N_VALUE_STATS;
    case WEFT_LOSS_PAIRS:
    case WEFT_LOSS_KTO:
    case WEFT_LOSS_BRADLEY_TERRY:
        return WEFT_N_PREFERENCE_STATS;
    default:
        return WEFT_N_POLICY_STATS;
    }
}

struct weft_loss_task weft_loss_task_add(struct weft_access_list *access,
                                         const struct weft_loss_args *args)
{
    struct weft_loss_task task = {.args = *args};
    task.gate = weft_access_list_add_optional(access, args->gate, WEFT_READ);
    task.kto_kl = weft_access_list_add_optional(access, args->kto_kl,
                                                WEFT_READ);
    return task;
}

struct weft_loss_call weft_loss_call_take(struct weft_take *take,
                                          const struct weft_loss_task *task)
{
    struct weft_loss_call call = {.args = &task->args, .gate = 1};
    if (task->gate)
        call.gate = *(const float *) weft_take(take);
    if (task->kto_kl)
        call.kto_kl = *(const double *) weft_take(take);
    return call;
}

/* Gets scratch for the columns and returns `rest_bytes` more behind them. */
static void *columns_get(struct weft_exec *x, int32_t n, size_t rest_bytes,
                         struct weft_loss_columns *out)
{
    size_t bytes = weft_loss_columns_bytes(n);
    char *p = weft_exec_scratch(x, bytes + rest_bytes);
    if (!p)
        return NULL;
    *out = weft_loss_columns_of(p, n);
    return p + bytes;
}

/* Per-token SFT loss w * -log p, with the statistics that apply. */
static void sft_loss(int32_t n, float w, const float *logp,
                     const float *entropy, float *dlogp, double *stat)
{
    for (int32_t i = 0; i < n; i++) {
        dlogp[i] = -w;
        stat[WEFT_STAT_LOSS] -= (double) w * (double) logp[i];
        stat[WEFT_STAT_PG_LOSS] -= (double) logp[i];
        stat[WEFT_STAT_ENTROPY] += (double) entropy[i];
    }
    stat[WEFT_STAT_TOKENS] += n;
}

static int check_exact(const double *stat, int32_t sample,
                       struct weft_exec *x)
{
    if (stat[WEFT_STAT_RATIO_MAX_DEV] == 0)
        return 0;
    return weft_err_set(
        weft_exec_err(x), WEFT_EINTERNAL,
        "rollout and training disagree: sample %d of the micro-batch has a "
        "ratio off 1 by %.3g before the first update (log-probs differ by "
        "%.3g); run 'weft info' and report this",
        sample, stat[WEFT_STAT_RATIO_MAX_DEV], stat[WEFT_STAT_LOGP_DIFF_MAX]);
}

/* Run i, whose first target is `at`. */
static int run_loss(const struct weft_loss_call *call,
                    const struct weft_batch *b,
                    const struct weft_loss_columns *c, int32_t i, int32_t at,
                    double *stats, struct weft_exec *x)
{
    const struct weft_loss_args *loss = call->args;
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    const float *weight = weft_batch_at(b, b->weight);
    const float *label = weft_batch_at(b, b->label);
    double *stat = stats + i * weft_loss_n_stats(loss->loss);
    int32_t n = run_targets[i];
    float w = weight[i] * call->gate;
    if (w == 0)
        return 0;
    if (loss->loss == WEFT_LOSS_SFT) {
        sft_loss(n, w, c->logp + at, c->entropy + at, c->dlogp + at, stat);
        return 0;
    }
    if (loss->loss == WEFT_LOSS_KTO) {
        struct weft_k_response r = weft_response_of(b, c, i, at, stats);
        weft_k_kto_loss(&loss->kto, w, label[i] > 0, call->kto_kl, &r);
        return 0;
    }
    weft_k_policy_loss(&loss->policy, n, w, c->logp + at,
                       (float *) weft_batch_at(b, b->old_logp) + at,
                       (float *) weft_batch_at(b, b->ref_logp) + at,
                       (float *) weft_batch_at(b, b->advantage) + at,
                       c->entropy + at, c->dlogp + at, c->dentropy + at,
                       stat);
    return loss->exact_first ? check_exact(stat, i, x) : 0;
}

int weft_language_loss(const struct weft_loss_call *call,
                       const struct weft_batch *b,
                       const struct weft_loss_columns *c, double *stats,
                       struct weft_exec *x)
{
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    size_t width = (size_t) weft_loss_n_stats(call->args->loss);
    int rc = 0;
    memset(stats, 0, (size_t) b->n_runs * width * sizeof *stats);
    memset(c->dlogp, 0, (size_t) b->n_targets * sizeof *c->dlogp);
    memset(c->dentropy, 0, (size_t) b->n_targets * sizeof *c->dentropy);
    if (call->args->loss == WEFT_LOSS_PAIRS)
        return weft_pair_losses(call, b, c, stats, x);
    for (int32_t i = 0, at = 0; i < b->n_runs && !rc; at += run_targets[i++])
        rc = run_loss(call, b, c, i, at, stats, x);
    return rc;
}

/* The columns in the memory of a GPU, with rest_bytes more behind them; NULL:
 * an error is written. */
static void *columns_get_gpu(struct weft_exec *x, int32_t n,
                             size_t rest_bytes, struct weft_loss_columns *out)
{
    size_t bytes = weft_loss_columns_bytes(n);
    char *p = weft_exec_scratch_gpu(x, bytes + rest_bytes);
    if (!p)
        return NULL;
    *out = weft_loss_columns_of(p, n);
    return p + bytes;
}

struct head_buffers {
    const struct weft_k_head *head;
    const struct weft_batch *batch;
    const float *in;
    float *dx;
    float *const *grad;
    float *grad_final;
    double *stats;
};

/* At a GPU, which waits while the loss of a few numbers per token is computed
 * here, by what CPUs use too. host: columns for it. */
static int language_loss_gpu(const struct head_buffers *h,
                             const struct weft_shape *shape,
                             const struct weft_loss_call *call,
                             const struct weft_loss_columns *host,
                             struct weft_exec *x)
{
    const struct weft_batch *b = h->batch;
    struct CUstream_st *stream = weft_exec_stream(x);
    struct weft_k_targets targets = weft_batch_targets(b);
    float scale = call->args->inv_temperature;
    size_t column = weft_loss_columns_bytes(targets.n) / 5;
    size_t forward = weft_k_head_scratch_bytes_cuda(shape, targets.n, false);
    size_t backward = weft_k_head_scratch_bytes_cuda(shape, targets.n, true);
    struct weft_loss_columns c;
    void *rest = columns_get_gpu(x, targets.n,
                                 forward > backward ? forward : backward, &c);
    if (!rest)
        return weft_gpu_failed(x);
    weft_k_head_logprob_cuda(stream, shape, h->head, h->in, &targets, scale,
                             c.logp, c.entropy, c.lse, rest);
    weft_k_fetch_cuda(stream, host->logp, c.logp, 3 * column);
    int rc = weft_gpu_end(x);
    if (!rc)
        rc = weft_language_loss(call, b, host, h->stats, x);
    if (rc)
        return rc;
    weft_k_send_cuda(stream, c.dlogp, host->dlogp, 2 * column);
    weft_k_head_backward_cuda(
        stream, shape, h->head, b->n_rows, h->in, &targets, b->n_runs,
        weft_batch_at(b, b->run_targets), scale, c.lse, c.entropy, c.dlogp,
        weft_loss_has_entropy(call->args) ? c.dentropy : NULL, h->dx, h->grad,
        h->grad_final, rest);
    return weft_gpu_end(x);
}

static int language_loss(const struct loss_task *t, struct weft_take *take,
                         struct weft_exec *x)
{
    const struct weft_shape *shape = t->shape;
    struct weft_k_head head;
    weft_head_take(take, shape, true, &head);
    const struct weft_batch *b = weft_take(take);
    const float *in = weft_take(take);
    float *logits = t->keeps ? weft_take(take) : NULL;
    float *dx = weft_take(take);
    void *grad[WEFT_MAX_BLOCKS];
    weft_take_blocks(take, shape->n_blocks, grad);
    float *grad_final = weft_take(take);
    double *stats = weft_take(take);
    struct weft_loss_call call = weft_loss_call_take(take, &t->loss);
    weft_take_end(take);
    struct weft_k_targets targets = weft_head_targets(
        b, shape, weft_all_blocks(shape), logits);
    size_t forward = weft_k_head_scratch_bytes(shape, targets.n);
    size_t backward = weft_k_head_backward_scratch_bytes(shape, targets.n,
                                                         b->n_runs);
    struct weft_loss_columns c;
    void *rest = columns_get(x, targets.n,
                             forward > backward ? forward : backward, &c);
    if (!rest)
        return WEFT_ENOMEM;
    if (WEFT_ON_GPU(weft_exec_stream(x)))
        return language_loss_gpu(&(struct head_buffers){&head, b, in, dx,
                                                        (float *const *) grad,
                                                        grad_final, stats},
                                 shape, &call, &c, x);
    weft_k_head_logprob(shape, &head, in, &targets,
                        call.args->inv_temperature, c.logp, c.entropy, c.lse,
                        rest);
    int rc = weft_language_loss(&call, b, &c, stats, x);
    if (rc)
        return rc;
    weft_k_head_backward(shape, &head, b->n_rows, in, &targets, b->n_runs,
                         weft_batch_at(b, b->run_targets),
                         call.args->inv_temperature, c.lse, c.entropy,
                         c.dlogp,
                         weft_loss_has_entropy(call.args) ? c.dentropy : NULL,
                         dx, (float *const *) grad, grad_final, rest);
    return 0;
}

static void value_losses(const struct weft_loss_call *call,
                         const struct weft_batch *b, const float *value,
                         float *dvalue, double *stats)
{
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    const float *weight = weft_batch_at(b, b->weight);
    for (int32_t i = 0, at = 0; i < b->n_runs; at += run_targets[i++]) {
        float w = weight[i] * call->gate;
        if (w != 0)
            weft_k_value_loss(
                call->args->value_clip, run_targets[i], w, value + at,
                (float *) weft_batch_at(b, b->old_value) + at,
                (float *) weft_batch_at(b, b->ret) + at, dvalue + at,
                stats + (size_t) i * WEFT_N_VALUE_STATS);
    }
}

/* Losses of a scalar head. */
static int scalar_loss(const struct loss_task *t, struct weft_take *take,
                       struct weft_exec *x)
{
    const float *final = weft_take(take);
    const struct weft_batch *b = weft_take(take);
    const float *in = weft_take(take);
    float *dx = weft_take(take);
    float *grad_final = weft_take(take);
    double *stats = weft_take(take);
    struct weft_loss_call call = weft_loss_call_take(take, &t->loss);
    weft_take_end(take);
    struct weft_k_targets targets = weft_batch_targets(b);
    size_t width = (size_t) weft_loss_n_stats(call.args->loss);
    struct weft_loss_columns c;
    void *rest = columns_get(x, targets.n,
                             weft_k_value_scratch_bytes(t->shape), &c);
    int rc = 0;
    if (!rest)
        return WEFT_ENOMEM;

    struct CUstream_st *stream = weft_exec_stream(x);
    struct weft_loss_columns gpu = {.logp = NULL};
    void *gpu_rest = NULL;
    if (WEFT_ON_GPU(stream)) {
        gpu_rest = columns_get_gpu(
            x, targets.n,
            weft_k_value_scratch_bytes_cuda(t->shape, targets.n), &gpu);
        if (!gpu_rest)
            return weft_gpu_failed(x);
        weft_k_value_cuda(stream, t->shape, final, in, targets.n, targets.row,
                          gpu.logp, gpu_rest);
        weft_k_fetch_cuda(stream, c.logp, gpu.logp,
                          (size_t) targets.n * sizeof *c.logp);
    } else {
        weft_k_value(t->shape, final, in, &targets, c.logp, rest);
    }
    memset(stats, 0, (size_t) b->n_runs * width * sizeof *stats);
    memset(c.dlogp, 0, (size_t) targets.n * sizeof *c.dlogp);
    if (call.args->loss == WEFT_LOSS_VALUE)
        value_losses(&call, b, c.logp, c.dlogp, stats);
    else
        rc = weft_score_losses(&call, b, c.logp, c.dlogp, stats, x);
    if (rc)
        return rc;
    if (WEFT_ON_GPU(stream)) {
        weft_k_send_cuda(stream, gpu.dlogp, c.dlogp,
                         (size_t) targets.n * sizeof *c.dlogp);
        weft_k_value_backward_cuda(stream, t->shape, final, b->n_rows, in,
                                   targets.n, targets.row, gpu.dlogp, dx,
                                   grad_final, gpu_rest);
        return 0;
    }
    weft_k_value_backward(t->shape, final, b->n_rows, in, &targets, c.dlogp,
                          dx, grad_final, rest);
    return 0;
}

static int loss_of_rows(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    const struct loss_task *t = args;
    struct weft_take take = {buf, n_buf, 0};
    return t->shape->scalar_head ? scalar_loss(t, &take, x)
                                 : language_loss(t, &take, x);
}

WEFT_CODELET_2(loss, 0xef5350, loss_of_rows, loss_of_rows)

void weft_insert_loss(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_shape *shape,
                      const struct weft_params *fwd,
                      const struct weft_params *bwd,
                      const struct weft_loss_args *args,
                      struct weft_tile *batch, struct weft_tile *x,
                      struct weft_tile *logits, struct weft_tile *dx,
                      const struct weft_params *grad, struct weft_tile *stats)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct loss_task task = {.shape = shape};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_layer(&access, &fwd->head, WEFT_READ);
    weft_access_list_add_blocks(&access, bwd->head.block, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    task.keeps = weft_access_list_add_optional(&access, logits, WEFT_WRITE);
    weft_access_list_add(&access, dx, WEFT_WRITE);
    weft_access_list_add_layer(&access, &grad->head, WEFT_READ_WRITE);
    weft_access_list_add(&access, stats, WEFT_WRITE);
    task.loss = weft_loss_task_add(&access, args);
    /* logits, by input, by weights */
    struct weft_work_rows rows = weft_tile_rows(batch);
    access.work = weft_work_head_backward(shape, weft_all_blocks(shape), 3,
                                          task.keeps, &rows);
    weft_access_list_insert(&access, seq, where, &weft_cl_loss, &task,
                            sizeof task);
}
