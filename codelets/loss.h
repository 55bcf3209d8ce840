/* SPDX-License-Identifier: Apache-2.0 */
/* The language losses, shared by the whole head's task and the merge of the
 * members' parts. */
#ifndef WEFT_CODELETS_LOSS_H
#define WEFT_CODELETS_LOSS_H

#include "codelets/access_list.h"
#include "codelets/gpu.h"

/* Columns with one value per target: the head's results, and the gradient of
 * the loss with respect to them. */
struct weft_loss_columns {
    float *logp, *entropy, *lse, *dlogp, *dentropy;
};

WEFT_INLINE size_t weft_loss_columns_bytes(int32_t n)
{
    return 5 * (size_t) weft_round_up((int64_t) n * 4, 64);
}
WEFT_INLINE struct weft_loss_columns weft_loss_columns_of(void *memory,
                                                          int32_t n)
{
    size_t column = weft_loss_columns_bytes(n) / 5;
    char *p = memory;
    return (struct weft_loss_columns){(float *) (void *) p,
                                      (float *) (void *) (p + column),
                                      (float *) (void *) (p + 2 * column),
                                      (float *) (void *) (p + 3 * column),
                                      (float *) (void *) (p + 4 * column)};
}

WEFT_INLINE bool weft_loss_has_entropy(const struct weft_loss_args *loss)
{
    return loss->loss == WEFT_LOSS_POLICY && loss->policy.entropy_coef != 0;
}

/* The arguments of a loss, which of its small tiles there are, and the numbers
 * of its batch and statistics among the task's accesses; when its body runs,
 * with the numbers in the small tiles. Comes first in the task's arguments. */
struct weft_loss_task {
    struct weft_loss_args args;
    bool gate, kto_kl;
    int32_t batch, stats; /* stats -1: there are none */
};
struct weft_loss_call {
    const struct weft_loss_task *task;
    const struct weft_loss_args *args;
    float gate;
    double kto_kl;
    /* At a GPU's place, of weft_gpu_batch(): the arrays before copy_end. */
    const struct weft_batch *copy;
    size_t copy_end;
};
/* Adds the tiles after all others. */
void weft_loss_task_add(struct weft_loss_task *task,
                        struct weft_access_list *access,
                        const struct weft_loss_args *args);
struct weft_loss_call weft_loss_call_take(struct weft_take *take,
                                          const struct weft_loss_task *task);

/* At a GPU's place: copies there what kernels read more than once. Other
 * columns they read once, in pinned memory. bytes and return: as
 * weft_gpu_batch(). */
WEFT_INLINE void *weft_loss_copy(struct weft_loss_call *call,
                                 const struct weft_batch *b, size_t bytes,
                                 struct weft_exec *x)
{
    const struct weft_loss_args *loss = call->args;
    bool is_gspo = loss->loss == WEFT_LOSS_POLICY
                && loss->policy.kind == WEFT_POLICY_GSPO;
    void *scratch = NULL;
    /* A sample's ratio comes before those of its tokens. */
    call->copy_end = is_gspo ? b->ref_logp : b->old_logp;
    call->copy = weft_gpu_batch(x, b, call->copy_end, bytes, &scratch);
    return scratch;
}
/* An array of the batch, for kernels. */
WEFT_INLINE void *weft_loss_at(const struct weft_loss_call *call,
                               const struct weft_batch *b, size_t offset)
{
    return weft_batch_at(offset < call->copy_end ? call->copy : b, offset);
}
WEFT_INLINE void weft_loss_targets(const struct weft_loss_call *call,
                                   const struct weft_batch *b,
                                   struct weft_k_targets *out)
{
    out->row = weft_loss_at(call, b, b->row);
    out->target = weft_loss_at(call, b, b->target);
}

/* Each of these computes gradients, and the statistics of every run; on a GPU
 * kernels do, after weft_loss_copy(), where columns are the GPU's memory and
 * statistics pinned. stats NULL: not wanted, on a GPU. */

/* dlogp and dentropy (the latter only if weft_loss_has_entropy()) from logp and
 * entropy. */
int weft_language_loss(const struct weft_loss_call *call,
                       const struct weft_batch *batch,
                       const struct weft_loss_columns *c, double *stats,
                       struct weft_exec *x);
/* The parts of it that are over pairs of runs, and over pairs of scores; on a
 * CPU gradients and statistics are 0 before. */
int weft_pair_losses(const struct weft_loss_call *call,
                     const struct weft_batch *batch,
                     const struct weft_loss_columns *c, double *stats,
                     struct weft_exec *x);
int weft_score_losses(const struct weft_loss_call *call,
                      const struct weft_batch *batch, const float *score,
                      float *dscore, double *stats, struct weft_exec *x);

/* A run whose first target is `at`. */
struct weft_k_response weft_response_of(const struct weft_batch *batch,
                                        const struct weft_loss_columns *c,
                                        int32_t run, int32_t at,
                                        double *stats);
/* All runs, for kernels. */
WEFT_INLINE struct weft_k_loss_runs weft_loss_runs(
    const struct weft_loss_call *call, const struct weft_batch *b,
    double *stats)
{
    return (struct weft_k_loss_runs){
        .n = b->n_runs,
        .gate = call->gate,
        .n_targets = weft_loss_at(call, b, b->run_targets),
        .weight = weft_loss_at(call, b, b->weight),
        .stats = stats};
}

/* Takes the tiles of the batch's samples, which get the results of their
 * targets, in order. */
void weft_deal_targets(const struct weft_batch *b, const float *value,
                       struct weft_take *take, struct weft_exec *x);

#endif
