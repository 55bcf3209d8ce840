/* SPDX-License-Identifier: Apache-2.0 */
/* Head forward, loss and head backward of a training micro-batch. */
#include <math.h>
#include <string.h>

#include "codelets/head.h"
#include "codelets/loss.h"

struct loss_task {
    const struct weft_shape *shape;
    struct weft_loss_args loss;
};

int32_t weft_loss_n_stats(enum weft_loss loss)
{
    return loss == WEFT_LOSS_VALUE ? (int32_t) WEFT_N_VALUE_STATS
                                   : (int32_t) WEFT_N_POLICY_STATS;
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

int weft_language_loss(const struct weft_loss_args *loss,
                       const struct weft_batch *b,
                       const struct weft_loss_columns *c, double *stats,
                       struct weft_exec *x)
{
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    const float *weight = weft_batch_at(b, b->weight);
    memset(stats, 0,
           (size_t) b->n_runs * WEFT_N_POLICY_STATS * sizeof *stats);
    memset(c->dentropy, 0, (size_t) b->n_targets * sizeof *c->dentropy);
    for (int32_t i = 0, at = 0; i < b->n_runs; at += run_targets[i++]) {
        double *stat = stats + (size_t) i * WEFT_N_POLICY_STATS;
        int32_t n = run_targets[i];
        if (loss->loss == WEFT_LOSS_SFT) {
            sft_loss(n, weight[i], c->logp + at, c->entropy + at,
                     c->dlogp + at, stat);
            continue;
        }
        weft_k_policy_loss(&loss->policy, n, weight[i], c->logp + at,
                           (float *) weft_batch_at(b, b->old_logp) + at,
                           (float *) weft_batch_at(b, b->ref_logp) + at,
                           (float *) weft_batch_at(b, b->advantage) + at,
                           c->entropy + at, c->dlogp + at, c->dentropy + at,
                           stat);
        if (loss->exact_first && check_exact(stat, i, x))
            return WEFT_EINTERNAL;
    }
    return 0;
}

static int language_loss(const struct loss_task *t, struct weft_take *take,
                         struct weft_exec *x)
{
    const struct weft_shape *shape = t->shape;
    struct weft_k_head head;
    weft_head_take(take, shape, true, &head);
    const struct weft_batch *b = weft_take(take);
    const float *in = weft_take(take);
    float *dx = weft_take(take);
    void *grad[WEFT_MAX_BLOCKS];
    weft_take_blocks(take, shape->n_blocks, grad);
    float *grad_final = weft_take(take);
    double *stats = weft_take(take);
    weft_take_end(take);
    struct weft_k_targets targets = weft_batch_targets(b);
    size_t forward = weft_k_head_scratch_bytes(shape, targets.n);
    size_t backward = weft_k_head_backward_scratch_bytes(shape, targets.n,
                                                         b->n_runs);
    struct weft_loss_columns c;
    void *rest = columns_get(x, targets.n,
                             forward > backward ? forward : backward, &c);
    if (!rest)
        return WEFT_ENOMEM;
    weft_k_head_logprob(shape, &head, in, &targets, t->loss.inv_temperature,
                        c.logp, c.entropy, c.lse, rest);
    int rc = weft_language_loss(&t->loss, b, &c, stats, x);
    if (rc)
        return rc;
    weft_k_head_backward(shape, &head, b->n_rows, in, &targets, b->n_runs,
                         weft_batch_at(b, b->run_targets),
                         t->loss.inv_temperature, c.lse, c.entropy, c.dlogp,
                         weft_loss_has_entropy(&t->loss) ? c.dentropy : NULL,
                         dx, (float *const *) grad, grad_final, rest);
    return 0;
}

static int value_loss(const struct loss_task *t, struct weft_take *take,
                      struct weft_exec *x)
{
    const float *final = weft_take(take);
    const struct weft_batch *b = weft_take(take);
    const float *in = weft_take(take);
    float *dx = weft_take(take);
    float *grad_final = weft_take(take);
    double *stats = weft_take(take);
    weft_take_end(take);
    struct weft_k_targets targets = weft_batch_targets(b);
    const int32_t *run_targets = weft_batch_at(b, b->run_targets);
    const float *weight = weft_batch_at(b, b->weight);
    struct weft_loss_columns w;
    void *rest = columns_get(x, targets.n,
                             weft_k_value_scratch_bytes(t->shape), &w);
    if (!rest)
        return WEFT_ENOMEM;

    weft_k_value(t->shape, final, in, &targets, w.logp, rest);
    memset(stats, 0, (size_t) b->n_runs * WEFT_N_VALUE_STATS * sizeof *stats);
    for (int32_t i = 0, at = 0; i < b->n_runs; at += run_targets[i++])
        weft_k_value_loss(
            t->loss.value_clip, run_targets[i], weight[i], w.logp + at,
            (float *) weft_batch_at(b, b->old_value) + at,
            (float *) weft_batch_at(b, b->ret) + at, w.dlogp + at,
            stats + (size_t) i * WEFT_N_VALUE_STATS);
    weft_k_value_backward(t->shape, final, b->n_rows, in, &targets, w.dlogp,
                          dx, grad_final, rest);
    return 0;
}

static int loss_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct loss_task *t = args;
    struct weft_take take = {buf, n_buf, 0};
    return t->loss.loss == WEFT_LOSS_VALUE ? value_loss(t, &take, x)
                                           : language_loss(t, &take, x);
}

WEFT_CODELET(loss, 0xef5350, loss_cpu)

void weft_insert_loss(struct weft_seq *seq, const struct weft_where *where,
                      const struct weft_shape *shape,
                      const struct weft_params *fwd,
                      const struct weft_params *bwd,
                      const struct weft_loss_args *args,
                      struct weft_tile *batch, struct weft_tile *x,
                      struct weft_tile *dx, const struct weft_params *grad,
                      struct weft_tile *stats)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct loss_task task = {shape, *args};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_layer(&access, &fwd->head, WEFT_READ);
    weft_access_list_add_blocks(&access, bwd->head.block, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    weft_access_list_add(&access, dx, WEFT_WRITE);
    weft_access_list_add_layer(&access, &grad->head, WEFT_READ_WRITE);
    weft_access_list_add(&access, stats, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_loss, &task,
                            sizeof task);
}
