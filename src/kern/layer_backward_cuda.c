/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of a decoder layer on a GPU: what layer_mlp_backward_cpu.c and
 * layer_attention_backward_cpu.c do, in the same order. */
#include <math.h>

#include "kern/attention_cuda.h"
#include "kern/layer_backward.h"
#include "kern/layer_cuda.h"
#include "kern/sum_blocks_cuda.h"

struct backward {
    struct weft_layer_backward b; /* without run_rows and dw */
    struct weft_gemm_cuda gemm;
    struct weft_rows_cuda rows;
    void *normed, *dy; /* (M, H) in dtype */
    /* the MLP's */
    float *dact;                     /* (M, ff) of one block */
    void *act;                       /* (M, ff) in dtype */
    void *dgate_up[WEFT_MAX_BLOCKS]; /* (M, 2 ff) in dtype */
    /* attention's, in the same memory */
    void *datt;   /* (M, q) of one block: f32, on tensor cores in dtype */
    float *delta; /* (M, heads) of one block */
    void *dqkv_rounded[WEFT_MAX_BLOCKS]; /* (M, qkv) in dtype */
    float *dqkv[WEFT_MAX_BLOCKS];        /* (M, qkv), not in scratch */
    /* of q's norm, then of k's: rows' gradients (M, D); with qk_norm */
    float *norm_sum[2][WEFT_MAX_BLOCKS];
};

static enum weft_dtype datt_dtype(const struct weft_shape *s)
{
    return weft_attention_on_tensor_cores(s->dtype, s->head_dim) ? s->dtype
                                                                 : WEFT_F32;
}

static void backward_at(struct backward *p, struct weft_arena *arena)
{
    const struct weft_shape *s = p->b.s;
    struct weft_range range = p->b.range;
    int64_t m = p->b.batch->n_rows, n_heads = 0;
    size_t element = weft_dtype_bytes(s->dtype);
    int64_t ff = weft_layer_widest(s, range, weft_block_ff);
    int64_t q = weft_layer_widest(s, range, weft_block_q);
    p->b.run_rows = weft_arena_take(arena, p->b.batch->n_runs, 0);
    p->normed = weft_arena_take(arena, m * s->hidden, element);
    p->dy = weft_arena_take(arena, m * s->hidden, element);
    weft_rows_cuda_at(s, p->b.batch, arena, &p->rows);
    p->gemm.scratch = weft_arena_take(
        arena, (int64_t) weft_layer_gemm_bytes_cuda(s, m), 1);
    struct weft_arena mlp = *arena;
    p->dact = weft_arena_take(&mlp, m * ff, sizeof(float));
    p->act = weft_arena_take(&mlp, m * ff, element);
    p->datt = weft_arena_take(arena, m * q, weft_dtype_bytes(datt_dtype(s)));
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        n_heads = weft_max64(n_heads, s->block[t].n_heads);
        p->dgate_up[t] = weft_arena_take(&mlp, m * 2 * weft_block_ff(s, t),
                                         element);
        p->dqkv_rounded[t] = weft_arena_take(arena, m * weft_block_qkv(s, t),
                                             element);
        for (int i = 0; s->qk_norm && i < 2; i++)
            p->norm_sum[i][t] = weft_arena_take(arena, m * s->head_dim,
                                                sizeof(float));
    }
    p->delta = weft_arena_take(arena, m * n_heads, sizeof(float));
    arena->used = mlp.used > arena->used ? mlp.used : arena->used;
}

size_t weft_k_part_backward_scratch_bytes_cuda(
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_k_batch *batch)
{
    struct weft_arena arena = {0};
    struct backward p = {.b = {.s = shape, .range = range, .batch = batch}};
    backward_at(&p, &arena);
    return arena.used;
}

static void begin(struct backward *p, const void *saved, float *dqkv,
                  void *scratch)
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

/* dx (M, K) in dtype = dy (M, n) W, for one block. */
static void block_dx(const struct backward *p,
                     const struct weft_layer_matrix *w, const void *dy,
                     enum weft_dtype dtype, void *dx)
{
    struct weft_k_gemm_args g = weft_layer_dx_args(&p->b, w, dy, dx);
    g.y_dtype = dtype;
    weft_k_gemm_cuda(p->gemm.stream, &g, p->gemm.scratch);
}

