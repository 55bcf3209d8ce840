/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward pass of a decoder layer on a GPU: the same values, rounded at the
 * same places, as layer_forward_cpu.c and its neighbours. All rows pass one
 * operation after the other; those of q, k and v and of the MLP in chunks, so
 * that scratch is bounded. Without a KV cache keys and values go to pages in
 * scratch. One launch has all tensor blocks, except of products: in a decode
 * step a launch takes longer than what it does (doc/gpu.md lists them).
 */
#include "kern/layer_forward_cuda.h"
#include "kern/sum_blocks_cuda.h"

void weft_layer_gemm_cuda(const struct weft_k_gemm_args *args, void *context)
{
    const struct weft_gemm_cuda *gemm = context;
    weft_gemm_norm_cuda(gemm->stream, args, gemm->norm, gemm->scratch);
}

size_t weft_layer_gemm_bytes_cuda(const struct weft_shape *s, int64_t m)
{
    static const float bias;
    return weft_k_gemm_scratch_bytes_cuda(&(struct weft_k_gemm_args){
        .m = m, .n = s->hidden, .n_blocks = s->n_blocks, .bias = &bias});
}

static void forward_at(struct weft_forward_cuda *p, struct weft_arena *arena,
                       bool has_saved)
{
    struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    int64_t n = f->batch->n_rows, chunk = weft_min64(n, WEFT_CHUNK_ROWS_CUDA);
    size_t element = weft_dtype_bytes(s->dtype);
    weft_layer_forward_blocks_at(f, arena, chunk, has_saved);
    p->n_kv = 0;
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        p->product[t] = weft_arena_take(arena, chunk * weft_block_qkv(s, t),
                                        sizeof(float));
        p->kv_before[t] = p->n_kv;
        p->n_kv += s->block[t].n_kv;
    }
    p->normed = weft_arena_take(arena, n * s->hidden, element);
    weft_rows_cuda_at(s, f->batch, arena, &p->rows);
    p->pages = weft_arena_take(arena, p->rows.n_pages * p->n_kv,
                               weft_layer_head_bytes(s));
    p->gemm.scratch = weft_arena_take(
        arena, (int64_t) weft_layer_gemm_bytes_cuda(s, n), 1);
    size_t parts = weft_layer_parts_bytes_cuda(p);
    p->parts = parts > 0 ? weft_arena_take(arena, (int64_t) parts, 1) : NULL;
}

size_t weft_k_part_forward_scratch_bytes_cuda(
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_k_batch *batch)
{
    struct weft_arena arena = {0};
    struct weft_forward_cuda p = {
        .f = {.s = shape, .range = range, .batch = batch}};
    forward_at(&p, &arena, false);
    return arena.used;
}

/* ---- MLP --------------------------------------------------------------- */

/* The norm of all rows, for mlp(). */
static struct weft_norm_cuda norm_of(const struct weft_forward_cuda *p)
{
    const struct weft_layer_forward *f = &p->f;
    return (struct weft_norm_cuda){f->s->dtype, f->s->rms_eps, f->norm2,
                                   p->normed};
}

/* The MLP of rows r.. r + n - 1; to->y NULL: only gate and up. */
static void mlp_chunk(const struct weft_forward_cuda *p, int64_t r, int64_t n,
                      const struct weft_layer_sum *to)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    struct weft_k_gemm_args g = {0};
    struct weft_swiglu_cuda act = {0};
    int64_t h = s->hidden;
    const void *normed = weft_layer_at(s, p->normed, r * h);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        int64_t ff = weft_block_ff(s, t);
        void *gate_up = weft_layer_at(s, f->at.gate_up[t],
                                      f->all_gate_up ? r * 2 * ff : 0);
        weft_k_gemm_cuda(p->gemm.stream,
                         &(struct weft_k_gemm_args){.dtype = s->dtype,
                                                    .y_dtype = s->dtype,
                                                    .m = n,
                                                    .n = 2 * ff,
                                                    .n_blocks = 1,
                                                    .x = {normed},
                                                    .ldx = {h},
                                                    .w = {f->gate_up[t]},
                                                    .k = {h},
                                                    .y = gate_up,
                                                    .ldy = 2 * ff},
                         p->gemm.scratch);
        act.n[act.n_blocks] = n * ff;
        act.gate_up[act.n_blocks] = gate_up;
        act.y[act.n_blocks++] = f->act[t];
        g.k[t] = g.ldx[t] = ff;
        g.x[t] = f->act[t];
        g.w[t] = f->down[t];
    }
    if (!to->y)
        return;
    weft_swiglu_blocks_cuda(p->gemm.stream, s->dtype, &act);
    weft_layer_add_up(f, &g, r, n, to);
}

