/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder layer backwards, from the last product to the first. Gradients
 * that enter products are rounded to the run's dtype; what blocks share goes
 * through the T tree in f32 first.
 */
#include "kern/layer.h"

#include <math.h>
#include <string.h>

#include "kern/rows.h"

/* A matrix in the tiles of block t. */
struct matrix {
    const struct weft_part *part;
    const void *bwd; /* its transposed pack */
    float *grad;
};

struct backward {
    const struct weft_shape *s;
    const struct weft_k_batch *batch;
    const struct weft_row_ops *rows;
    const float *norms;
    float *grad_norms;
    struct weft_layout layout[WEFT_MAX_BLOCKS], norm_layout;
    const void *const *bwd;
    float *const *grad;
    const float *x;
    float *dx;
    const float *x_mid;
    struct weft_layer_saved at;
    struct weft_rope_table rope;
    int32_t *run_rows;
    void *normed, *dy; /* (M, H) in dtype */
    float *dnormed;    /* (M, H) */
    void *dw;
    /* MLP half */
    float *dact;                     /* (M, ff) of one block */
    void *act;                       /* (M, ff) in dtype */
    void *dgate_up[WEFT_MAX_BLOCKS]; /* (M, 2 ff) in dtype */
    /* attention half, in the same place */
    float *datt;                  /* (M, q) of one block */
    float *dqkv[WEFT_MAX_BLOCKS]; /* (M, qkv) */
    void *dqkv_rounded[WEFT_MAX_BLOCKS];
    float *draw, *dnorm; /* one row; (T, D) */
    float *attention;
};

static int64_t widest(const struct weft_shape *s,
                      int64_t (*columns)(const struct weft_shape *, int32_t))
{
    int64_t n = 0;
    for (int32_t t = 0; t < s->n_blocks; t++)
        n = weft_max64(n, columns(s, t));
    return n;
}

static int64_t ff_of(const struct weft_shape *s, int32_t t)
{
    return weft_block_ff(s, t);
}
static int64_t q_of(const struct weft_shape *s, int32_t t)
{
    return weft_block_q(s, t);
}
static int64_t qkv_of(const struct weft_shape *s, int32_t t)
{
    return weft_block_qkv(s, t);
}

static size_t dw_bytes(const struct weft_shape *s,
                       const struct weft_k_batch *b)
{
    int64_t h = s->hidden, ff = widest(s, ff_of);
    int64_t size[4][2] = {
        {widest(s, qkv_of), h}, {h, widest(s, q_of)}, {2 * ff, h}, {h, ff}};
    size_t most = 0;
    for (int i = 0; i < 4; i++) {
        size_t n = weft_k_gemm_dw_scratch_bytes(
            s->dtype, b->n_rows, b->n_runs, size[i][0], size[i][1]);
        most = n > most ? n : most;
    }
    return most;
}

static void mlp_at(struct backward *b, struct weft_arena *arena)
{
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, ff = widest(s, ff_of);
    size_t element = weft_dtype_bytes(s->dtype);
    b->dact = weft_arena_take(arena, m * ff, sizeof(float));
    b->act = weft_arena_take(arena, m * ff, element);
    for (int32_t t = 0; t < s->n_blocks; t++)
        b->dgate_up[t] = weft_arena_take(arena, m * 2 * weft_block_ff(s, t),
                                         element);
}

static void attention_at(struct backward *b, struct weft_arena *arena)
{
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, d = s->head_dim;
    b->datt = weft_arena_take(arena, m * widest(s, q_of), sizeof(float));
    for (int32_t t = 0; t < s->n_blocks; t++) {
        int64_t n = m * weft_block_qkv(s, t);
        b->dqkv[t] = weft_arena_take(arena, n, sizeof(float));
        b->dqkv_rounded[t] = weft_arena_take(arena, n,
                                             weft_dtype_bytes(s->dtype));
    }
    b->draw = weft_arena_take(arena, widest(s, qkv_of), sizeof(float));
    b->dnorm = weft_arena_take(arena, s->n_blocks * d, sizeof(float));
    b->attention = weft_arena_take(
        arena, (int64_t) weft_attention_backward_scratch(d, m),
        sizeof(float));
}