/* The matrix's gradient continues by dy^T x, sample by sample. */
static void block_dw(const struct backward *p,
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

static void mlp_block(const struct backward *p, int32_t t)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, ff = weft_block_ff(s, t);
    struct weft_layer_matrix down = weft_layer_matrix(b, t, WEFT_PART_DOWN);
    struct weft_layer_matrix gate_up = weft_layer_matrix(b, t,
                                                         WEFT_PART_GATE_UP);
    block_dx(p, &down, p->dy, WEFT_F32, p->dact);
    weft_k_swiglu_cuda(p->gemm.stream, s->dtype, m, ff, b->at.gate_up[t],
                       p->act);
    block_dw(p, &down, ff, p->dy, p->act);
    weft_k_swiglu_backward_cuda(p->gemm.stream, s->dtype, m, ff,
                                b->at.gate_up[t], p->dact, p->dgate_up[t]);
    block_dw(p, &gate_up, s->hidden, p->dgate_up[t], p->normed);
}

void weft_k_mlp_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const float *x_mid, const void *saved,
    const float *dx, float *const grad[], float *roots, void *scratch)
{
    struct backward p = {.b = {.s = s,
                               .range = range,
                               .batch = batch,
                               .weights = weights,
                               .grad = grad},
                         .gemm = {.stream = stream}};
    int64_t m = batch->n_rows, h = s->hidden;
    begin(&p, saved, NULL, scratch);
    weft_k_round_cuda(stream, s->dtype, m * h, dx, p.dy);
    weft_k_rmsnorm_cuda(stream, s->dtype, m, h, s->rms_eps, x_mid,
                        weft_layer_vector(s, WEFT_PART_NORM2, weights->norms),
                        p.normed);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        mlp_block(&p, t);
    weft_layer_dx_roots(&p.b, WEFT_PART_GATE_UP, p.dgate_up, roots,
                        weft_layer_gemm_cuda, &p.gemm);
}

/* ---- O product and heads ------------------------------------------------ */

static void attend(const struct backward *p, int32_t t, int32_t head,
                   int32_t n_kv, struct weft_heads readers)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    int64_t d = s->head_dim, q = weft_block_q(s, t);
    int64_t kv = weft_block_kv(s, t), first = readers.first * d;
    int64_t k = q + head * d;
    void *qkv = b->at.qkv[t];
    float *dqkv = p->dqkv[t];
    weft_k_attention_backward_cuda(
        p->gemm.stream,
        &(struct weft_attention_backward_cuda){
            .dtype = s->dtype,
            .head_dim = s->head_dim,
            .n_kv = n_kv,
            .n_group = readers.n,
            .n_runs = b->batch->n_runs,
            .max_rows = p->rows.max_rows,
            .run_rows = p->rows.run_rows,
            .first_row = p->rows.first_row,
            .q = weft_layer_at(s, qkv, first),
            .k = weft_layer_at(s, qkv, k),
            .v = weft_layer_at(s, qkv, k + kv),
            .ldqkv = q + 2 * kv,
            .out = weft_layer_at(s, b->at.att[t], first),
            .dout = (char *) p->datt
                  + (size_t) first * weft_dtype_bytes(datt_dtype(s)),
            .ldo = q,
            .lse = b->at.lse[t] + readers.first,
            .ldlse = s->block[t].n_heads,
            .scale = 1.0f / sqrtf((float) d),
            .delta = p->delta,
            .dq = dqkv + first,
            .dk = dqkv + k,
            .dv = dqkv + k + kv,
            .ldd = q + 2 * kv},
        b->batch->n_rows);
}

/* One sum of a shared head's rows (layer_heads_cpu.c). */
static void sum_heads(const struct weft_heads_sum *sum, void *context)
{
    const struct backward *p = context;
    const struct weft_shape *s = p->b.s;
    int64_t m = p->b.batch->n_rows, d = s->head_dim;
    struct weft_leaves_cuda leaves = {{NULL}, {0}};
    for (int32_t t = 0; t < sum->tree.n; t++) {
        leaves.x[t] = sum->x[sum->tree.first + t];
        leaves.ld[t] = sum->ld[sum->tree.first + t];
    }
    weft_sum_leaves_cuda(p->gemm.stream, m, d, &leaves, NULL, NULL, WEFT_F32,
                         sum->to, sum->ld_to);
    for (int32_t i = 0; i < sum->n_zero; i++)
        weft_columns_cuda(p->gemm.stream, sizeof(float), m, d, NULL, 0,
                          sum->zero[i], sum->ld_zero[i]);
}