static void mlp(const struct weft_forward_cuda *p,
                const struct weft_layer_sum *to)
{
    int64_t n_rows = p->f.batch->n_rows;
    for (int64_t r = 0; r < n_rows; r += WEFT_CHUNK_ROWS_CUDA)
        mlp_chunk(p, r, weft_min64(WEFT_CHUNK_ROWS_CUDA, n_rows - r), to);
}

/* ---- Parts and whole ---------------------------------------------------- */

static void begin(struct weft_forward_cuda *p, void *saved, void *scratch)
{
    struct weft_layer_forward *f = &p->f;
    struct weft_arena arena = {.base = saved};
    f->gemm = weft_layer_gemm_cuda;
    f->gemm_context = &p->gemm;
    f->all_gate_up = saved;
    if (saved)
        weft_layer_saved_at(f->s, f->range, f->batch->n_rows, &arena, &f->at);
    arena = (struct weft_arena){.base = scratch};
    forward_at(p, &arena, saved != NULL);
    weft_layer_forward_weights(f);
}

void weft_k_attention_forward_cuda(struct CUstream_st *stream,
                                   const struct weft_shape *shape,
                                   struct weft_range range,
                                   const struct weft_k_layer *weights,
                                   int32_t layer,
                                   const struct weft_k_batch *batch,
                                   const struct weft_k_kv *kv, const float *x,
                                   void *saved, float *roots, void *scratch)
{
    struct weft_forward_cuda p = {
        .f = {.s = shape, .range = range, .w = weights, .batch = batch},
        .gemm = {.stream = stream}};
    begin(&p, saved, scratch);
    weft_layer_attention_cuda(&p, layer, kv, x);
    weft_layer_project_o(&p.f, 0, batch->n_rows,
                         &(struct weft_layer_sum){.y = roots});
}

void weft_k_mlp_forward_cuda(struct CUstream_st *stream,
                             const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_k_layer *weights,
                             const struct weft_k_batch *batch,
                             const float *x_mid, void *saved, float *roots,
                             void *scratch)
{
    struct weft_forward_cuda p = {
        .f = {.s = shape, .range = range, .w = weights, .batch = batch},
        .gemm = {.stream = stream}};
    begin(&p, saved, scratch);
    struct weft_norm_cuda norm = norm_of(&p);
    weft_k_rmsnorm_cuda(stream, norm.dtype, batch->n_rows, shape->hidden,
                        norm.eps, x_mid, norm.w, norm.out);
    mlp(&p, &(struct weft_layer_sum){.y = roots});
}

void weft_k_layer_forward_cuda(struct CUstream_st *stream,
                               const struct weft_shape *shape,
                               const struct weft_k_layer *weights,
                               int32_t layer,
                               const struct weft_k_batch *batch,
                               const struct weft_k_kv *kv, const float *x,
                               float *y, void *saved, void *scratch)
{
    struct weft_forward_cuda p = {.f = {.s = shape,
                                        .range = weft_all_blocks(shape),
                                        .w = weights,
                                        .batch = batch},
                                  .gemm = {.stream = stream}};
    size_t before = saved ? weft_layer_x_mid_bytes(shape, batch->n_rows) : 0;
    float *x_mid = saved ? saved : y;
    begin(&p, saved ? (char *) saved + before : NULL, scratch);
    weft_layer_attention_cuda(&p, layer, kv, x);
    struct weft_layer_sum mid = {weft_k_o_bias(shape, weights->norms), x,
                                 x_mid};
    struct weft_norm_cuda norm = norm_of(&p);
    p.gemm.norm = &norm;
    weft_layer_project_o(&p.f, 0, batch->n_rows, &mid);
    p.gemm.norm = NULL;
    mlp(&p, &(struct weft_layer_sum){NULL, x_mid, y});
}
