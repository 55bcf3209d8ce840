/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decode step's tokens at a GPU's place, in two tasks: the GPU draws them
 * into a tile in host memory, and the host puts them into the state, so that
 * it knows what stopped before it chooses the next step's rows.
 */
#include <string.h>

#include "codelets/gen.h"
#include "codelets/gpu.h"
#include "codelets/member.h"

size_t weft_gen_drawn_bytes(int32_t n_slots)
{
    return (size_t) n_slots * (sizeof(int32_t) + sizeof(float))
         + sizeof(int32_t);
}

size_t weft_gen_draw_scratch_bytes(const struct weft_shape *shape,
                                   const struct weft_gen_args *gen,
                                   int32_t n_slots)
{
    return weft_k_sample_scratch_bytes_cuda(shape, &gen->sampling, n_slots);
}

struct draw_args {
    struct weft_join_args join;
    struct weft_gen_args gen;
    int32_t n_slots;
    bool scratch;
};

static int gen_draw_cpu(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                        "is for GPUs; CPU devices have gen_sample");
}

static int gen_draw_cuda(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct draw_args *args = args_;
    const struct weft_shape *shape = args->join.shape;
    struct CUstream_st *stream = weft_exec_stream(x);
    struct weft_take take = {buf, n_buf, 0};
    const struct weft_batch *b = weft_take(&take);
    int32_t *token = weft_take(&take);
    int64_t v = shape->vocab;
    int32_t n = b->n_targets;
    *weft_gen_drawn_failed(token, args->n_slots) = 0;
    float *logits = weft_take(&take);
    for (int i = 1; i < args->join.n_parts; i++) {
        const float *from = weft_take(&take);
        int32_t first, columns;
        weft_k_vocab_range(shape, args->join.range[i], &first, &columns);
        weft_k_copy_columns_cuda(stream, n, columns, from + first, v,
                                 logits + first, v);
    }
    void *scratch = args->scratch ? weft_take(&take) : NULL;
    weft_take_end(&take);
    const struct weft_batch *copy = weft_gpu_batch(x, b, b->bytes, 0, NULL);
    if (!copy)
        return weft_gpu_failed(x);
    weft_k_sample_cuda(stream, shape, &args->gen.sampling, args->gen.n_stop,
                       args->gen.stop, n, logits, v,
                       weft_batch_at(copy, b->key), token,
                       weft_gen_drawn_logp(token, args->n_slots), scratch);
    return 0;
}

WEFT_CODELET_2(gen_draw, 0x9ccc65, gen_draw_cpu, gen_draw_cuda)

void weft_insert_gen_draw(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_shape *shape,
                          const struct weft_gen_args *gen, int32_t n_slots,
                          struct weft_tile *batch, int n_parts,
                          const struct weft_part_tile logits[],
                          struct weft_tile *scratch, struct weft_tile *drawn)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct draw_args args = {weft_join_args_of(shape, n_parts, logits), *gen,
                             n_slots, false};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, drawn, WEFT_WRITE);
    for (int i = 0; i < n_parts; i++)
        weft_access_list_add(&access, logits[i].tile,
                             i == 0 ? WEFT_READ_WRITE : WEFT_READ);
    args.scratch = weft_access_list_add_optional(&access, scratch,
                                                 WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_draw, &args,
                            sizeof args);
}

int weft_gen_group_failed(struct weft_err *err)
{
    return weft_err_set(err, WEFT_EINTERNAL,
                        "the GPUs of a tp group waited for one another in "
                        "vain: one has failed, or was busy for more than a "
                        "minute; what the run says before may tell which");
}

static int gen_settle_cpu(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    const struct draw_args *args = args_;
    weft_assert(n_buf == 4);
    const struct weft_batch *b = buf[0];
    int32_t *token = buf[1];
    const float *logp = weft_gen_drawn_logp(buf[1], args->n_slots);
    struct weft_gen_view view = weft_gen_view_of(buf[2]);
    struct weft_gen_status *status = buf[3];
    const int32_t *index = weft_batch_at(b, b->target);
    int rc = 0;
    if (b->n_rows > 0 && *weft_gen_drawn_failed(token, args->n_slots))
        rc = weft_gen_group_failed(weft_exec_err(x));
    for (int32_t i = 0; i < b->n_targets && !rc; i++)
        rc = weft_gen_put(&view, &args->gen, index[i], token[i], logp[i],
                          weft_exec_err(x));
    weft_gen_report(&view, b->n_targets, status);
    return rc;
}

WEFT_CODELET(gen_settle, 0xaed581, gen_settle_cpu)

void weft_insert_gen_settle(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_gen_args *gen, int32_t n_slots,
                            struct weft_tile *batch, struct weft_tile *drawn,
                            struct weft_tile *state, struct weft_tile *status)
{
    const struct draw_args args = {.gen = *gen, .n_slots = n_slots};
    const struct weft_access access[] = {{batch, WEFT_READ},
                                         {drawn, WEFT_READ},
                                         {state, WEFT_READ_WRITE},
                                         {status, WEFT_READ_WRITE}};
    weft_insert(seq, &weft_cl_gen_settle, &args, sizeof args, access, 4,
                where);
}
