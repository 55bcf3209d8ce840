/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of a decoder layer on a GPU, and of its MLP: what
 * layer_mlp_backward_cpu.c does, in the same order. */
#include "kern/attention_cuda.h"
#include "kern/layer_backward_cuda.h"

enum weft_dtype weft_backward_datt_dtype(const struct weft_shape *s)
{
    return weft_attention_on_tensor_cores(s->dtype, s->head_dim) ? s->dtype
                                                                 : WEFT_F32;
}

static void backward_at(struct weft_backward_cuda *p,
                        struct weft_arena *arena)
{
    const struct weft_shape *s = p->b.s;
    struct weft_range range = p->b.range;
    int64_t m = p->b.batch->n_rows;
    size_t element = weft_dtype_bytes(s->dtype);
    int64_t ff = weft_layer_widest(s, range, weft_block_ff);
    p->b.run_rows = weft_arena_take(arena, p->b.batch->n_runs, 0);
    p->normed = weft_arena_take(arena, m * s->hidden, element);
    p->dy = weft_arena_take(arena, m * s->hidden, element);
    p->inverse = weft_arena_take(arena, m, sizeof(float));
    weft_rows_cuda_at(s, p->b.batch, arena, &p->rows);
    p->gemm.scratch = weft_arena_take(
        arena, (int64_t) weft_layer_gemm_bytes_cuda(s, m), 1);
    struct weft_arena mlp = *arena;
    p->dact = weft_arena_take(&mlp, m * ff, sizeof(float));
    p->act = weft_arena_take(&mlp, m * ff, element);
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        p->dgate_up[t] = weft_arena_take(&mlp, m * 2 * weft_block_ff(s, t),
                                         element);
        p->datt[t] = weft_arena_take(
            arena, m * weft_block_q(s, t),
            weft_dtype_bytes(weft_backward_datt_dtype(s)));
        p->delta[t] = weft_arena_take(arena, m * s->block[t].n_heads,
                                      sizeof(float));
        p->dqkv_rounded[t] = weft_arena_take(arena, m * weft_block_qkv(s, t),
                                             element);
        for (int i = 0; s->qk_norm && i < 2; i++)
            p->norm_sum[i][t] = weft_arena_take(arena, m * s->head_dim,
                                                sizeof(float));
    }
    arena->used = mlp.used > arena->used ? mlp.used : arena->used;
}

size_t weft_k_part_backward_scratch_bytes_cuda(
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_k_batch *batch)
{
    struct weft_arena arena = {0};
    struct weft_backward_cuda p = {
        .b = {.s = shape, .range = range, .batch = batch}};
    backward_at(&p, &arena);
    return arena.used;
}

void weft_backward_begin_cuda(struct weft_backward_cuda *p, const void *saved,
                              float *dqkv, void *scratch)
{
    const struct weft_layer_backward *b = &p->b;
    struct weft_arena arena = {.base = scratch};
    backward_at(p, &arena);
    arena = (struct weft_arena){.base = (char *) (uintptr_t) saved};
    weft_layer_saved_at(b->s, b->range, b->batch->n_rows, &arena, &p->b.at);
    arena = (struct weft_arena){.base = (char *) dqkv};
    for (int32_t t = b->range.first; dqkv && t < weft_range_end(b->range);
         t++)
        p->dqkv[t] = weft_arena_take(
            &arena, b->batch->n_rows * weft_block_qkv(b->s, t),
            sizeof(float));
}

void weft_backward_dx_cuda(const struct weft_backward_cuda *p,
                           const struct weft_layer_matrix *w, const void *dy,
                           enum weft_dtype dtype, void *dx)
{
    struct weft_k_gemm_args g = weft_layer_dx_args(&p->b, w, dy, dx);
    g.y_dtype = dtype;
    weft_k_gemm_cuda(p->gemm.stream, &g, p->gemm.scratch);
}

void weft_backward_dw_cuda(const struct weft_backward_cuda *p,
                           const struct weft_layer_matrix *w, int64_t k,
                           const void *dy, const void *x)
{
    enum { MOST_RUNS = 256 };
    int32_t rows[MOST_RUNS];
    const struct weft_k_batch *batch = p->b.batch;
    struct weft_k_gemm_dw_args g = {.dtype = p->b.s->dtype,
                                    .n = w->part.n,
                                    .k = k,
                                    .run_rows = rows,
                                    .dy = dy,
                                    .lddy = w->part.n,
                                    .x = x,
                                    .ldx = k,
                                    .grad = w->grad};
    for (int32_t i = 0; i < batch->n_runs; i += g.n_runs) {
        int64_t n_rows = 0;
        g.n_runs = weft_min32(batch->n_runs - i, MOST_RUNS);
        for (int32_t j = 0; j < g.n_runs; j++)
            n_rows += rows[j] = batch->run[i + j].n;
        weft_k_gemm_dw_cuda(p->gemm.stream, &g);
        g.dy = weft_layer_at(p->b.s, (void *) (uintptr_t) g.dy,
                             n_rows * g.lddy);
        g.x = weft_layer_at(p->b.s, (void *) (uintptr_t) g.x, n_rows * g.ldx);
    }
}

/* ---- MLP ---------------------------------------------------------------- */

