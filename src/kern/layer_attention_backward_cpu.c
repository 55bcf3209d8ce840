/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward pass of a decoder layer's attention half, in two steps: the O
 * product and the heads, after which members of the tp group exchange the
 * gradients of KV heads that they share; then the QKV product and the norm
 * before it.
 */
#include "kern/layer_backward.h"

#include <math.h>
#include <string.h>

struct attention {
    struct weft_layer_backward b;
    float *dqkv[WEFT_MAX_BLOCKS]; /* (M, qkv) */
    float *work;                  /* (2, T, D) */
    /* used by weft_k_heads_backward() */
    void *dy;    /* (M, H) in dtype */
    float *datt; /* (M, q) of one block */
    float *heads;
    /* used by weft_k_qkv_backward(), in the same memory */
    struct weft_rope_table rope;
    void *normed;                        /* (M, H) in dtype */
    void *dqkv_rounded[WEFT_MAX_BLOCKS]; /* (M, qkv) in dtype */
    float *row;
};

static void dqkv_at(struct attention *a, struct weft_arena *arena,
                    int64_t n_rows)
{
    struct weft_range range = a->b.range;
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        a->dqkv[t] = weft_arena_take(
            arena, n_rows * weft_block_qkv(a->b.s, t), sizeof(float));
}

size_t weft_k_dqkv_bytes(const struct weft_shape *shape,
                         struct weft_range range, int64_t n_rows)
{
    struct attention a = {.b = {.s = shape, .range = range}};
    struct weft_arena arena = {0};
    dqkv_at(&a, &arena, n_rows);
    return arena.used;
}

static void heads_at(struct attention *a, struct weft_arena *arena)
{
    const struct weft_shape *s = a->b.s;
    int64_t m = a->b.batch->n_rows, d = s->head_dim;
    a->dy = weft_arena_take(arena, m * s->hidden, weft_dtype_bytes(s->dtype));
    a->datt = weft_arena_take(
        arena, m * weft_layer_widest(s, a->b.range, weft_block_q),
        sizeof(float));
    a->heads = weft_arena_take(
        arena, (int64_t) weft_attention_backward_scratch(d, m),
        sizeof(float));
}

static void qkv_at(struct attention *a, struct weft_arena *arena)
{
    const struct weft_shape *s = a->b.s;
    struct weft_range range = a->b.range;
    int64_t m = a->b.batch->n_rows;
    size_t element = weft_dtype_bytes(s->dtype);
    weft_rope_table_at(s, m, a->b.batch->n_runs, arena, &a->rope);
    a->normed = weft_arena_take(arena, m * s->hidden, element);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        a->dqkv_rounded[t] = weft_arena_take(arena, m * weft_block_qkv(s, t),
                                             element);
    a->row = weft_arena_take(
        arena, weft_layer_widest(s, range, weft_block_qkv), sizeof(float));
}

static void attention_at(struct attention *a, struct weft_arena *arena)
{
    const struct weft_shape *s = a->b.s;
    weft_layer_backward_at(&a->b, arena);
    a->work = weft_arena_take(arena, 2 * s->n_blocks * s->head_dim,
                              sizeof(float));
    struct weft_arena heads = *arena;
    heads_at(a, &heads);
    qkv_at(a, arena);
    arena->used = heads.used > arena->used ? heads.used : arena->used;
}

size_t weft_layer_attention_scratch_bytes(const struct weft_shape *shape,
                                          struct weft_range range,
                                          const struct weft_k_batch *batch)
{
    struct attention a = {.b = {.s = shape, .range = range, .batch = batch}};
    struct weft_arena arena = {0};
    attention_at(&a, &arena);
    return arena.used;
}

static void begin(struct attention *a, const void *saved, float *dqkv,
                  void *scratch)
{
    struct weft_arena arena = {.base = scratch};
    attention_at(a, &arena);
    arena = (struct weft_arena){.base = (char *) dqkv};
    dqkv_at(a, &arena, a->b.batch->n_rows);
    weft_layer_backward_begin(&a->b, saved);
}