void weft_k_heads_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const void *saved, const float *dx,
    float *const grad[], float *dqkv, float *shared, void *scratch)
{
    struct backward p = {.b = {.s = s,
                               .range = range,
                               .batch = batch,
                               .weights = weights,
                               .grad = grad},
                         .gemm = {.stream = stream}};
    int64_t m = batch->n_rows;
    begin(&p, saved, dqkv, scratch);
    weft_rows_cuda_fill(stream, s, batch, false, &p.rows, NULL);
    weft_k_round_cuda(stream, s->dtype, m * s->hidden, dx, p.dy);
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        struct weft_layer_matrix o = weft_layer_matrix(&p.b, t, WEFT_PART_O);
        int32_t n_kv = s->block[t].n_kv;
        block_dx(&p, &o, p.dy, datt_dtype(s), p.datt);
        block_dw(&p, &o, weft_block_q(s, t), p.dy, p.b.at.att[t]);
        if (weft_layer_heads_are_alike(s, t))
            attend(&p, t, 0, n_kv, weft_block_readers(s, t, 0));
        else
            for (int32_t head = 0; head < n_kv; head++)
                attend(&p, t, head, 1, weft_block_readers(s, t, head));
    }
    weft_layer_share_heads(s, range, m, p.dqkv, shared, sum_heads, &p);
}

/* ---- QKV product -------------------------------------------------------- */

/* norm_row() of layer_unrotate_cpu.c, for block t of all rows */
static void norm_heads(const struct backward *p, int32_t t)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    const float *norms = b->weights->norms;
    const float *w[2] = {weft_layer_vector(s, WEFT_PART_QNORM, norms),
                         weft_layer_vector(s, WEFT_PART_KNORM, norms)};
    int64_t m = b->batch->n_rows, d = s->head_dim, q = weft_block_q(s, t);
    int64_t ldx = q + weft_block_kv(s, t), ldg = weft_block_qkv(s, t);
    int64_t at = q, n_kv = s->block[t].n_kv;
    weft_head_norms_backward_cuda(p->gemm.stream, m, q / d, d, s->rms_eps,
                                  b->at.raw[t], ldx, w[0], p->dqkv[t], ldg,
                                  p->norm_sum[0][t]);
    if (weft_shape_kv_owner(s, s->block[t].kv0) != t) {
        if (t == b->range.first)
            weft_head_norms_backward_cuda(p->gemm.stream, m, 1, d, s->rms_eps,
                                          b->at.raw[t] + at, ldx, w[1],
                                          p->dqkv[t] + at, ldg, NULL);
        at += d;
        n_kv--;
    }
    weft_head_norms_backward_cuda(p->gemm.stream, m, n_kv, d, s->rms_eps,
                                  b->at.raw[t] + at, ldx, w[1],
                                  p->dqkv[t] + at, ldg, p->norm_sum[1][t]);
}

/* Norms of q's and k's heads backwards; writes the roots of the gradients of
 * their weights. */
static void norms_of_heads(const struct backward *p, float *head_norms)
{
    const struct weft_shape *s = p->b.s;
    int64_t m = p->b.batch->n_rows, d = s->head_dim;
    struct weft_range range = p->b.range, root[WEFT_MAX_ROOTS];
    int32_t n_roots = weft_k_roots(s->n_blocks, range, root);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        norm_heads(p, t);
    for (int32_t i = 0; i < 2 * n_roots; i++, head_norms += m * d) {
        struct weft_range r = root[i % n_roots];
        struct weft_leaves_cuda leaves = {{NULL}, {0}};
        for (int32_t t = 0; t < r.n; t++) {
            leaves.x[t] = p->norm_sum[i / n_roots][r.first + t];
            leaves.ld[t] = d;
        }
        weft_sum_leaves_cuda(p->gemm.stream, m, d, &leaves, NULL, NULL,
                             WEFT_F32, head_norms, d);
    }
}