/* Where everything lies in scratch. The two halves, and the forward pass of
 * a recomputation, use one place after another; returned: the latter. */
static void *backward_at(struct backward *b, struct weft_arena *arena,
                         bool recompute)
{
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, h = s->hidden;
    size_t element = weft_dtype_bytes(s->dtype);
    if (recompute) {
        b->x_mid = weft_arena_take(arena, m * h, sizeof(float));
        weft_layer_saved_at(s, weft_all_blocks(s), m, arena, &b->at);
    }
    b->run_rows = weft_arena_take(arena, b->batch->n_runs, sizeof(int32_t));
    weft_rope_table_at(s, m, b->batch->n_runs, arena, &b->rope);
    b->normed = weft_arena_take(arena, m * h, element);
    b->dy = weft_arena_take(arena, m * h, element);
    b->dnormed = weft_arena_take(arena, m * h, sizeof(float));
    b->dw = weft_arena_take(arena, (int64_t) dw_bytes(s, b->batch), 1);
    struct weft_arena mlp = *arena, att = *arena;
    mlp_at(b, &mlp);
    attention_at(b, &att);
    void *shared = arena->base ? arena->base + arena->used : NULL;
    size_t most = mlp.used > att.used ? mlp.used : att.used;
    if (recompute) {
        size_t end = arena->used
                   + weft_k_layer_forward_scratch_bytes(s, b->batch);
        most = end > most ? end : most;
    }
    arena->used = most;
    return shared;
}

size_t weft_k_layer_backward_scratch_bytes(const struct weft_shape *shape,
                                           const struct weft_k_batch *batch,
                                           bool recompute)
{
    struct backward b = {.s = shape, .batch = batch};
    struct weft_arena arena = {0};
    backward_at(&b, &arena, recompute);
    return arena.used;
}

WEFT_INLINE void *row_at(const struct backward *b, void *p, int64_t i)
{
    return (char *) p + (size_t) i * weft_dtype_bytes(b->s->dtype);
}

static struct matrix matrix_of(const struct backward *b, int32_t t,
                               enum weft_part_id id)
{
    const struct weft_part *p = weft_layout_part(&b->layout[t], id);
    return (struct matrix){.part = p,
                           .bwd = (const char *) b->bwd[t] + p->bwd_bytes,
                           .grad = b->grad[t] + p->offset};
}

static const float *norm_of(const struct backward *b, enum weft_part_id id,
                            float **grad_out)
{
    const struct weft_part *p = weft_layout_part(&b->norm_layout, id);
    *grad_out = p ? b->grad_norms + p->offset : NULL;
    return p ? b->norms + p->fwd_bytes / sizeof(float) : NULL;
}

/* W's gradient, from dy (M, n) and x (M, k) in dtype. */
static void dw(const struct backward *b, const struct matrix *w, int64_t k,
               const void *dy, const void *x)
{
    weft_k_gemm_dw(&(struct weft_k_gemm_dw_args){.dtype = b->s->dtype,
                                                 .n = w->part->n,
                                                 .k = k,
                                                 .n_runs = b->batch->n_runs,
                                                 .run_rows = b->run_rows,
                                                 .dy = dy,
                                                 .lddy = w->part->n,
                                                 .x = x,
                                                 .ldx = k,
                                                 .grad = w->grad,
                                                 .scratch = b->dw});
}

/* dx (M, k) = dy (M, n) W of one block. */
static void dx_of_block(const struct backward *b, const struct matrix *w,
                        const void *dy, float *dx)
{
    weft_k_gemm(&(struct weft_k_gemm_args){.dtype = b->s->dtype,
                                           .y_dtype = WEFT_F32,
                                           .m = b->batch->n_rows,
                                           .n = w->part->k,
                                           .n_blocks = 1,
                                           .x = {dy},
                                           .ldx = {w->part->n},
                                           .w = {w->bwd},
                                           .k = {w->part->n},
                                           .kstride = {w->part->n_pad},
                                           .y = dx,
                                           .ldy = w->part->k});
}

