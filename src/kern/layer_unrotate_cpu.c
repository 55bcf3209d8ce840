/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of RoPE and of q's and k's norms. */
#include "kern/layer.h"

#include <string.h>

#include "kern/rows.h"

/* Backward pass of the norm for n heads of a row: g (n, D) is overwritten by
 * the gradient of the norm's input x. sum (D): the gradient of the weight is
 * added (NULL: not wanted). */
static void norm_heads(const struct weft_layer_unrotate *u, int64_t n,
                       const float *x, const float *w, float *g, float *sum)
{
    int64_t d = u->s->head_dim;
    size_t bytes = (size_t) (n * d) * sizeof *g;
    memset(u->row, 0, bytes);
    weft_row_ops()->rmsnorm_backward(n, d, u->s->rms_eps, x, w, g, u->row,
                                     sum);
    memcpy(g, u->row, bytes);
}

/* Writes the roots of one row's gradients of the norms' weights: blocks are
 * added by the tree first, rows by a chain later. */
static void norm_roots(const struct weft_layer_unrotate *u, int64_t row)
{
    const struct weft_shape *s = u->s;
    int64_t d = s->head_dim, m = u->batch->n_rows;
    struct weft_range root[WEFT_MAX_ROOTS];
    int32_t n_roots = weft_k_roots(s->n_blocks, u->range, root);
    for (int32_t i = 0; i < 2 * n_roots; i++) {
        const struct weft_range *r = &root[i % n_roots];
        float *leaf[WEFT_MAX_BLOCKS];
        for (int32_t t = 0; t < r->n; t++)
            leaf[t] = u->sum + (i / n_roots * s->n_blocks + r->first + t) * d;
        memcpy(u->head_norms + (i * m + row) * d,
               weft_layer_tree(leaf, r->n, (size_t) d),
               (size_t) d * sizeof(float));
    }
}

static void norm_row(const struct weft_layer_unrotate *u, int64_t row)
{
    const struct weft_shape *s = u->s;
    int64_t d = s->head_dim;
    float *sum_q = u->sum, *sum_k = u->sum + s->n_blocks * d;
    memset(u->sum, 0, (size_t) (2 * s->n_blocks * d) * sizeof *u->sum);
    for (int32_t t = u->range.first; t < weft_range_end(u->range); t++) {
        int64_t n_q = weft_block_q(s, t), n_kv = s->block[t].n_kv;
        const float *x = u->raw[t] + row * (n_q + n_kv * d);
        float *g = u->dqkv[t] + row * weft_block_qkv(s, t);
        norm_heads(u, n_q / d, x, u->qnorm, g, sum_q + t * d);
        x += n_q;
        g += n_q;
        if (weft_shape_kv_owner(s, s->block[t].kv0) != t) {
            /* This block's first KV head is a replica. Its gradient is kept if
             * the block is the range's first; the norm's weight receives its
             * share from the owner alone. */
            if (t == u->range.first)
                norm_heads(u, 1, x, u->knorm, g, NULL);
            x += d;
            g += d;
            n_kv--;
        }
        norm_heads(u, n_kv, x, u->knorm, g, sum_k + t * d);
    }
    norm_roots(u, row);
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
            for (int32_t t = u->range.first; t < weft_range_end(u->range);
                 t++)
                rows->rope(s->block[t].n_heads + s->block[t].n_kv, d, cos_sin,
                           true, u->dqkv[t] + row * weft_block_qkv(s, t));
            if (u->qnorm)
                norm_row(u, row);
        }
}
