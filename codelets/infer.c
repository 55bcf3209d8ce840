/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of inference calls: log-probs, and values of a scalar head. */
#include "codelets/access_list.h"
#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/work.h"

struct infer_args {
    const struct weft_shape *shape;
    float inv_temperature;
};

static int logprob(const void *args_, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    const struct infer_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head head;
    weft_head_take(&take, args->shape, false, &head);
    const struct weft_batch *b = weft_take(&take);
    const float *in = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    struct CUstream_st *stream = weft_exec_stream(x);
    size_t out_bytes = (size_t) weft_round_up((int64_t) targets.n * 4, 64);
    char *scratch = weft_exec_scratch(
        x, out_bytes + weft_k_head_scratch_bytes(args->shape, targets.n));
    if (!scratch)
        return WEFT_ENOMEM;
    float *logp = (float *) scratch;
    if (WEFT_ON_GPU(stream)) {
        char *p = weft_exec_scratch_gpu(
            x, out_bytes
                   + weft_k_head_scratch_bytes_cuda(args->shape, targets.n,
                                                    false));
        if (!p)
            return weft_gpu_failed(x);
        weft_k_head_logprob_cuda(stream, args->shape, &head, in, &targets,
                                 args->inv_temperature, (float *) p, NULL,
                                 NULL, p + out_bytes);
        weft_k_fetch_cuda(stream, logp, p, (size_t) targets.n * sizeof *logp);
    } else {
        weft_k_head_logprob(args->shape, &head, in, &targets,
                            args->inv_temperature, logp, NULL, NULL,
                            scratch + out_bytes);
    }
    weft_deal_targets(b, logp, &take);
    weft_take_end(&take);
    return WEFT_ON_GPU(stream) ? weft_gpu_end(x) : 0;
}

WEFT_CODELET_2(logprob, 0xffca28, logprob, logprob)

static int value_of_rows(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct infer_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    const float *final = weft_take(&take);
    const struct weft_batch *b = weft_take(&take);
    const float *in = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    struct CUstream_st *stream = weft_exec_stream(x);
    size_t out_bytes = (size_t) weft_round_up((int64_t) targets.n * 4, 64);
    char *scratch = weft_exec_scratch(
        x, out_bytes + weft_k_value_scratch_bytes(args->shape));
    if (!scratch)
        return WEFT_ENOMEM;
    float *value = (float *) scratch;
    if (WEFT_ON_GPU(stream)) {
        char *p = weft_exec_scratch_gpu(
            x, out_bytes
                   + weft_k_value_scratch_bytes_cuda(args->shape, targets.n));
        if (!p)
            return weft_gpu_failed(x);
        weft_k_value_cuda(stream, args->shape, final, in, targets.n,
                          targets.row, (float *) p, p + out_bytes);
        weft_k_fetch_cuda(stream, value, p,
                          (size_t) targets.n * sizeof *value);
    } else {
        weft_k_value(args->shape, final, in, &targets, value,
                     scratch + out_bytes);
    }
    weft_deal_targets(b, value, &take);
    weft_take_end(&take);
    return 0;
}

WEFT_CODELET_2(value, 0xffa726, value_of_rows, value_of_rows)

static void insert(struct weft_seq *seq, const struct weft_where *where,
                   const struct weft_codelet *codelet,
                   const struct infer_args *args,
                   const struct weft_layer_tiles *head,
                   struct weft_tile *batch, struct weft_tile *x, int32_t n,
                   struct weft_tile *const out[])
{
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_layer(&access, head, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, out[i], WEFT_WRITE);
    struct weft_work_rows rows = weft_tile_rows(batch);
    access.work = weft_work_head(
        args->shape, (struct weft_range){0, args->shape->n_blocks}, 1, &rows);
    weft_access_list_insert(&access, seq, where, codelet, args, sizeof *args);
}

void weft_insert_logprob(struct weft_seq *seq, const struct weft_where *where,
                         const struct weft_shape *shape,
                         const struct weft_params *fwd,
                         struct weft_tile *batch, struct weft_tile *x,
                         float inv_temperature, int32_t n,
                         struct weft_tile *const out[])
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct infer_args args = {shape, inv_temperature};
    insert(seq, where, &weft_cl_logprob, &args, &fwd->head, batch, x, n, out);
}

void weft_insert_value(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_shape *shape,
                       const struct weft_params *fwd, struct weft_tile *batch,
                       struct weft_tile *x, int32_t n,
                       struct weft_tile *const out[])
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct infer_args args = {shape, 1.0f};
    insert(seq, where, &weft_cl_value, &args, &fwd->head, batch, x, n, out);
}

/* ---- Log-probs in place of a rollout's ---------------------------------- */

static int reread_cpu(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    struct weft_take take = {buf, n_buf, 0};
    struct weft_rollout *out = weft_take(&take);
    const struct weft_rollout *r = weft_take(&take);
    const float *logp = weft_take(&take);
    size_t n = (size_t) (r->n_total - r->n_prompt);
    (void) args;
    (void) x;
    weft_take_end(&take);
    *out = (struct weft_rollout){r->n_total, r->n_prompt, r->n_total,
                                 r->ended};
    memcpy(weft_rollout_token(out), weft_rollout_token(r),
           (size_t) r->n_total * sizeof(int32_t));
    memset(weft_rollout_logp(out), 0, (size_t) r->n_prompt * sizeof *logp);
    memcpy(weft_rollout_logp(out) + r->n_prompt, logp, n * sizeof *logp);
    return 0;
}

WEFT_CODELET(reread, 0xffcc80, reread_cpu)

void weft_insert_reread(struct weft_seq *seq, const struct weft_where *where,
                        struct weft_tile *rollout, struct weft_tile *logp,
                        struct weft_tile *out)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, out, WEFT_WRITE);
    weft_access_list_add(&access, rollout, WEFT_READ);
    weft_access_list_add(&access, logp, WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_reread, NULL, 0);
}