/* dnormed (M, H) = sum over blocks of dy[t] W_t, by the T tree. */
static void dx_of_blocks(const struct backward *b, enum weft_part_id id,
                         void *const dy[])
{
    const struct weft_shape *s = b->s;
    struct weft_k_gemm_args g = {.dtype = s->dtype,
                                 .y_dtype = WEFT_F32,
                                 .m = b->batch->n_rows,
                                 .n = s->hidden,
                                 .n_blocks = s->n_blocks,
                                 .y = b->dnormed,
                                 .ldy = s->hidden};
    for (int32_t t = 0; t < s->n_blocks; t++) {
        struct matrix w = matrix_of(b, t, id);
        g.x[t] = dy[t];
        g.w[t] = w.bwd;
        g.k[t] = g.ldx[t] = w.part->n;
        g.kstride[t] = w.part->n_pad;
    }
    weft_k_gemm(&g);
}

/* ---- MLP half ------------------------------------------------------------ */

static void mlp(const struct backward *b)
{
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, h = s->hidden;
    float *grad;
    const float *norm = norm_of(b, WEFT_PART_NORM2, &grad);
    b->rows->round(s->dtype, m * h, b->dx, b->dy);
    b->rows->rmsnorm(s->dtype, m, h, s->rms_eps, b->x_mid, norm, b->normed);
    for (int32_t t = 0; t < s->n_blocks; t++) {
        struct matrix down = matrix_of(b, t, WEFT_PART_DOWN);
        struct matrix gate_up = matrix_of(b, t, WEFT_PART_GATE_UP);
        int64_t ff = weft_block_ff(s, t);
        dx_of_block(b, &down, b->dy, b->dact);
        b->rows->swiglu(s->dtype, m, ff, b->at.gate_up[t], b->act);
        dw(b, &down, ff, b->dy, b->act);
        b->rows->swiglu_backward(s->dtype, m, ff, b->at.gate_up[t], b->dact,
                                 b->dgate_up[t]);
        dw(b, &gate_up, h, b->dgate_up[t], b->normed);
    }
    dx_of_blocks(b, WEFT_PART_GATE_UP, b->dgate_up);
    b->rows->rmsnorm_backward(m, h, s->rms_eps, b->x_mid, norm, b->dnormed,
                              b->dx, grad);
}

/* ---- Attention half ------------------------------------------------------- */

static void attend(const struct backward *b, int32_t t)
{
    const struct weft_shape *s = b->s;
    int64_t d = s->head_dim, q = weft_block_q(s, t);
    int64_t kv = weft_block_kv(s, t), ld = q + 2 * kv;
    int64_t heads = s->block[t].n_heads;
    for (int32_t head = 0; head < s->block[t].n_kv; head++) {
        struct weft_heads readers = weft_block_readers(s, t, head);
        int64_t first = readers.first * d, k = q + head * d;
        for (int64_t i = 0, row = 0; i < b->batch->n_runs; i++) {
            void *qkv = row_at(b, b->at.qkv[t], row * ld);
            float *dqkv = b->dqkv[t] + row * ld;
            struct weft_attention_backward a = {
                .dtype = s->dtype,
                .head_dim = s->head_dim,
                .n_group = readers.n,
                .n = b->batch->run[i].n,
                .q = row_at(b, qkv, first),
                .k = row_at(b, qkv, k),
                .v = row_at(b, qkv, k + kv),
                .ldqkv = ld,
                .out = row_at(b, b->at.att[t], row * q + first),
                .dout = b->datt + row * q + first,
                .ldo = q,
                .lse = b->at.lse[t] + row * heads + readers.first,
                .ldlse = heads,
                .scale = 1.0f / sqrtf((float) d),
                .dq = dqkv + first,
                .dk = dqkv + k,
                .dv = dqkv + k + kv,
                .ldd = ld,
                .scratch = b->attention};
            b->rows->attention_backward(&a);
            row += b->batch->run[i].n;
        }
    }
}