static void qkv_weights(const struct backward *p, int32_t t)
{
    const struct weft_layer_backward *b = &p->b;
    int64_t m = b->batch->n_rows, n = weft_block_qkv(b->s, t);
    struct weft_layer_matrix w = weft_layer_matrix(b, t, WEFT_PART_QKV);
    struct weft_layout l;
    weft_layout_get(b->s, WEFT_TILE_LAYER, t, &l);
    const struct weft_part *bias = weft_layout_part(&l, WEFT_PART_QKV_BIAS);
    if (bias)
        weft_k_add_rows_cuda(p->gemm.stream, m, n, p->dqkv[t], n,
                             b->grad[t] + bias->offset);
    weft_k_round_cuda(p->gemm.stream, b->s->dtype, m * n, p->dqkv[t],
                      p->dqkv_rounded[t]);
    block_dw(p, &w, b->s->hidden, p->dqkv_rounded[t], p->normed);
}

/* drop_replica() of layer_attention_backward_cpu.c */
static void drop_replica(const struct backward *p)
{
    const struct weft_shape *s = p->b.s;
    int32_t t = p->b.range.first;
    int64_t m = p->b.batch->n_rows, ld = weft_block_qkv(s, t);
    int64_t k[2] = {weft_block_q(s, t),
                    weft_block_q(s, t) + weft_block_kv(s, t)};
    if (weft_shape_kv_owner(s, s->block[t].kv0) == t)
        return;
    for (int i = 0; i < 2; i++)
        weft_columns_cuda(p->gemm.stream, weft_dtype_bytes(s->dtype), m,
                          s->head_dim, NULL, 0,
                          weft_layer_at(s, p->dqkv_rounded[t], k[i]), ld);
}

void weft_k_qkv_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const float *x, const void *saved,
    int32_t n_members, const struct weft_k_shared *member, float *dqkv,
    float *const grad[], float *roots, float *head_norms, void *scratch)
{
    struct backward p = {.b = {.s = s,
                               .range = range,
                               .batch = batch,
                               .weights = weights,
                               .grad = grad},
                         .gemm = {.stream = stream}};
    int64_t m = batch->n_rows, d = s->head_dim;
    begin(&p, saved, dqkv, scratch);
    weft_rows_cuda_fill(stream, s, batch, false, &p.rows, NULL);
    weft_layer_join_heads(s, range, m, n_members, member, p.dqkv, sum_heads,
                          &p);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        weft_k_rope_cuda(stream, m, s->block[t].n_heads + s->block[t].n_kv, d,
                         weft_block_qkv(s, t), p.rows.cos_sin, p.rows.at,
                         true, p.dqkv[t]);
    if (s->qk_norm)
        norms_of_heads(&p, head_norms);
    weft_k_rmsnorm_cuda(stream, s->dtype, m, s->hidden, s->rms_eps, x,
                        weft_layer_vector(s, WEFT_PART_NORM1, weights->norms),
                        p.normed);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        qkv_weights(&p, t);
    drop_replica(&p);
    weft_layer_dx_roots(&p.b, WEFT_PART_QKV, p.dqkv_rounded, roots,
                        weft_layer_gemm_cuda, &p.gemm);
}

/* ---- Joins and norms ---------------------------------------------------- */

static int64_t joined_columns(const struct weft_shape *s)
{
    return weft_max64(s->hidden, s->qk_norm ? s->head_dim : 0);
}

size_t weft_k_norm_join_scratch_bytes_cuda(const struct weft_shape *s,
                                           int64_t n_rows)
{
    struct weft_arena arena = {0};
    weft_arena_take(&arena, n_rows, sizeof(float));
    weft_arena_take(&arena, n_rows * joined_columns(s), sizeof(float));
    return arena.used;
}

void weft_k_join_rows_cuda(struct CUstream_st *stream, int32_t n_blocks,
                           int32_t n_parts, const struct weft_k_part *part,
                           struct weft_range range, int64_t m, int64_t h,
                           const float *bias, const float *residual, float *y)
{
    struct weft_leaves_cuda leaves = {{NULL}, {0}};
    for (int32_t i = 0; i < n_parts; i++) {
        struct weft_range root[WEFT_MAX_ROOTS];
        int32_t n_roots = weft_k_roots(n_blocks, part[i].range, root);
        for (int32_t j = 0; j < n_roots; j++) {
            int32_t t = root[j].first - range.first;
            if (t < 0 || t >= range.n)
                continue;
            leaves.x[t] = part[i].roots + j * m * h;
            leaves.ld[t] = h;
        }
    }
    weft_sum_leaves_cuda(stream, m, h, &leaves, bias, residual, WEFT_F32, y,
                         h);
}

