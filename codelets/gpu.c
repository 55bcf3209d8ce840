/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/gpu.h"

#include "base/alloc.h"
#include "codelets/loss.h"
#include "rt/codelet.h"

#ifdef WEFT_HAVE_CUDA

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t copy_bytes(size_t batch_bytes)
{
    return (size_t) weft_round_up((int64_t) batch_bytes, 64);
}

const struct weft_batch *weft_gpu_batch(struct weft_exec *x,
                                        const struct weft_batch *b,
                                        size_t end, size_t bytes,
                                        void **scratch_out)
{
    weft_assert(end <= b->bytes && (scratch_out || bytes == 0));
    char *copy = weft_exec_scratch_gpu(x, copy_bytes(end) + bytes);
    if (!copy)
        return NULL;
    weft_k_put_cuda(weft_exec_stream(x), copy, b, end);
    if (scratch_out)
        *scratch_out = copy + copy_bytes(end);
    return (const struct weft_batch *) (const void *) copy;
}

static size_t layer_bytes(const struct weft_gpu_pass *p,
                          const struct weft_k_batch *batch)
{
    const struct weft_shape *s = p->shape;
    size_t most = weft_k_part_forward_scratch_bytes_cuda(s, p->range, batch);
    if (p->backward) {
        size_t norm = weft_k_norm_join_scratch_bytes_cuda(s, batch->n_rows);
        size_t part = weft_k_part_backward_scratch_bytes_cuda(s, p->range,
                                                              batch);
        size_t whole = p->range.n == s->n_blocks
                         ? weft_k_layer_backward_scratch_bytes_cuda(
                             s, batch, p->recompute)
                         : 0;
        most = larger(larger(most, norm), larger(part, whole));
    }
    return most + (p->generates ? copy_bytes(p->batch_bytes) : 0);
}

static size_t head_bytes(const struct weft_gpu_pass *p)
{
    const struct weft_shape *s = p->shape;
    size_t most = s->scalar_head
                    ? weft_k_value_scratch_bytes_cuda(s, p->n_targets)
                    : weft_k_head_scratch_bytes_cuda(s, p->n_targets, false);
    if (p->backward && !s->scalar_head)
        most = larger(most,
                      weft_k_head_scratch_bytes_cuda(s, p->n_targets, true));
    if (p->backward && p->range.n < s->n_blocks)
        most = larger(most,
                      weft_k_head_norm_scratch_bytes_cuda(s, p->n_targets));
    return copy_bytes(p->batch_bytes) + weft_loss_columns_bytes(p->n_targets)
         + most;
}

/* What is done with a tile's gradient and master. */
static size_t update_bytes(const struct weft_shape *s, int kind, int32_t t)
{
    struct weft_layout layout;
    weft_layout_get(s, (enum weft_tile_kind) kind, t, &layout);
    size_t squares = weft_k_chunk_squares_scratch_bytes_cuda(
        s, (enum weft_tile_kind) kind, t, weft_layout_n_chunks(&layout));
    size_t table = s->tied ? weft_k_tied_table_scratch_bytes_cuda(s, t) : 0;
    return larger(squares, table);
}

size_t weft_gpu_scratch_bytes(const struct weft_gpu_pass *p)
{
    /* One run has all rows but those of the others: no division into n_runs
     * has more pages, or a longer one. */
    size_t n = (size_t) (p->n_runs > 0 ? p->n_runs : 1);
    struct weft_k_run *run = weft_alloc(n, sizeof *run);
    if (!run)
        return 0;
    for (size_t i = 0; i < n; i++)
        run[i].n = i == 0 ? p->n_rows : 1;
    struct weft_k_batch batch = {
        .n_rows = p->n_rows, .n_runs = (int32_t) n, .run = run};
    size_t most = larger(layer_bytes(p, &batch), head_bytes(p));
    /* A decode step has a row of each run. */
    run[0].n = 1;
    batch.n_rows = batch.n_runs;
    most = larger(most, layer_bytes(p, &batch));
    weft_free(run);
    for (int kind = 0; kind < WEFT_N_TILE_KINDS && p->backward; kind++)
        for (int32_t t = 0; t < p->shape->n_blocks; t++)
            most = larger(most, update_bytes(p->shape, kind, t));
    return most;
}

bool weft_gpu_scratch_is_known(void)
{
    return true;
}

#else

size_t weft_gpu_scratch_bytes(const struct weft_gpu_pass *p)
{
    (void) p;
    return 0;
}

bool weft_gpu_scratch_is_known(void)
{
    return false;
}

#endif

struct choose_args {
    const struct weft_shape *shape;
    bool generates, backward;
};

static int choose_products_cpu(const void *args, void *const buf[], int n_buf,
                               struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL, "is for GPUs");
}

static int choose_products_cuda(const void *args_, void *const buf[],
                                int n_buf, struct weft_exec *x)
{
    const struct choose_args *args = args_;
    (void) buf;
    (void) n_buf;
    return weft_k_choose_products_cuda(args->shape, args->generates,
                                       args->backward, weft_exec_err(x));
}

WEFT_CODELET_2(choose_products, 0xbdbdbd, choose_products_cpu,
               choose_products_cuda)

void weft_insert_choose_products(struct weft_seq *seq,
                                 const struct weft_where *where,
                                 const struct weft_shape *shape,
                                 bool generates, bool backward)
{
    const struct choose_args args = {shape, generates, backward};
    weft_insert(seq, &weft_cl_choose_products, &args, sizeof args, NULL, 0,
                where);
}
