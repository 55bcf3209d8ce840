/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of a decoder layer's attention on a GPU: what
 * layer_attention_backward_cpu.c does, in the same order. */
#include <math.h>

#include "kern/attention_cuda.h"
#include "kern/layer_backward_cuda.h"
#include "kern/sum_blocks_cuda.h"

/* ---- O product and heads ------------------------------------------------ */

/* Attention of the KV heads head.. head + n_kv - 1 of n blocks from t on, each
 * read by `readers.n` query heads, the first of them readers.first. */
static void attend(const struct weft_backward_cuda *p,
                   struct weft_range blocks, int32_t head, int32_t n_kv,
                   struct weft_heads readers)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    int64_t d = s->head_dim, q = weft_block_q(s, blocks.first);
    int64_t kv = weft_block_kv(s, blocks.first), first = readers.first * d;
    int64_t k = q + head * d;
    size_t element = weft_dtype_bytes(weft_backward_datt_dtype(s));
    struct weft_attention_backward_cuda a = {
        .dtype = s->dtype,
        .head_dim = s->head_dim,
        .n_kv = n_kv,
        .n_group = readers.n,
        .n_runs = b->batch->n_runs,
        .max_rows = p->rows.max_rows,
        .run_rows = p->rows.run_rows,
        .first_row = p->rows.first_row,
        .ldqkv = q + 2 * kv,
        .ldo = q,
        .ldlse = s->block[blocks.first].n_heads,
        .ldd = q + 2 * kv,
        .scale = 1.0f / sqrtf((float) d)};
    for (int32_t t = blocks.first; t < weft_range_end(blocks); t++)
        a.block[a.n_blocks++] = (struct weft_attention_backward_block){
            .q = weft_layer_at(s, b->at.qkv[t], first),
            .k = weft_layer_at(s, b->at.qkv[t], k),
            .v = weft_layer_at(s, b->at.qkv[t], k + kv),
            .out = weft_layer_at(s, b->at.att[t], first),
            .dout = (char *) p->datt[t] + (size_t) first * element,
            .lse = b->at.lse[t] + readers.first,
            .delta = p->delta[t],
            .dq = p->dqkv[t] + first,
            .dk = p->dqkv[t] + k,
            .dv = p->dqkv[t] + k + kv};
    weft_k_attention_backward_cuda(p->gemm.stream, &a, b->batch->n_rows);
}

/* One sum of a shared head's rows (layer_heads_cpu.c). */
static void sum_heads(const struct weft_heads_sum *sum, void *context)
{
    const struct weft_backward_cuda *p = context;
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

void weft_backward_heads_cuda(struct weft_backward_cuda *p, float *shared)
{
    const struct weft_shape *s = p->b.s;
    struct weft_range range = p->b.range;
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        struct weft_layer_matrix o = weft_layer_matrix(&p->b, t, WEFT_PART_O);
        weft_backward_dx_cuda(p, &o, p->dy, weft_backward_datt_dtype(s),
                              p->datt[t]);
        weft_backward_dw_cuda(p, &o, weft_block_q(s, t), p->dy,
                              p->b.at.att[t]);
    }
    if (weft_layer_blocks_are_alike(s, range))
        attend(p, range, 0, s->block[range.first].n_kv,
               weft_block_readers(s, range.first, 0));
    else
        for (int32_t t = range.first; t < weft_range_end(range); t++)
            for (int32_t head = 0; head < s->block[t].n_kv; head++)
                attend(p, (struct weft_range){t, 1}, head, 1,
                       weft_block_readers(s, t, head));
    weft_layer_share_heads(s, range, p->b.batch->n_rows, p->dqkv, shared,
                           sum_heads, p);
}

void weft_k_heads_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const void *saved, const float *dx,
    float *const grad[], float *dqkv, float *shared, void *scratch)
{
    struct weft_backward_cuda p = weft_backward_of_cuda(stream, s, range,
                                                        weights, batch, grad);
    weft_backward_begin_cuda(&p, saved, dqkv, scratch);
    weft_rows_cuda_fill(stream, s, batch, false, &p.rows, NULL);
    weft_k_round_cuda(stream, s->dtype, batch->n_rows * s->hidden, dx, p.dy);
    weft_backward_heads_cuda(&p, shared);
}

/* ---- QKV product -------------------------------------------------------- */