/* ---- O product and heads ------------------------------------------------ */

static void attend(const struct attention *at, int32_t t)
{
    const struct weft_layer_backward *b = &at->b;
    const struct weft_shape *s = b->s;
    int64_t d = s->head_dim, q = weft_block_q(s, t);
    int64_t kv = weft_block_kv(s, t), ld = q + 2 * kv;
    int64_t heads = s->block[t].n_heads;
    for (int32_t head = 0; head < s->block[t].n_kv; head++) {
        struct weft_heads readers = weft_block_readers(s, t, head);
        int64_t first = readers.first * d, k = q + head * d;
        for (int64_t i = 0, row = 0; i < b->batch->n_runs; i++) {
            void *qkv = weft_layer_at(s, b->at.qkv[t], row * ld);
            float *dqkv = at->dqkv[t] + row * ld;
            struct weft_attention_backward a = {
                .dtype = s->dtype,
                .head_dim = s->head_dim,
                .n_group = readers.n,
                .n = b->batch->run[i].n,
                .q = weft_layer_at(s, qkv, first),
                .k = weft_layer_at(s, qkv, k),
                .v = weft_layer_at(s, qkv, k + kv),
                .ldqkv = ld,
                .out = weft_layer_at(s, b->at.att[t], row * q + first),
                .dout = at->datt + row * q + first,
                .ldo = q,
                .lse = b->at.lse[t] + row * heads + readers.first,
                .ldlse = heads,
                .scale = 1.0f / sqrtf((float) d),
                .dq = dqkv + first,
                .dk = dqkv + k,
                .dv = dqkv + k + kv,
                .ldd = ld,
                .scratch = at->heads};
            b->rows->attention_backward(&a);
            row += b->batch->run[i].n;
        }
    }
}

void weft_k_heads_backward(const struct weft_shape *s,
                           struct weft_range range,
                           const struct weft_k_layer *weights,
                           const struct weft_k_batch *batch,
                           const void *saved, const float *dx,
                           float *const grad[], float *dqkv, float *shared,
                           void *scratch)
{
    struct attention a = {.b = {.s = s,
                                .range = range,
                                .batch = batch,
                                .weights = weights,
                                .grad = grad}};
    int64_t m = batch->n_rows;
    begin(&a, saved, dqkv, scratch);
    a.b.rows->round(s->dtype, m * s->hidden, dx, a.dy);
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        struct weft_layer_matrix o = weft_layer_matrix(&a.b, t, WEFT_PART_O);
        weft_layer_dx(&a.b, &o, a.dy, a.datt);
        weft_layer_dw(&a.b, &o, weft_block_q(s, t), a.dy, a.b.at.att[t]);
        attend(&a, t);
    }
    weft_layer_share_heads(
        s, range, m, a.dqkv, shared, weft_layer_sum_heads,
        &(struct weft_heads_sum_cpu){m, s->head_dim, a.work});
}

/* ---- QKV product -------------------------------------------------------- */

/* Makes the gradients of block t's QKV weights and bias. */
static void qkv_weights(const struct attention *a, int32_t t)
{
    const struct weft_layer_backward *b = &a->b;
    int64_t m = b->batch->n_rows, n = weft_block_qkv(b->s, t);
    struct weft_layer_matrix w = weft_layer_matrix(b, t, WEFT_PART_QKV);
    struct weft_layout l;
    weft_layout_get(b->s, WEFT_TILE_LAYER, t, &l);
    const struct weft_part *bias = weft_layout_part(&l, WEFT_PART_QKV_BIAS);
    if (bias)
        b->rows->add_rows(m, n, a->dqkv[t], n, b->grad[t] + bias->offset);
    b->rows->round(b->s->dtype, m * n, a->dqkv[t], a->dqkv_rounded[t]);
    weft_layer_dw(b, &w, b->s->hidden, a->dqkv_rounded[t], a->normed);
}

/* If another member owns the range's first KV head, clears this replica's
 * gradient: the owner multiplies it by the weights, and it must count once. */
