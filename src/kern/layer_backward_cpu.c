/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward pass of a decoder layer: the products of its blocks, and the whole
 * layer, which is its parts over [0, T), one after another. Gradients are
 * rounded to the run's dtype before products; sums over blocks are made by the
 * T tree in f32 before that.
 */
#include "kern/layer_backward.h"

/* ---- Blocks ------------------------------------------------------------- */

int64_t weft_layer_widest(const struct weft_shape *s, struct weft_range range,
                          int64_t (*columns)(const struct weft_shape *,
                                             int32_t))
{
    int64_t n = 0;
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        n = weft_max64(n, columns(s, t));
    return n;
}

static size_t dw_bytes(const struct weft_layer_backward *b)
{
    const struct weft_shape *s = b->s;
    int64_t h = s->hidden, ff = weft_layer_widest(s, b->range, weft_block_ff);
    int64_t size[4][2] = {{weft_layer_widest(s, b->range, weft_block_qkv), h},
                          {h, weft_layer_widest(s, b->range, weft_block_q)},
                          {2 * ff, h},
                          {h, ff}};
    size_t most = 0;
    for (int i = 0; i < 4; i++) {
        size_t n = weft_k_gemm_dw_scratch_bytes(s->dtype, b->batch->n_rows,
                                                b->batch->n_runs, size[i][0],
                                                size[i][1]);
        most = n > most ? n : most;
    }
    return most;
}

void weft_layer_backward_at(struct weft_layer_backward *b,
                            struct weft_arena *arena)
{
    b->run_rows = weft_arena_take(arena, b->batch->n_runs, sizeof(int32_t));
    b->dw = weft_arena_take(arena, (int64_t) dw_bytes(b), 1);
}

void weft_layer_backward_begin(struct weft_layer_backward *b,
                               const void *saved)
{
    struct weft_arena arena = {.base = (char *) (uintptr_t) saved};
    weft_layer_saved_at(b->s, b->range, b->batch->n_rows, &arena, &b->at);
    b->rows = weft_row_ops();
    for (int32_t i = 0; i < b->batch->n_runs; i++)
        b->run_rows[i] = b->batch->run[i].n;
}

struct weft_layer_matrix weft_layer_matrix(
    const struct weft_layer_backward *b, int32_t t, enum weft_part_id id)
{
    struct weft_layout l;
    weft_layout_get(b->s, WEFT_TILE_LAYER, t, &l);
    const struct weft_part *p = weft_layout_part(&l, id);
    return (struct weft_layer_matrix){.part = *p,
                                      .bwd = (const char *) b->weights->bwd[t]
                                           + p->bwd_bytes,
                                      .grad = b->grad[t] + p->offset};
}

void weft_layer_dw(const struct weft_layer_backward *b,
                   const struct weft_layer_matrix *w, int64_t k,
                   const void *dy, const void *x)
{
    weft_k_gemm_dw(&(struct weft_k_gemm_dw_args){.dtype = b->s->dtype,
                                                 .n = w->part.n,
                                                 .k = k,
                                                 .n_runs = b->batch->n_runs,
                                                 .run_rows = b->run_rows,
                                                 .dy = dy,
                                                 .lddy = w->part.n,
                                                 .x = x,
                                                 .ldx = k,
                                                 .grad = w->grad,
                                                 .scratch = b->dw});
}

struct weft_k_gemm_args weft_layer_dx_args(
    const struct weft_layer_backward *b, const struct weft_layer_matrix *w,
    const void *dy, float *dx)
{
    return (struct weft_k_gemm_args){.dtype = b->s->dtype,
                                     .y_dtype = WEFT_F32,
                                     .m = b->batch->n_rows,
                                     .n = w->part.k,
                                     .n_blocks = 1,
                                     .x = {dy},
                                     .ldx = {w->part.n},
                                     .w = {w->bwd},
                                     .k = {w->part.n},
                                     .kstride = {w->part.n_pad},
                                     .y = dx,
                                     .ldy = w->part.k};
}

void weft_layer_dx(const struct weft_layer_backward *b,
                   const struct weft_layer_matrix *w, const void *dy,
                   float *dx)
{
    struct weft_k_gemm_args g = weft_layer_dx_args(b, w, dy, dx);
    weft_k_gemm(&g);
}

void weft_layer_dx_roots(const struct weft_layer_backward *b,
                         enum weft_part_id id, void *const dy[], float *roots,
                         weft_layer_gemm_fn gemm, void *context)
{
    const struct weft_shape *s = b->s;
    struct weft_k_gemm_args g = {.dtype = s->dtype,
                                 .y_dtype = WEFT_F32,
                                 .m = b->batch->n_rows,
                                 .n = s->hidden,
                                 .n_blocks = s->n_blocks,
                                 .y = roots,
                                 .ldy = s->hidden};
    for (int32_t t = b->range.first; t < weft_range_end(b->range); t++) {
        struct weft_layer_matrix w = weft_layer_matrix(b, t, id);
        g.x[t] = dy[t];
        g.w[t] = w.bwd;
        g.k[t] = g.ldx[t] = w.part.n;
        g.kstride[t] = w.part.n_pad;
    }
    weft_layer_gemm_roots(&g, b->range, g.m * g.n, gemm, context);
}

