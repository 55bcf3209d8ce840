/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of q, k and v between attention and the product that made
 * them: what blocks share is joined, then back through RoPE and norms.
 */
#include "kern/layer.h"

#include <string.h>

#include "kern/rows.h"

/* Joins the partial dk or dv of a head that several blocks read, by the T
 * tree, into its owner, and clears the others. */
static void join_head(const struct weft_shape *s, int64_t m,
                      float *const dqkv[], int32_t kv, bool is_v)
{
    int64_t d = s->head_dim;
    float *part[WEFT_MAX_BLOCKS] = {NULL};
    for (int32_t t = 0; t < s->n_blocks; t++) {
        int32_t i = kv - s->block[t].kv0;
        if (i >= 0 && i < s->block[t].n_kv)
            part[t] = dqkv[t] + weft_block_q(s, t) + i * d
                    + (is_v ? weft_block_kv(s, t) : 0);
    }
    for (int32_t step = 1; step < s->n_blocks; step *= 2)
        for (int32_t t = 0; t + step < s->n_blocks; t += 2 * step) {
            int32_t from = t + step; /* the root of its subtree */
            while (from < t + 2 * step && from < s->n_blocks && !part[from])
                from++;
            int32_t to = t;
            while (to < t + step && !part[to])
                to++;
            if (to == t + step || from == t + 2 * step || from == s->n_blocks)
                continue;
            int64_t ldt = weft_block_qkv(s, to);
            int64_t ldf = weft_block_qkv(s, from);
            for (int64_t r = 0; r < m; r++) {
                weft_k_add(part[to] + r * ldt, part[from] + r * ldf,
                           (size_t) d);
                memset(part[from] + r * ldf, 0, (size_t) d * sizeof(float));
            }
            part[from] = NULL;
        }
}

void weft_layer_join_heads(const struct weft_shape *s, int64_t m,
                           float *const dqkv[])
{
    for (int32_t t = 1; t < s->n_blocks; t++) {
        int32_t kv = s->block[t].kv0;
        if (weft_shape_kv_owner(s, kv) != t - 1)
            continue;
        join_head(s, m, dqkv, kv, false);
        join_head(s, m, dqkv, kv, true);
    }
}

/* The heads of one row in every block: n[t] heads at g[t] (gradient), x[t]
 * (before the norm). */
struct row_heads {
    int64_t n[WEFT_MAX_BLOCKS];
    const float *x[WEFT_MAX_BLOCKS];
    float *g[WEFT_MAX_BLOCKS];
};

/* Through their norm. The weight's gradient of a row joins the blocks by the
 * T tree before it continues the chain over rows. */
static void norm_heads(const struct weft_layer_unrotate *u,
                       const struct row_heads *heads, const float *w,
                       float *grad)
{
    const struct weft_shape *s = u->s;
    const struct weft_row_ops *rows = weft_row_ops();
    int64_t d = s->head_dim;
    memset(u->sum, 0, (size_t) (s->n_blocks * d) * sizeof(float));
    for (int32_t t = 0; t < s->n_blocks; t++) {
        size_t bytes = (size_t) (heads->n[t] * d) * sizeof(float);
        memset(u->row, 0, bytes);
        rows->rmsnorm_backward(heads->n[t], d, s->rms_eps, heads->x[t], w,
                               heads->g[t], u->row, u->sum + t * d);
        memcpy(heads->g[t], u->row, bytes);
    }
    for (int32_t step = 1; step < s->n_blocks; step *= 2)
        for (int32_t t = 0; t + step < s->n_blocks; t += 2 * step)
            weft_k_add(u->sum + t * d, u->sum + (t + step) * d, (size_t) d);
    weft_k_add(grad, u->sum, (size_t) d);
}

static void norm_row(const struct weft_layer_unrotate *u, int64_t row)
{
    const struct weft_shape *s = u->s;
    int64_t d = s->head_dim;
    struct row_heads q, k;
    for (int32_t t = 0; t < s->n_blocks; t++) {
        const struct weft_block *block = &s->block[t];
        int64_t n_q = weft_block_q(s, t), n_kv = weft_block_kv(s, t);
        /* Only the owner knows dk; a replica can only come first. */
        bool owner = weft_shape_kv_owner(s, block->kv0) == t;
        int64_t skip = n_q + (owner ? 0 : d);
        q.n[t] = block->n_heads;
        q.x[t] = u->raw[t] + row * (n_q + n_kv);
        q.g[t] = u->dqkv[t] + row * (n_q + 2 * n_kv);
        k.n[t] = block->n_kv - (owner ? 0 : 1);
        k.x[t] = q.x[t] + skip;
        k.g[t] = q.g[t] + skip;
    }
    norm_heads(u, &q, u->qnorm, u->grad_qnorm);
    norm_heads(u, &k, u->knorm, u->grad_knorm);
}

void weft_layer_unrotate(const struct weft_layer_unrotate *u)
{
    const struct weft_shape *s = u->s;
    const struct weft_row_ops *rows = weft_row_ops();
    int64_t d = s->head_dim, row = 0;
    for (int32_t i = 0; i < u->batch->n_runs; i++)
        for (int32_t j = 0; j < u->batch->run[i].n; j++, row++) {
            const float *cos_sin = u->rope->cos_sin
                                 + (u->rope->first[i] + j) * d;
            for (int32_t t = 0; t < s->n_blocks; t++)
                rows->rope(s->block[t].n_heads + s->block[t].n_kv, d, cos_sin,
                           true, u->dqkv[t] + row * weft_block_qkv(s, t));
            if (u->qnorm)
                norm_row(u, row);
        }
}
