/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over chosen and rejected runs of a micro-batch, and KTO's KL. */
#include "base/alloc.h"
#include "codelets/loss.h"

static int check_pairs(const struct weft_batch *b, struct weft_exec *x)
{
    const float *weight = weft_batch_at(b, b->weight);
    if (b->n_runs % 2 != 0)
        return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                            "%d runs are no pairs", b->n_runs);
    for (int32_t i = 0; i < b->n_runs; i += 2)
        if (weight[i] != weight[i + 1])
            return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                                "runs %d and %d of a pair have the weights "
                                "%g and %g",
                                i, i + 1, (double) weight[i],
                                (double) weight[i + 1]);
    return 0;
}

struct weft_k_response weft_response_of(const struct weft_batch *b,
                                        const struct weft_loss_columns *c,
                                        int32_t run, int32_t at,
                                        double *stats)
{
    const int32_t *n = weft_batch_at(b, b->run_targets);
    const float *ref = weft_batch_at(b, b->ref_logp);
    return (struct weft_k_response){
        .n = n[run],
        .logp = c->logp + at,
        .ref_logp = b->has_columns ? ref + at : NULL,
        .dlogp = c->dlogp + at,
        .stat = stats + (size_t) run * WEFT_N_PREFERENCE_STATS};
}

int weft_pair_losses(const struct weft_loss_call *call,
                     const struct weft_batch *b,
                     const struct weft_loss_columns *c, double *stats,
                     struct weft_exec *x)
{
    const float *weight = weft_batch_at(b, b->weight);
    struct CUstream_st *stream = weft_exec_stream(x);
    int rc = check_pairs(b, x);
    weft_assert(b->has_columns || call->args->pairs.reference_free);
    if (WEFT_ON_GPU(stream) && !rc) {
        struct weft_k_loss_runs runs = weft_loss_runs(call, b, stats);
        weft_k_pair_losses_cuda(stream, &call->args->pairs, &runs, c->logp,
                                weft_loss_at(call, b, b->ref_logp), c->dlogp);
        return 0;
    }
    for (int32_t i = 0, at = 0; i < b->n_runs && !rc; i += 2) {
        struct weft_k_response chosen, rejected;
        chosen = weft_response_of(b, c, i, at, stats);
        rejected = weft_response_of(b, c, i + 1, at + chosen.n, stats);
        at += chosen.n + rejected.n;
        float w = weight[i] * call->gate;
        if (w != 0)
            weft_k_pair_loss(&call->args->pairs, w, &chosen, &rejected);
    }
    return rc;
}

int weft_score_losses(const struct weft_loss_call *call,
                      const struct weft_batch *b, const float *score,
                      float *dscore, double *stats, struct weft_exec *x)
{
    const float *weight = weft_batch_at(b, b->weight);
    const float *label = weft_batch_at(b, b->label);
    struct CUstream_st *stream = weft_exec_stream(x);
    int rc = check_pairs(b, x);
    if (!rc && b->n_targets != b->n_runs)
        rc = weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                          "%d runs have %d scores", b->n_runs, b->n_targets);
    if (WEFT_ON_GPU(stream) && !rc) {
        struct weft_k_loss_runs runs = weft_loss_runs(call, b, stats);
        weft_k_bradley_terry_cuda(stream, call->args->center, &runs,
                                  weft_loss_at(call, b, b->label), score,
                                  dscore);
        return 0;
    }
    for (int32_t i = 0; i < b->n_runs && !rc; i += 2) {
        float w = weight[i] * call->gate;
        double *stat[2] = {stats + (size_t) i * WEFT_N_PREFERENCE_STATS,
                           stats
                               + (size_t) (i + 1) * WEFT_N_PREFERENCE_STATS};
        if (w != 0)
            weft_k_bradley_terry(call->args->center, w, label[i], score + i,
                                 dscore + i, stat);
    }
    return rc;
}

/* ---- KTO's KL ----------------------------------------------------------- */

struct kto_kl_task {
    int32_t n, n_tokens[]; /* (n) */
};

static int kto_kl_cpu(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    (void) x;
    const struct kto_kl_task *t = args;
    struct weft_take take = {buf, n_buf, 0};
    double *kl = weft_take(&take), sum = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const float *logp = weft_take(&take);
        sum += weft_k_log_ratio(t->n_tokens[i], logp, weft_take(&take));
    }
    weft_take_end(&take);
    *kl = weft_k_kto_kl(t->n, sum);
    return 0;
}

WEFT_CODELET(kto_kl, 0x5e35b1, kto_kl_cpu)

void weft_insert_kto_kl(struct weft_seq *seq, const struct weft_where *where,
                        int32_t n, const int32_t *n_tokens,
                        struct weft_tile *const logp[],
                        struct weft_tile *const ref[], struct weft_tile *kl)
{
    if (!weft_seq_is_here(seq, where))
        return;
    size_t bytes = sizeof(struct kto_kl_task) + (size_t) n * sizeof(int32_t);
    struct kto_kl_task *task = weft_insert_alloc(1, bytes, "a KL");
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, kl, WEFT_WRITE);
    task->n = n;
    for (int32_t i = 0; i < n; i++) {
        task->n_tokens[i] = n_tokens[i];
        weft_access_list_add(&access, logp[i], WEFT_READ);
        weft_access_list_add(&access, ref[i], WEFT_READ);
    }
    weft_access_list_insert(&access, seq, where, &weft_cl_kto_kl, task,
                            bytes);
    weft_free(task);
}