/* norm_row() of layer_unrotate_cpu.c, for block t of all rows */
static void norm_heads(const struct weft_backward_cuda *p, int32_t t)
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
static void norms_of_heads(const struct weft_backward_cuda *p,
                           float *head_norms)
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

static void qkv_biases(const struct weft_backward_cuda *p)
{
    const struct weft_shape *s = p->b.s;
    struct weft_row_sums_cuda sums = {0};
    struct weft_range range = p->b.range;
    for (int32_t t = range.first; s->qkv_bias && t < weft_range_end(range);
         t++) {
        struct weft_layout l;
        int32_t i = sums.n_blocks++;
        weft_layout_get(s, WEFT_TILE_LAYER, t, &l);
        sums.x[i] = p->dqkv[t];
        sums.n[i] = sums.ld[i] = weft_block_qkv(s, t);
        sums.sum[i] = p->b.grad[t]
                    + weft_layout_part(&l, WEFT_PART_QKV_BIAS)->offset;
    }
    weft_add_rows_cuda(p->gemm.stream, p->b.batch->n_rows, &sums);
}

static void qkv_weights(const struct weft_backward_cuda *p, int32_t t)
{
    const struct weft_layer_backward *b = &p->b;
    int64_t m = b->batch->n_rows, n = weft_block_qkv(b->s, t);
    struct weft_layer_matrix w = weft_layer_matrix(b, t, WEFT_PART_QKV);
    if (b->s->qk_norm) /* otherwise when it was rotated */
        weft_k_round_cuda(p->gemm.stream, b->s->dtype, m * n, p->dqkv[t],
                          p->dqkv_rounded[t]);
    weft_backward_dw_cuda(p, &w, b->s->hidden, p->dqkv_rounded[t], p->normed);
}

/* drop_replica() of layer_attention_backward_cpu.c */
static void drop_replica(const struct weft_backward_cuda *p)
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

/* Back by the angles of positions, and into the dtype, unless norms of heads
 * come first. */
static void unrotate(const struct weft_backward_cuda *p)
{
    const struct weft_shape *s = p->b.s;
    struct weft_range range = p->b.range;
    struct weft_unrotate_cuda a = {.n_blocks = range.n};
    for (int32_t i = 0; i < range.n; i++) {
        int32_t t = range.first + i;
        a.block[i] = (struct weft_unrotate_block_cuda){
            .x = p->dqkv[t],
            .rounded = s->qk_norm ? NULL : p->dqkv_rounded[t],
            .n_heads = s->block[t].n_heads + 2 * s->block[t].n_kv,
            .n_rotated = s->block[t].n_heads + s->block[t].n_kv};
    }
    weft_unrotate_cuda(p->gemm.stream, s->dtype, p->b.batch->n_rows,
                       s->head_dim, p->rows.cos_sin, &a);
}

void weft_backward_qkv_cuda(struct weft_backward_cuda *p, const float *x,
                            int32_t n_members,
                            const struct weft_k_shared *member, float *roots,
                            float *head_norms)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows;
    weft_layer_join_heads(s, b->range, m, n_members, member, p->dqkv,
                          sum_heads, p);
    unrotate(p);
    if (s->qk_norm)
        norms_of_heads(p, head_norms);
    weft_k_rmsnorm_cuda(
        p->gemm.stream, s->dtype, m, s->hidden, s->rms_eps, x,
        weft_layer_vector(s, WEFT_PART_NORM1, b->weights->norms), p->normed);
    qkv_biases(p);
    for (int32_t t = b->range.first; t < weft_range_end(b->range); t++)
        qkv_weights(p, t);
    drop_replica(p);
    weft_layer_dx_roots(b, WEFT_PART_QKV, p->dqkv_rounded, roots,
                        weft_layer_gemm_cuda, &p->gemm);
}

void weft_k_qkv_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const float *x, const void *saved,
    int32_t n_members, const struct weft_k_shared *member, float *dqkv,
    float *const grad[], float *roots, float *head_norms, void *scratch)
{
    struct weft_backward_cuda p = weft_backward_of_cuda(stream, s, range,
                                                        weights, batch, grad);
    weft_backward_begin_cuda(&p, saved, dqkv, scratch);
    weft_rows_cuda_fill(stream, s, batch, false, &p.rows, NULL);
    weft_backward_qkv_cuda(&p, x, n_members, member, roots, head_norms);
}
