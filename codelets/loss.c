/* SPDX-License-Identifier: Apache-2.0 */
/* Head forward, loss and head backward of a training micro-batch. */
#include <string.h>

#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/work.h"

struct loss_task {
    struct weft_loss_task loss;
    const struct weft_shape *shape;
    bool keeps; /* logits */
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

void weft_loss_task_add(struct weft_loss_task *task,
                        struct weft_access_list *access,
                        const struct weft_loss_args *args)
{
    task->args = *args;
    task->gate = weft_access_list_add_optional(access, args->gate, WEFT_READ);
    task->kto_kl = weft_access_list_add_optional(access, args->kto_kl,
                                                 WEFT_READ);
}

struct weft_loss_call weft_loss_call_take(struct weft_take *take,
                                          const struct weft_loss_task *task)
{
    struct weft_loss_call call = {
        .task = task, .args = &task->args, .gate = 1};
    if (task->gate)
        call.gate = *(const float *) weft_take(take);
    if (task->kto_kl)
        call.kto_kl = *(const double *) weft_take(take);
    return call;
}

/* Gets scratch for the batch's columns, at a GPU's place behind the batch's
 * copy there, and returns rest_bytes more behind them. NULL: an error is
 * written. */
static void *columns_get(struct weft_exec *x, const struct weft_batch *b,
                         struct weft_loss_call *call, size_t rest_bytes,
                         struct weft_loss_columns *out)
{
    size_t bytes = weft_loss_columns_bytes(b->n_targets);
    char *p;
    if (WEFT_ON_GPU(weft_exec_stream(x)))
        p = weft_loss_copy(call, b, bytes + rest_bytes, x);
    else
        p = weft_exec_scratch(x, bytes + rest_bytes);
    if (!p)
        return NULL;
    *out = weft_loss_columns_of(p, b->n_targets);
    return p + bytes;
}

/* When the statistics have been written. */
static int check_exact(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    const struct weft_loss_task *task = args;
    const struct weft_batch *b = buf[task->batch];
    const double *stat = buf[task->stats];
    (void) n_buf;
    for (int32_t i = 0; i < b->n_runs; i++, stat += WEFT_N_POLICY_STATS)
        if (stat[WEFT_STAT_RATIO_MAX_DEV] != 0)
            return weft_err_set(
                weft_exec_err(x), WEFT_EINTERNAL,
                "rollout and training disagree: sample %d of the micro-batch "
                "has a ratio off 1 by %.3g before the first update "
                "(log-probs differ by %.3g); run 'weft info' and report this",
                i, stat[WEFT_STAT_RATIO_MAX_DEV],
                stat[WEFT_STAT_LOGP_DIFF_MAX]);
    return 0;
}

/* Run i, whose first target is `at`. */
static void run_loss(const struct weft_loss_call *call,
                     const struct weft_batch *b,
                     const struct weft_loss_columns *c, int32_t i, int32_t at,
                     double *stats)
{
    const struct weft_loss_args *loss = call->args;
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    const float *weight = weft_batch_at(b, b->weight);
    const float *label = weft_batch_at(b, b->label);
    double *stat = stats + i * weft_loss_n_stats(loss->loss);
    int32_t n = run_targets[i];
    float w = weight[i] * call->gate;
    if (w == 0)
        return;
    if (loss->loss == WEFT_LOSS_SFT) {
        weft_k_sft_loss(n, w, c->logp + at, c->entropy + at, c->dlogp + at,
                        stat);
    } else if (loss->loss == WEFT_LOSS_KTO) {
        struct weft_k_response r = weft_response_of(b, c, i, at, stats);
        weft_k_kto_loss(&loss->kto, w, label[i] > 0, call->kto_kl, &r);
    } else {
        weft_k_policy_loss(&loss->policy, n, w, c->logp + at,
                           (float *) weft_batch_at(b, b->old_logp) + at,
                           (float *) weft_batch_at(b, b->ref_logp) + at,
                           (float *) weft_batch_at(b, b->advantage) + at,
                           c->entropy + at, c->dlogp + at, c->dentropy + at,
                           stat);
    }
}

/* All runs, by one kernel. */
static void run_losses_gpu(const struct weft_loss_call *call,
                           const struct weft_batch *b,
                           const struct weft_loss_columns *c, double *stats,
                           struct CUstream_st *stream)
{
    const struct weft_loss_args *loss = call->args;
    struct weft_k_loss_runs runs = weft_loss_runs(call, b, stats);
    if (loss->loss == WEFT_LOSS_SFT)
        weft_k_sft_losses_cuda(stream, &runs, c->logp, c->entropy, c->dlogp);
    else if (loss->loss == WEFT_LOSS_KTO)
        weft_k_kto_losses_cuda(stream, &loss->kto, &runs,
                               weft_loss_at(call, b, b->label), call->kto_kl,
                               c->logp, weft_loss_at(call, b, b->ref_logp),
                               c->dlogp);
    else
        weft_k_policy_losses_cuda(stream, &loss->policy, &runs, c->logp,
                                  weft_loss_at(call, b, b->old_logp),
                                  weft_loss_at(call, b, b->ref_logp),
                                  weft_loss_at(call, b, b->advantage),
                                  c->entropy, c->dlogp, c->dentropy);
}

/* What is not written is 0. */
static void clear(const struct weft_loss_call *call,
                  const struct weft_batch *b, float *dlogp, double *stats)
{
    size_t width = (size_t) weft_loss_n_stats(call->args->loss);
    memset(stats, 0, (size_t) b->n_runs * width * sizeof *stats);
    memset(dlogp, 0, (size_t) b->n_targets * sizeof *dlogp);
}

int weft_language_loss(const struct weft_loss_call *call,
                       const struct weft_batch *b,
                       const struct weft_loss_columns *c, double *stats,
                       struct weft_exec *x)
{
    const struct weft_loss_args *loss = call->args;
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (!WEFT_ON_GPU(stream)) {
        clear(call, b, c->dlogp, stats);
        memset(c->dentropy, 0, (size_t) b->n_targets * sizeof *c->dentropy);
    }
    if (loss->loss == WEFT_LOSS_PAIRS)
        return weft_pair_losses(call, b, c, stats, x);
    if (loss->loss == WEFT_LOSS_POLICY && loss->exact_first
        && call->task->stats >= 0)
        weft_exec_at_end(x, check_exact);
    if (WEFT_ON_GPU(stream)) {
        run_losses_gpu(call, b, c, stats, stream);
        return 0;
    }
    for (int32_t i = 0, at = 0; i < b->n_runs; at += run_targets[i++])
        run_loss(call, b, c, i, at, stats);
    return 0;
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

static int language_loss_gpu(const struct head_buffers *h,
                             const struct weft_shape *shape,
                             struct weft_loss_call *call, struct weft_exec *x)
{
    const struct weft_batch *b = h->batch;
    struct CUstream_st *stream = weft_exec_stream(x);
    struct weft_k_targets targets = weft_batch_targets(b);
    float scale = call->args->inv_temperature;
    size_t forward = weft_k_head_scratch_bytes_cuda(shape, targets.n, false);
    size_t backward = weft_k_head_scratch_bytes_cuda(shape, targets.n, true);
    struct weft_loss_columns c;
    void *rest = columns_get(x, b, call,
                             forward > backward ? forward : backward, &c);
    if (!rest)
        return weft_gpu_failed(x);
    weft_loss_targets(call, b, &targets);
    weft_k_head_logprob_cuda(stream, shape, h->head, h->in, &targets, scale,
                             c.logp, c.entropy, c.lse, rest);
    int rc = weft_language_loss(call, b, &c, h->stats, x);
    if (rc)
        return rc;
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
    if (WEFT_ON_GPU(weft_exec_stream(x)))
        return language_loss_gpu(&(struct head_buffers){&head, b, in, dx,
                                                        (float *const *) grad,
                                                        grad_final, stats},
                                 shape, &call, x);
    struct weft_k_targets targets = weft_head_targets(
        b, shape, weft_all_blocks(shape), logits);
    size_t forward = weft_k_head_scratch_bytes(shape, targets.n);
    size_t backward = weft_k_head_backward_scratch_bytes(shape, targets.n,
                                                         b->n_runs);
    struct weft_loss_columns c;
    void *rest = columns_get(x, b, &call,
                             forward > backward ? forward : backward, &c);
    if (!rest)
        return WEFT_ENOMEM;
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

static int scalar_losses(const struct weft_loss_call *call,
                         const struct weft_batch *b, const float *value,
                         float *dvalue, double *stats, struct weft_exec *x)
{
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    const float *weight = weft_batch_at(b, b->weight);
    const float *old_value = weft_batch_at(b, b->old_value);
    const float *ret = weft_batch_at(b, b->ret);
    float clip = call->args->value_clip;
    struct CUstream_st *stream = weft_exec_stream(x);
    if (!WEFT_ON_GPU(stream))
        clear(call, b, dvalue, stats);
    if (call->args->loss != WEFT_LOSS_VALUE)
        return weft_score_losses(call, b, value, dvalue, stats, x);
    if (WEFT_ON_GPU(stream)) {
        struct weft_k_loss_runs runs = weft_loss_runs(call, b, stats);
        weft_k_value_losses_cuda(stream, clip, &runs, value, old_value, ret,
                                 dvalue);
        return 0;
    }
    for (int32_t i = 0, at = 0; i < b->n_runs; at += run_targets[i++]) {
        float w = weight[i] * call->gate;
        if (w != 0)
            weft_k_value_loss(clip, run_targets[i], w, value + at,
                              old_value + at, ret + at, dvalue + at,
                              stats + (size_t) i * WEFT_N_VALUE_STATS);
    }
    return 0;
}

/* Losses of a scalar head; logp is its values. */
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
    struct CUstream_st *stream = weft_exec_stream(x);
    struct weft_loss_columns c;
    if (WEFT_ON_GPU(stream)) {
        void *rest = columns_get(
            x, b, &call, weft_k_value_scratch_bytes_cuda(t->shape, targets.n),
            &c);
        if (!rest)
            return weft_gpu_failed(x);
        weft_loss_targets(&call, b, &targets);
        weft_k_value_cuda(stream, t->shape, final, in, targets.n, targets.row,
                          c.logp, rest);
        int rc = scalar_losses(&call, b, c.logp, c.dlogp, stats, x);
        if (!rc)
            weft_k_value_backward_cuda(stream, t->shape, final, b->n_rows, in,
                                       targets.n, targets.row, c.dlogp, dx,
                                       grad_final, rest);
        return rc;
    }
    void *rest = columns_get(x, b, &call,
                             weft_k_value_scratch_bytes(t->shape), &c);
    if (!rest)
        return WEFT_ENOMEM;
    weft_k_value(t->shape, final, in, &targets, c.logp, rest);
    int rc = scalar_losses(&call, b, c.logp, c.dlogp, stats, x);
    if (!rc)
        weft_k_value_backward(t->shape, final, b->n_rows, in, &targets,
                              c.dlogp, dx, grad_final, rest);
    return rc;
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
    task.loss.batch = access.n;
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    task.keeps = weft_access_list_add_optional(&access, logits, WEFT_WRITE);
    weft_access_list_add(&access, dx, WEFT_WRITE);
    weft_access_list_add_layer(&access, &grad->head, WEFT_READ_WRITE);
    task.loss.stats = access.n;
    weft_access_list_add(&access, stats, WEFT_WRITE);
    weft_loss_task_add(&task.loss, &access, args);
    /* logits, by input, by weights */
    struct weft_work_rows rows = weft_tile_rows(batch);
    access.work = weft_work_head_backward(shape, weft_all_blocks(shape), 3,
                                          task.keeps, &rows);
    if (shape->value_head) /* forwards, by input, by weights */
        access.work.flop += weft_work_value(shape, 3, &rows).flop;
    weft_access_list_insert(&access, seq, where, &weft_cl_loss, &task,
                            sizeof task);
}
