/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of a decoder layer backwards on a GPU, behind the join of what the
 * members of a tp group have of their gradient. */
#include "kern/layer_backward_cuda.h"
#include "kern/sum_blocks_cuda.h"

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

void weft_k_join_some_rows_cuda(struct CUstream_st *stream, int32_t n_blocks,
                                int32_t n_parts,
                                const struct weft_k_part *part,
                                struct weft_range range, int64_t m,
                                int64_t first, int64_t n, int64_t h,
                                const float *bias, const float *residual,
                                float *y)
{
    int64_t at = first * h;
    struct weft_leaves_cuda leaves = {{NULL}, {0}};
    for (int32_t i = 0; i < n_parts; i++) {
        struct weft_range root[WEFT_MAX_ROOTS];
        int32_t n_roots = weft_k_roots(n_blocks, part[i].range, root);
        for (int32_t j = 0; j < n_roots; j++) {
            int32_t t = root[j].first - range.first;
            if (t < 0 || t >= range.n)
                continue;
            leaves.x[t] = part[i].roots + j * m * h + at;
            leaves.ld[t] = h;
        }
    }
    weft_sum_leaves_cuda(stream, n, h, &leaves, bias,
                         residual ? residual + at : NULL, WEFT_F32, y + at,
                         h);
}

void weft_k_join_rows_cuda(struct CUstream_st *stream, int32_t n_blocks,
                           int32_t n_parts, const struct weft_k_part *part,
                           struct weft_range range, int64_t m, int64_t h,
                           const float *bias, const float *residual, float *y)
{
    weft_k_join_some_rows_cuda(stream, n_blocks, n_parts, part, range, m, 0,
                               m, h, bias, residual, y);
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

void weft_backward_norm_cuda(struct CUstream_st *stream,
                             const struct weft_shape *s,
                             const struct weft_norm_backward_cuda *a)
{
    static const enum weft_part_id head_id[2] = {WEFT_PART_QNORM,
                                                 WEFT_PART_KNORM};
    enum weft_part_id id = a->attention ? WEFT_PART_NORM1 : WEFT_PART_NORM2;
    int64_t m = a->n_rows, h = s->hidden, d = s->head_dim;
    if (a->attention && s->o_bias && a->grad_norms)
        weft_k_add_rows_cuda(
            stream, m, h, a->dx, h,
            weft_layer_grad(s, WEFT_PART_O_BIAS, a->grad_norms));
    for (int i = 0; a->head_norm && a->grad_norms && i < 2; i++)
        weft_k_add_rows_cuda(
            stream, m, d,
            join(stream, s, a->n_parts, a->head_norm + i * a->n_parts, m, d,
                 a->joined),
            d, weft_layer_grad(s, head_id[i], a->grad_norms));
    weft_norm_backward_cuda(
        stream, s->dtype, m, h, s->rms_eps, a->x,
        weft_layer_vector(s, id, a->norms),
        join(stream, s, a->n_parts, a->part, m, h, a->joined), a->dx,
        weft_layer_grad(s, id, a->grad_norms), a->rounded, a->inverse);
}

void weft_k_norm_backward_cuda(struct CUstream_st *stream,
                               const struct weft_shape *s, bool attention,
                               const float *norms, int64_t n_rows,
                               const float *x, int32_t n_parts,
                               const struct weft_k_part *part,
                               const struct weft_k_part *head_norm, float *dx,
                               float *grad_norms, void *scratch)
{
    struct weft_arena arena = {.base = scratch};
    struct weft_norm_backward_cuda a = {.attention = attention,
                                        .n_rows = n_rows,
                                        .norms = norms,
                                        .x = x,
                                        .n_parts = n_parts,
                                        .part = part,
                                        .head_norm = head_norm,
                                        .dx = dx,
                                        .grad_norms = grad_norms};
    a.inverse = weft_arena_take(&arena, n_rows, sizeof(float));
    a.joined = weft_arena_take(&arena, n_rows * joined_columns(s),
                               sizeof(float));
    weft_backward_norm_cuda(stream, s, &a);
}