static void mlp_block(const struct weft_backward_cuda *p, int32_t t)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, ff = weft_block_ff(s, t);
    struct weft_layer_matrix down = weft_layer_matrix(b, t, WEFT_PART_DOWN);
    struct weft_layer_matrix gate_up = weft_layer_matrix(b, t,
                                                         WEFT_PART_GATE_UP);
    weft_backward_dx_cuda(p, &down, p->dy, WEFT_F32, p->dact);
    weft_k_swiglu_backward_cuda(p->gemm.stream, s->dtype, m, ff,
                                b->at.gate_up[t], p->dact, p->act,
                                p->dgate_up[t]);
    weft_backward_dw_cuda(p, &down, ff, p->dy, p->act);
    weft_backward_dw_cuda(p, &gate_up, s->hidden, p->dgate_up[t], p->normed);
}

static void mlp_backward(struct weft_backward_cuda *p, const float *x_mid,
                         const float *dx, float *roots)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    const float *w = weft_layer_vector(s, WEFT_PART_NORM2, b->weights->norms);
    weft_norm_round_cuda(p->gemm.stream, s->dtype, b->batch->n_rows,
                         s->hidden, s->rms_eps, x_mid, w, p->normed, dx,
                         p->dy);
    for (int32_t t = b->range.first; t < weft_range_end(b->range); t++)
        mlp_block(p, t);
    weft_layer_dx_roots(b, WEFT_PART_GATE_UP, p->dgate_up, roots,
                        weft_layer_gemm_cuda, &p->gemm);
}

void weft_k_mlp_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const float *x_mid, const void *saved,
    const float *dx, float *const grad[], float *roots, void *scratch)
{
    struct weft_backward_cuda p = weft_backward_of_cuda(stream, s, range,
                                                        weights, batch, grad);
    weft_backward_begin_cuda(&p, saved, NULL, scratch);
    mlp_backward(&p, x_mid, dx, roots);
}

/* ---- The whole ---------------------------------------------------------- */

struct whole {
    float *x_mid; /* recomputed: (M, H), then the saved part */
    float *dnormed, *dqkv, *head_norms;
    void *half; /* scratch of the recomputation, then of the halves */
};

static void whole_at(const struct weft_shape *s,
                     const struct weft_k_batch *batch, bool recompute,
                     struct weft_arena *arena, struct whole *w)
{
    struct weft_range all = weft_all_blocks(s);
    int64_t m = batch->n_rows;
    size_t half = weft_k_part_backward_scratch_bytes_cuda(s, all, batch);
    size_t forward = weft_k_part_forward_scratch_bytes_cuda(s, all, batch);
    half = recompute && forward > half ? forward : half;
    if (recompute)
        w->x_mid = weft_arena_take(
            arena, (int64_t) weft_k_layer_saved_bytes(s, m), 1);
    w->dnormed = weft_arena_take(arena, m * s->hidden, sizeof(float));
    w->dqkv = weft_arena_take(arena, (int64_t) weft_k_dqkv_bytes(s, all, m),
                              1);
    if (s->qk_norm)
        w->head_norms = weft_arena_take(arena, 2 * m * s->head_dim,
                                        sizeof(float));
    w->half = weft_arena_take(arena, (int64_t) half, 1);
}

size_t weft_k_layer_backward_scratch_bytes_cuda(
    const struct weft_shape *shape, const struct weft_k_batch *batch,
    bool recompute)
{
    struct weft_arena arena = {0};
    struct whole w;
    whole_at(shape, batch, recompute, &arena, &w);
    return arena.used;
}

void weft_k_layer_backward_cuda(struct CUstream_st *stream,
                                const struct weft_shape *s,
                                const struct weft_k_layer *weights,
                                const struct weft_k_batch *batch,
                                const float *x, const void *saved, float *dx,
                                float *const grad[], float *grad_norms,
                                void *scratch)
{
    struct weft_range all = weft_all_blocks(s);
    int64_t m = batch->n_rows;
    struct weft_arena arena = {.base = scratch};
    struct whole w = {0};
    whole_at(s, batch, saved == NULL, &arena, &w);
    if (!saved) {
        weft_k_layer_forward_cuda(stream, s, weights, 0, batch, NULL, x, NULL,
                                  w.x_mid, w.half);
        saved = w.x_mid;
    }
    const float *x_mid = saved;
    const void *rest = (const char *) saved + weft_layer_x_mid_bytes(s, m);
    const struct weft_k_part part = {all, w.dnormed};
    const struct weft_k_part head_norm[2] = {
        {all, w.head_norms},
        {all, s->qk_norm ? w.head_norms + m * s->head_dim : NULL}};
    struct weft_backward_cuda p = weft_backward_of_cuda(stream, s, all,
                                                        weights, batch, grad);
    weft_backward_begin_cuda(&p, rest, w.dqkv, w.half);
    struct weft_norm_backward_cuda norm = {.n_rows = m,
                                           .norms = weights->norms,
                                           .x = x_mid,
                                           .n_parts = 1,
                                           .part = &part,
                                           .dx = dx,
                                           .grad_norms = grad_norms,
                                           .rounded = p.dy,
                                           .inverse = p.inverse};
    mlp_backward(&p, x_mid, dx, w.dnormed);
    weft_backward_norm_cuda(stream, s, &norm);
    weft_rows_cuda_fill(stream, s, batch, false, &p.rows, NULL);
    weft_backward_heads_cuda(&p, NULL);
    weft_backward_qkv_cuda(&p, x, 0, NULL, w.dnormed, w.head_norms);
    norm.attention = true;
    norm.x = x;
    norm.head_norm = s->qk_norm ? head_norm : NULL;
    norm.rounded = NULL;
    weft_backward_norm_cuda(stream, s, &norm);
}