static void drop_replica(const struct attention *a)
{
    const struct weft_shape *s = a->b.s;
    int32_t t = a->b.range.first;
    int64_t q = weft_block_q(s, t), kv = weft_block_kv(s, t);
    size_t bytes = (size_t) s->head_dim * weft_dtype_bytes(s->dtype);
    if (weft_shape_kv_owner(s, s->block[t].kv0) == t)
        return;
    for (int64_t r = 0; r < a->b.batch->n_rows; r++) {
        void *row = weft_layer_at(s, a->dqkv_rounded[t], r * (q + 2 * kv));
        memset(weft_layer_at(s, row, q), 0, bytes);
        memset(weft_layer_at(s, row, q + kv), 0, bytes);
    }
}

void weft_k_qkv_backward(const struct weft_shape *s, struct weft_range range,
                         const struct weft_k_layer *weights,
                         const struct weft_k_batch *batch, const float *x,
                         const void *saved, int32_t n_members,
                         const struct weft_k_shared *member, float *dqkv,
                         float *const grad[], float *roots, float *head_norms,
                         void *scratch)
{
    struct attention a = {.b = {.s = s,
                                .range = range,
                                .batch = batch,
                                .weights = weights,
                                .grad = grad}};
    begin(&a, saved, dqkv, scratch);
    weft_rope_table_fill(s, batch, &a.rope);
    weft_layer_join_heads(
        s, range, batch->n_rows, n_members, member, a.dqkv,
        weft_layer_sum_heads,
        &(struct weft_heads_sum_cpu){batch->n_rows, s->head_dim, a.work});
    weft_layer_unrotate(&(struct weft_layer_unrotate){
        .s = s,
        .range = range,
        .batch = batch,
        .rope = &a.rope,
        .raw = a.b.at.raw,
        .dqkv = a.dqkv,
        .qnorm = weft_layer_vector(s, WEFT_PART_QNORM, weights->norms),
        .knorm = weft_layer_vector(s, WEFT_PART_KNORM, weights->norms),
        .head_norms = head_norms,
        .row = a.row,
        .sum = a.work});
    a.b.rows->rmsnorm(s->dtype, batch->n_rows, s->hidden, s->rms_eps, x,
                      weft_layer_vector(s, WEFT_PART_NORM1, weights->norms),
                      a.normed);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        qkv_weights(&a, t);
    drop_replica(&a);
    weft_layer_dx_roots(&a.b, WEFT_PART_QKV, a.dqkv_rounded, roots,
                        weft_layer_gemm, NULL);
}

/* ---- The norm ----------------------------------------------------------- */

void weft_k_attention_norm_backward(const struct weft_shape *s,
                                    const float *norms, int64_t n_rows,
                                    const float *x, int32_t n_parts,
                                    const struct weft_k_part *part,
                                    const struct weft_k_part *head_norm,
                                    float *dx, float *grad_norms,
                                    void *scratch)
{
    static const enum weft_part_id id[2] = {WEFT_PART_QNORM, WEFT_PART_KNORM};
    const struct weft_row_ops *rows = weft_row_ops();
    int64_t h = s->hidden, d = s->head_dim;
    if (s->o_bias && grad_norms)
        rows->add_rows(n_rows, h, dx, h,
                       weft_layer_grad(s, WEFT_PART_O_BIAS, grad_norms));
    for (int32_t i = 0; s->qk_norm && grad_norms && i < 2; i++)
        rows->add_rows(n_rows, d,
                       weft_layer_joined(s->n_blocks, n_parts,
                                         head_norm + i * n_parts, n_rows * d,
                                         scratch),
                       d, weft_layer_grad(s, id[i], grad_norms));
    weft_k_rmsnorm_backward(
        n_rows, h, s->rms_eps, x,
        weft_layer_vector(s, WEFT_PART_NORM1, norms),
        weft_layer_joined(s->n_blocks, n_parts, part, n_rows * h, scratch),
        dx, weft_layer_grad(s, WEFT_PART_NORM1, grad_norms));
}
