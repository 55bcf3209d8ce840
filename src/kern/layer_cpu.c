/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward pass of a decoder layer, of a range of its blocks or all of them:
 *
 *     x -> norm -> q, k, v (block by block) -> norm of q, k -> RoPE
 *       -> attention -> O product (T tree) + x = x_mid
 *       -> norm -> gate, up -> silu(gate) up -> down product (T tree) + x_mid
 *
 * Rounded to the run's dtype are the norms' outputs, q, k, v after RoPE,
 * attention's output, gate, up and their product; all else is f32. Rows are
 * computed in chunks, which changes no bit, as only attention reads other
 * rows. The whole layer computes a chunk from the O product to the end at
 * once; a part ends at each sum over blocks, of which it makes the roots.
 */
#include "kern/layer_forward.h"

/* ---- Sums over blocks --------------------------------------------------- */

void weft_layer_add_up(const struct weft_layer_forward *f,
                       struct weft_k_gemm_args *g, int64_t r, int64_t n,
                       const struct weft_layer_sum *to)
{
    int64_t h = f->s->hidden;
    g->dtype = f->s->dtype;
    g->y_dtype = WEFT_F32;
    g->m = n;
    g->n = g->ldy = h;
    g->n_blocks = f->s->n_blocks;
    g->bias = to->bias;
    g->residual = to->residual ? to->residual + r * h : NULL;
    g->y = to->y + r * h;
    weft_layer_gemm_roots(g, f->range, f->batch->n_rows * h, f->gemm,
                          f->gemm_context);
}

void weft_layer_project_o(const struct weft_layer_forward *f, int64_t r,
                          int64_t n, const struct weft_layer_sum *to)
{
    struct weft_k_gemm_args g = {0};
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        g.k[t] = g.ldx[t] = weft_block_q(f->s, t);
        g.x[t] = weft_layer_at(f->s, f->at.att[t], r * g.k[t]);
        g.w[t] = f->o[t];
    }
    weft_layer_add_up(f, &g, r, n, to);
}

/* The MLP for rows r..r + n - 1; to->y NULL: only gate and up. */
static void mlp(const struct weft_layer_forward *f, int64_t r, int64_t n,
                const float *x_mid, const struct weft_layer_sum *to)
{
    const struct weft_shape *s = f->s;
    struct weft_k_gemm_args g = {0};
    int64_t h = s->hidden;
    f->rows->rmsnorm(s->dtype, n, h, s->rms_eps, x_mid + r * h, f->norm2,
                     f->normed);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        int64_t ff = weft_block_ff(s, t);
        void *gate_up = weft_layer_at(f->s, f->at.gate_up[t],
                                      f->all_gate_up ? r * 2 * ff : 0);
        weft_k_gemm(&(struct weft_k_gemm_args){.dtype = s->dtype,
                                               .y_dtype = s->dtype,
                                               .m = n,
                                               .n = 2 * ff,
                                               .n_blocks = 1,
                                               .x = {f->normed},
                                               .ldx = {h},
                                               .w = {f->gate_up[t]},
                                               .k = {h},
                                               .y = gate_up,
                                               .ldy = 2 * ff});
        if (to->y)
            f->rows->swiglu(s->dtype, n, ff, gate_up, f->act[t]);
        g.k[t] = g.ldx[t] = ff;
        g.x[t] = f->act[t];
        g.w[t] = f->down[t];
    }
    if (to->y)
        weft_layer_add_up(f, &g, r, n, to);
}

/* ---- Parts and whole ---------------------------------------------------- */

void weft_k_attention_forward(const struct weft_shape *shape,
                              struct weft_range range,
                              const struct weft_k_layer *weights,
                              int32_t layer, const struct weft_k_batch *batch,
                              const struct weft_k_kv *kv, const float *x,
                              void *saved, float *roots, void *scratch)
{
    struct weft_layer_forward f = {
        .s = shape, .range = range, .w = weights, .batch = batch};
    weft_layer_forward_begin(&f, saved, scratch);
    weft_layer_attention(&f, layer, kv, x);
    weft_layer_project_o(&f, 0, batch->n_rows,
                         &(struct weft_layer_sum){.y = roots});
}

void weft_k_mlp_forward(const struct weft_shape *shape,
                        struct weft_range range,
                        const struct weft_k_layer *weights,
                        const struct weft_k_batch *batch, const float *x_mid,
                        void *saved, float *roots, void *scratch)
{
    struct weft_layer_forward f = {
        .s = shape, .range = range, .w = weights, .batch = batch};
    struct weft_layer_sum to = {.y = roots};
    weft_layer_forward_begin(&f, saved, scratch);
    for (int64_t r = 0; r < batch->n_rows; r += WEFT_CHUNK_ROWS)
        mlp(&f, r, weft_min64(WEFT_CHUNK_ROWS, batch->n_rows - r), x_mid,
            &to);
}

static void forward(struct weft_layer_forward *f, int32_t layer,
                    const struct weft_k_kv *kv, const float *x, float *y,
                    void *saved, void *scratch)
{
    int64_t n_rows = f->batch->n_rows;
    size_t before = saved ? weft_layer_x_mid_bytes(f->s, n_rows) : 0;
    float *x_mid = saved ? saved : y;
    f->range = weft_all_blocks(f->s);
    weft_layer_forward_begin(f, saved ? (char *) saved + before : NULL,
                             scratch);
    weft_layer_attention(f, layer, kv, x);
    struct weft_layer_sum mid = {weft_k_o_bias(f->s, f->w->norms), x, x_mid};
    struct weft_layer_sum end = {NULL, x_mid, y};
    for (int64_t r = 0; r < n_rows; r += WEFT_CHUNK_ROWS) {
        int64_t n = weft_min64(WEFT_CHUNK_ROWS, n_rows - r);
        weft_layer_project_o(f, r, n, &mid);
        mlp(f, r, n, x_mid, &end);
    }
}

void weft_k_layer_forward(const struct weft_shape *shape,
                          const struct weft_k_layer *weights, int32_t layer,
                          const struct weft_k_batch *batch,
                          const struct weft_k_kv *kv, const float *x,
                          float *y, void *saved, void *scratch)
{
    struct weft_layer_forward f = {.s = shape, .w = weights, .batch = batch};
    forward(&f, layer, kv, x, y, saved, scratch);
}

void weft_layer_recompute(const struct weft_shape *shape,
                          const struct weft_k_layer *weights,
                          const struct weft_k_batch *batch, const float *x,
                          void *saved, void *scratch)
{
    struct weft_layer_forward f = {.s = shape, .w = weights, .batch = batch};
    forward(&f, 0, NULL, x, NULL, saved, scratch);
}