static void unrotate(const struct backward *b)
{
    struct weft_layer_unrotate u = {.s = b->s,
                                    .batch = b->batch,
                                    .rope = &b->rope,
                                    .raw = b->at.raw,
                                    .dqkv = b->dqkv,
                                    .row = b->draw,
                                    .sum = b->dnorm};
    u.qnorm = norm_of(b, WEFT_PART_QNORM, &u.grad_qnorm);
    u.knorm = norm_of(b, WEFT_PART_KNORM, &u.grad_knorm);
    weft_layer_unrotate(&u);
}

static void attention(const struct backward *b)
{
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, h = s->hidden;
    float *grad, *grad_o_bias;
    const float *norm = norm_of(b, WEFT_PART_NORM1, &grad);
    norm_of(b, WEFT_PART_O_BIAS, &grad_o_bias);
    if (grad_o_bias)
        b->rows->add_rows(m, h, b->dx, h, grad_o_bias);
    b->rows->round(s->dtype, m * h, b->dx, b->dy);
    for (int32_t t = 0; t < s->n_blocks; t++) {
        struct matrix o = matrix_of(b, t, WEFT_PART_O);
        dx_of_block(b, &o, b->dy, b->datt);
        dw(b, &o, weft_block_q(s, t), b->dy, b->at.att[t]);
        attend(b, t);
    }
    weft_layer_join_heads(s, m, b->dqkv);
    unrotate(b);
    b->rows->rmsnorm(s->dtype, m, h, s->rms_eps, b->x, norm, b->normed);
    for (int32_t t = 0; t < s->n_blocks; t++) {
        struct matrix qkv = matrix_of(b, t, WEFT_PART_QKV);
        const struct weft_part *bias = weft_layout_part(&b->layout[t],
                                                        WEFT_PART_QKV_BIAS);
        int64_t n = weft_block_qkv(s, t);
        if (bias)
            b->rows->add_rows(m, n, b->dqkv[t], n, b->grad[t] + bias->offset);
        b->rows->round(s->dtype, m * n, b->dqkv[t], b->dqkv_rounded[t]);
        dw(b, &qkv, h, b->dqkv_rounded[t], b->normed);
    }
    dx_of_blocks(b, WEFT_PART_QKV, b->dqkv_rounded);
    b->rows->rmsnorm_backward(m, h, s->rms_eps, b->x, norm, b->dnormed, b->dx,
                              grad);
}

void weft_k_layer_backward(const struct weft_shape *shape,
                           const struct weft_k_layer *weights,
                           const struct weft_k_batch *batch, const float *x,
                           const void *saved, float *dx, float *const grad[],
                           float *grad_norms, void *scratch)
{
    struct backward b = {.s = shape,
                         .batch = batch,
                         .rows = weft_row_ops(),
                         .norms = weights->norms,
                         .grad_norms = grad_norms,
                         .bwd = weights->bwd,
                         .grad = grad,
                         .x = x,
                         .dx = dx};
    struct weft_arena arena = {.base = scratch};
    void *rest = backward_at(&b, &arena, saved == NULL);
    if (saved) {
        struct weft_arena from = {.base = (char *) (uintptr_t) saved};
        b.x_mid = weft_arena_take(&from, batch->n_rows * shape->hidden,
                                  sizeof(float));
        weft_layer_saved_at(shape, weft_all_blocks(shape), batch->n_rows,
                            &from, &b.at);
    } else {
        weft_layer_recompute(shape, weights, batch, x, scratch, rest);
    }
    for (int32_t t = 0; t < shape->n_blocks; t++)
        weft_layout_get(shape, WEFT_TILE_LAYER, t, &b.layout[t]);
    weft_layout_get(shape, WEFT_TILE_NORMS, 0, &b.norm_layout);
    for (int32_t i = 0; i < batch->n_runs; i++)
        b.run_rows[i] = batch->run[i].n;
    weft_rope_table_fill(shape, batch, &b.rope);
    mlp(&b);
    attention(&b);
}
