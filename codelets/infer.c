/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of inference calls: log-probs, and values of a scalar head. */
#include <string.h>

#include "codelets/access_list.h"
#include "codelets/gpu.h"
#include "codelets/head.h"
#include "codelets/loss.h"
#include "codelets/work.h"

struct infer_args {
    const struct weft_shape *shape;
    float inv_temperature;
};

void weft_deal_targets(const struct weft_batch *b, const float *value,
                       struct weft_take *take, struct weft_exec *x)
{
    const int32_t *n = weft_batch_at(b, b->run_targets);
    void *const *out = take->buf + take->next;
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream))
        weft_k_deal_cuda(stream, b->n_runs, n, value, out);
    for (int32_t i = 0; i < b->n_runs; i++) {
        float *to = weft_take(take);
        if (WEFT_ON_GPU(stream))
            continue;
        memcpy(to, value, (size_t) n[i] * sizeof *value);
        value += n[i];
    }
}

static int logprob(const void *args_, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    const struct infer_args *args = args_;
    const struct weft_shape *s = args->shape;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_head head;
    weft_head_take(&take, s, false, &head);
    const struct weft_batch *b = weft_take(&take);
    const float *in = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    struct CUstream_st *stream = weft_exec_stream(x);
    size_t out_bytes = (size_t) weft_round_up((int64_t) targets.n * 4, 64);
    char *logp;
    if (WEFT_ON_GPU(stream)) {
        logp = weft_gpu_head_scratch(
            x, b,
            out_bytes + weft_k_head_scratch_bytes_cuda(s, targets.n, false),
            &targets);
        if (!logp)
            return weft_gpu_failed(x);
        weft_k_head_logprob_cuda(stream, s, &head, in, &targets,
                                 args->inv_temperature, (float *) logp, NULL,
                                 NULL, logp + out_bytes);
    } else {
        logp = weft_exec_scratch(
            x, out_bytes + weft_k_head_scratch_bytes(s, targets.n));
        if (!logp)
            return WEFT_ENOMEM;
        weft_k_head_logprob(s, &head, in, &targets, args->inv_temperature,
                            (float *) logp, NULL, NULL, logp + out_bytes);
    }
    weft_deal_targets(b, (const float *) logp, &take, x);
    weft_take_end(&take);
    return WEFT_ON_GPU(stream) ? weft_gpu_end(x) : 0;
}

WEFT_CODELET_2(logprob, 0xffca28, logprob, logprob)

static int value_of_rows(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct infer_args *args = args_;
    const struct weft_shape *s = args->shape;
    struct weft_take take = {buf, n_buf, 0};
    const float *final = weft_take(&take);
    const struct weft_batch *b = weft_take(&take);
    const float *in = weft_take(&take);
    struct weft_k_targets targets = weft_batch_targets(b);
    struct CUstream_st *stream = weft_exec_stream(x);
    size_t out_bytes = (size_t) weft_round_up((int64_t) targets.n * 4, 64);
    char *value;
    if (WEFT_ON_GPU(stream)) {
        value = weft_gpu_head_scratch(
            x, b, out_bytes + weft_k_value_scratch_bytes_cuda(s, targets.n),
            &targets);
        if (!value)
            return weft_gpu_failed(x);
        weft_k_value_cuda(stream, s, final, in, targets.n, targets.row,
                          (float *) value, value + out_bytes);
    } else {
        value = weft_exec_scratch(x,
                                  out_bytes + weft_k_value_scratch_bytes(s));
        if (!value)
            return WEFT_ENOMEM;
        weft_k_value(s, final, in, &targets, (float *) value,
                     value + out_bytes);
    }
    weft_deal_targets(b, (const float *) value, &take, x);
    weft_take_end(&take);
    return 0;
}

WEFT_CODELET_2(value, 0xffa726, value_of_rows, value_of_rows)

static void insert(struct weft_seq *seq, const struct weft_where *where,
                   const struct weft_codelet *codelet,
                   const struct infer_args *args,
                   const struct weft_layer_tiles *head,
                   struct weft_tile *batch, struct weft_tile *x, int32_t n,
                   struct weft_tile *const out[], struct weft_work work)
{
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_layer(&access, head, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, out[i], WEFT_WRITE);
    access.work = work;
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
    struct weft_work_rows rows = weft_tile_rows(batch);
    insert(seq, where, &weft_cl_logprob, &args, &fwd->head, batch, x, n, out,
           weft_work_head(shape, weft_all_blocks(shape), 1, &rows));
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
    const struct weft_layer_tiles head = {.norms = fwd->head.norms};
    struct weft_work_rows rows = weft_tile_rows(batch);
    insert(seq, where, &weft_cl_value, &args, &head, batch, x, n, out,
           weft_work_value(shape, 1, &rows));
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