size_t weft_k_norm_join_scratch_bytes(const struct weft_shape *shape,
                                      int64_t n_rows)
{
    struct weft_arena arena = {0};
    weft_arena_take(&arena,
                    n_rows * weft_max64(shape->hidden, shape->head_dim),
                    sizeof(float));
    return arena.used;
}

size_t weft_k_part_backward_scratch_bytes(const struct weft_shape *shape,
                                          struct weft_range range,
                                          const struct weft_k_batch *batch)
{
    size_t mlp = weft_layer_mlp_scratch_bytes(shape, range, batch);
    size_t attention = weft_layer_attention_scratch_bytes(shape, range,
                                                          batch);
    return mlp > attention ? mlp : attention;
}

/* ---- The whole ---------------------------------------------------------- */

struct whole {
    float *x_mid; /* (M, H), then the saved part; where it is recomputed */
    char *saved;
    float *dnormed;           /* (M, H) */
    float *dqkv, *head_norms; /* of the attention half */
    void *mlp, *attention;    /* scratch of the halves */
    void *recompute;          /* scratch of the recomputation */
};

/* Divides the scratch memory. The recomputation and the two halves run one
 * after another and use the same memory. */
static void whole_at(const struct weft_shape *s,
                     const struct weft_k_batch *batch, bool recompute,
                     struct weft_arena *arena, struct whole *w)
{
    struct weft_range all = weft_all_blocks(s);
    int64_t m = batch->n_rows;
    if (recompute) {
        w->x_mid = weft_arena_take(arena, m * s->hidden, sizeof(float));
        w->saved = weft_arena_take(
            arena, (int64_t) weft_k_part_saved_bytes(s, all, m), 1);
    }
    w->dnormed = weft_arena_take(arena, m * s->hidden, sizeof(float));
    struct weft_arena half[3] = {*arena, *arena, *arena};
    w->mlp = weft_arena_take(
        &half[0], (int64_t) weft_layer_mlp_scratch_bytes(s, all, batch), 1);
    w->dqkv = weft_arena_take(&half[1],
                              (int64_t) weft_k_dqkv_bytes(s, all, m), 1);
    if (s->qk_norm)
        w->head_norms = weft_arena_take(&half[1], 2 * m * s->head_dim,
                                        sizeof(float));
    w->attention = weft_arena_take(
        &half[1], (int64_t) weft_layer_attention_scratch_bytes(s, all, batch),
        1);
    if (recompute)
        w->recompute = weft_arena_take(
            &half[2], (int64_t) weft_k_layer_forward_scratch_bytes(s, batch),
            1);
    for (int i = 0; i < 3; i++)
        arena->used = half[i].used > arena->used ? half[i].used : arena->used;
}

size_t weft_k_layer_backward_scratch_bytes(const struct weft_shape *shape,
                                           const struct weft_k_batch *batch,
                                           bool recompute)
{
    struct weft_arena arena = {0};
    struct whole w;
    whole_at(shape, batch, recompute, &arena, &w);
    return arena.used;
}

void weft_k_layer_backward(const struct weft_shape *shape,
                           const struct weft_k_layer *weights,
                           const struct weft_k_batch *batch, const float *x,
                           const void *saved, float *dx, float *const grad[],
                           float *grad_norms, void *scratch)
{
    struct weft_range all = weft_all_blocks(shape);
    int64_t m = batch->n_rows;
    struct weft_arena arena = {.base = scratch};
    struct whole w = {0};
    whole_at(shape, batch, saved == NULL, &arena, &w);
    if (!saved) {
        weft_layer_recompute(shape, weights, batch, x, w.x_mid, w.recompute);
        saved = w.x_mid;
    }
    const float *x_mid = saved;
    const void *rest = (const char *) saved
                     + weft_layer_x_mid_bytes(shape, m);
    const struct weft_k_part part = {all, w.dnormed};
    const struct weft_k_part head_norm[2] = {
        {all, w.head_norms},
        {all, shape->qk_norm ? w.head_norms + m * shape->head_dim : NULL}};
    weft_k_mlp_backward(shape, all, weights, batch, x_mid, rest, dx, grad,
                        w.dnormed, w.mlp);
    weft_k_mlp_norm_backward(shape, weights->norms, m, x_mid, 1, &part, dx,
                             grad_norms, NULL);
    weft_k_heads_backward(shape, all, weights, batch, rest, dx, grad, w.dqkv,
                          NULL, w.attention);
    weft_k_qkv_backward(shape, all, weights, batch, x, rest, 0, NULL, w.dqkv,
                        grad, w.dnormed, w.head_norms, w.attention);
    weft_k_attention_norm_backward(shape, weights->norms, m, x, 1, &part,
                                   shape->qk_norm ? head_norm : NULL, dx,
                                   grad_norms, NULL);
}