/* The sum (m, n) of parts that cover [0, T), in `to` or a single one's own. */
static const float *join(struct CUstream_st *stream,
                         const struct weft_shape *s, int32_t n_parts,
                         const struct weft_k_part *part, int64_t m, int64_t n,
                         float *to)
{
    if (n_parts == 1)
        return part->roots;
    weft_k_join_rows_cuda(stream, s->n_blocks, n_parts, part,
                          weft_all_blocks(s), m, n, NULL, NULL, to);
    return to;
}

void weft_k_norm_backward_cuda(struct CUstream_st *stream,
                               const struct weft_shape *s, bool attention,
                               const float *norms, int64_t n_rows,
                               const float *x, int32_t n_parts,
                               const struct weft_k_part *part,
                               const struct weft_k_part *head_norm, float *dx,
                               float *grad_norms, void *scratch)
{
    static const enum weft_part_id head_id[2] = {WEFT_PART_QNORM,
                                                 WEFT_PART_KNORM};
    enum weft_part_id id = attention ? WEFT_PART_NORM1 : WEFT_PART_NORM2;
    int64_t h = s->hidden, d = s->head_dim;
    struct weft_arena arena = {.base = scratch};
    float *inverse = weft_arena_take(&arena, n_rows, sizeof(float));
    float *joined = weft_arena_take(&arena, n_rows * joined_columns(s),
                                    sizeof(float));
    if (attention && s->o_bias && grad_norms)
        weft_k_add_rows_cuda(
            stream, n_rows, h, dx, h,
            weft_layer_grad(s, WEFT_PART_O_BIAS, grad_norms));
    for (int i = 0; head_norm && grad_norms && i < 2; i++)
        weft_k_add_rows_cuda(stream, n_rows, d,
                             join(stream, s, n_parts, head_norm + i * n_parts,
                                  n_rows, d, joined),
                             d, weft_layer_grad(s, head_id[i], grad_norms));
    weft_k_rmsnorm_backward_cuda(
        stream, n_rows, h, s->rms_eps, x, weft_layer_vector(s, id, norms),
        join(stream, s, n_parts, part, n_rows, h, joined), dx,
        weft_layer_grad(s, id, grad_norms), inverse);
}

/* ---- The whole ---------------------------------------------------------- */

struct whole {
    float *x_mid; /* recomputed: (M, H), then the saved part */
    float *dnormed, *dqkv, *head_norms;
    void *half; /* scratch of the recomputation, of the halves and norms */
};

static void whole_at(const struct weft_shape *s,
                     const struct weft_k_batch *batch, bool recompute,
                     struct weft_arena *arena, struct whole *w)
{
    struct weft_range all = weft_all_blocks(s);
    int64_t m = batch->n_rows;
    size_t half = weft_k_part_backward_scratch_bytes_cuda(s, all, batch);
    size_t norm = weft_k_norm_join_scratch_bytes_cuda(s, m);
    size_t forward = weft_k_part_forward_scratch_bytes_cuda(s, all, batch);
    half = norm > half ? norm : half;
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
    weft_k_mlp_backward_cuda(stream, s, all, weights, batch, x_mid, rest, dx,
                             grad, w.dnormed, w.half);
    weft_k_norm_backward_cuda(stream, s, false, weights->norms, m, x_mid, 1,
                              &part, NULL, dx, grad_norms, w.half);
    weft_k_heads_backward_cuda(stream, s, all, weights, batch, rest, dx, grad,
                               w.dqkv, NULL, w.half);
    weft_k_qkv_backward_cuda(stream, s, all, weights, batch, x, rest, 0, NULL,
                             w.dqkv, grad, w.dnormed, w.head_norms, w.half);
    weft_k_norm_backward_cuda(stream, s, true, weights->norms, m, x, 1, &part,
                              s->qk_norm ? head_norm : NULL, dx, grad_norms,
                              w.half);
}
