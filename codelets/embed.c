/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding and its gradient. */
#include "codelets/access_list.h"
#include "codelets/gpu.h"
#include "codelets/work.h"

struct embed_args {
    const struct weft_shape *shape;
};

struct embed_call {
    const struct weft_shape *shape;
    const void *table[WEFT_MAX_BLOCKS];
    const struct weft_batch *batch;
    int32_t n;
    const int32_t *token;
    float *out;
};

static struct embed_call call_of(const struct embed_args *args,
                                 void *const buf[], int n_buf)
{
    struct embed_call call = {.shape = args->shape};
    struct weft_take take = {buf, n_buf, 0};
    for (int b = 0; b < args->shape->n_blocks; b++)
        call.table[b] = weft_take(&take);
    call.batch = weft_take(&take);
    call.n = call.batch->n_rows;
    call.token = weft_batch_at(call.batch, call.batch->token);
    call.out = weft_take(&take);
    weft_take_end(&take);
    return call;
}

static int embed_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) x;
    struct embed_call c = call_of(args, buf, n_buf);
    weft_k_embed(c.shape, c.table, c.n, c.token, c.out);
    return 0;
}

static int embed_cuda(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    struct embed_call c = call_of(args, buf, n_buf);
    c.token = weft_gpu_tokens(x, c.batch);
    if (!c.token)
        return weft_gpu_failed(x);
    weft_k_embed_cuda(weft_exec_stream(x), c.shape, c.table, c.n, c.token,
                      c.out);
    return 0;
}

WEFT_CODELET_2(embed, 0x9ccc65, embed_cpu, embed_cuda)

void weft_insert_embed(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_shape *shape,
                       const struct weft_params *fwd, struct weft_tile *batch,
                       struct weft_tile *x)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct embed_args args = {shape};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_blocks(&access, fwd->embed, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_WRITE);
    struct weft_work_rows rows = weft_tile_rows(batch);
    access.work = weft_work_embed(
        shape, (struct weft_range){0, shape->n_blocks},
        weft_dtype_bytes(shape->dtype), false, &rows);
    weft_access_list_insert(&access, seq, where, &weft_cl_embed, &args,
                            sizeof args);
}
