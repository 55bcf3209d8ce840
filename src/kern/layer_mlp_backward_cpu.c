/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of a decoder layer's MLP half and of the norm before it. */
#include "kern/layer_backward.h"

struct mlp {
    struct weft_layer_backward b;
    void *normed, *dy;               /* (M, H) in dtype */
    float *dact;                     /* (M, ff) of one block */
    void *act;                       /* (M, ff) in dtype */
    void *dgate_up[WEFT_MAX_BLOCKS]; /* (M, 2 ff) in dtype */
};

static void mlp_at(struct mlp *p, struct weft_arena *arena)
{
    const struct weft_shape *s = p->b.s;
    struct weft_range range = p->b.range;
    int64_t m = p->b.batch->n_rows;
    int64_t ff = weft_layer_widest(s, range, weft_block_ff);
    size_t element = weft_dtype_bytes(s->dtype);
    weft_layer_backward_at(&p->b, arena);
    p->normed = weft_arena_take(arena, m * s->hidden, element);
    p->dy = weft_arena_take(arena, m * s->hidden, element);
    p->dact = weft_arena_take(arena, m * ff, sizeof(float));
    p->act = weft_arena_take(arena, m * ff, element);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        p->dgate_up[t] = weft_arena_take(arena, m * 2 * weft_block_ff(s, t),
                                         element);
}

size_t weft_layer_mlp_scratch_bytes(const struct weft_shape *shape,
                                    struct weft_range range,
                                    const struct weft_k_batch *batch)
{
    struct mlp p = {.b = {.s = shape, .range = range, .batch = batch}};
    struct weft_arena arena = {0};
    mlp_at(&p, &arena);
    return arena.used;
}

static void block_backward(const struct mlp *p, int32_t t)
{
    const struct weft_layer_backward *b = &p->b;
    const struct weft_shape *s = b->s;
    int64_t m = b->batch->n_rows, ff = weft_block_ff(s, t);
    struct weft_layer_matrix down = weft_layer_matrix(b, t, WEFT_PART_DOWN);
    struct weft_layer_matrix gate_up = weft_layer_matrix(b, t,
                                                         WEFT_PART_GATE_UP);
    weft_layer_dx(b, &down, p->dy, p->dact);
    b->rows->swiglu(s->dtype, m, ff, b->at.gate_up[t], p->act);
    weft_layer_dw(b, &down, ff, p->dy, p->act);
    b->rows->swiglu_backward(s->dtype, m, ff, b->at.gate_up[t], p->dact,
                             p->dgate_up[t]);
    weft_layer_dw(b, &gate_up, s->hidden, p->dgate_up[t], p->normed);
}

void weft_k_mlp_backward(const struct weft_shape *s, struct weft_range range,
                         const struct weft_k_layer *weights,
                         const struct weft_k_batch *batch, const float *x_mid,
                         const void *saved, const float *dx,
                         float *const grad[], float *roots, void *scratch)
{
    struct mlp p = {.b = {.s = s,
                          .range = range,
                          .batch = batch,
                          .weights = weights,
                          .grad = grad}};
    struct weft_arena arena = {.base = scratch};
    int64_t m = batch->n_rows, h = s->hidden;
    const float *norm = weft_layer_vector(s, WEFT_PART_NORM2, weights->norms);
    mlp_at(&p, &arena);
    weft_layer_backward_begin(&p.b, saved);
    p.b.rows->round(s->dtype, m * h, dx, p.dy);
    p.b.rows->rmsnorm(s->dtype, m, h, s->rms_eps, x_mid, norm, p.normed);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        block_backward(&p, t);
    weft_layer_dx_roots(&p.b, WEFT_PART_GATE_UP, p.dgate_up, roots,
                        weft_layer_gemm, NULL);
}

void weft_k_mlp_norm_backward(const struct weft_shape *s, const float *norms,
                              int64_t n_rows, const float *x_mid,
                              int32_t n_parts, const struct weft_k_part *part,
                              float *dx, float *grad_norms, void *scratch)
{
    int64_t h = s->hidden;
    weft_k_rmsnorm_backward(
        n_rows, h, s->rms_eps, x_mid,
        weft_layer_vector(s, WEFT_PART_NORM2, norms),
        weft_layer_joined(s->n_blocks, n_parts, part, n_rows * h, scratch),
        dx, weft_layer_grad(s, WEFT_PART_NORM2, grad_norms));
}
