/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roots: the subtrees of the T tree that lie inside a range of blocks, and
 * their join. Roots are joined from left to right, as a binary counter counts:
 * a root that is the right child of the last root's parent is added to it at
 * once, and the sum is the parent:
 *
 *     [0, 3) of T = 8    01 2
 *     + [3, 8): 3        01 2+3       0123
 *               4567     0123+4567    01234567
 */
#include "kern/layer.h"

#include <string.h>

#include "kern/ops.h"

/* floats of each root joined at a time, so that pending ones stay in cache */
enum { STRIP = 1024 };

_Static_assert(1 << (WEFT_MAX_ROOTS / 2 + 1) == WEFT_MAX_BLOCKS,
               "roots of all but the first and the last block");

int32_t weft_k_roots(int32_t n_blocks, struct weft_range range,
                     struct weft_range root_out[WEFT_MAX_ROOTS])
{
    int32_t n_roots = 0, end = range.first + range.n;
    weft_assert(range.first >= 0 && end <= n_blocks);
    for (int32_t t = range.first; t < end; t += root_out[n_roots++].n) {
        int32_t n = 1;
        while (t % (2 * n) == 0 && t + 2 * n <= end)
            n *= 2;
        root_out[n_roots] = (struct weft_range){t, n};
    }
    return n_roots;
}

/* Roots that wait for their right sibling. */
struct pending {
    int32_t n;
    struct weft_range root[WEFT_MAX_ROOTS];
    _Alignas(64) float sum[WEFT_MAX_ROOTS][STRIP];
};

/* Adds the next root in block order, n floats of it. */
static void push(struct pending *p, struct weft_range root, const float *x,
                 size_t n)
{
    const struct weft_k_ops *ops = weft_k_ops();
    while (p->n > 0) {
        struct weft_range *left = &p->root[p->n - 1];
        if (left->n != root.n || left->first % (2 * root.n) != 0)
            break;
        ops->add(p->sum[p->n - 1], x, n);
        root = (struct weft_range){left->first, 2 * root.n};
        x = p->sum[--p->n];
    }
    if (x != p->sum[p->n])
        memcpy(p->sum[p->n], x, n * sizeof *x);
    p->root[p->n++] = root;
}

void weft_k_join(int32_t n_blocks, int32_t n_parts,
                 const struct weft_k_part *part, int64_t n, float *out)
{
    struct pending pending;
    for (int64_t at = 0; at < n; at += STRIP) {
        size_t some = (size_t) weft_min64(STRIP, n - at);
        pending.n = 0;
        for (int32_t i = 0; i < n_parts; i++) {
            struct weft_range root[WEFT_MAX_ROOTS];
            int32_t n_roots = weft_k_roots(n_blocks, part[i].range, root);
            for (int32_t j = 0; j < n_roots; j++)
                push(&pending, root[j], part[i].roots + j * n + at, some);
        }
        for (int32_t j = 0; j < pending.n; j++)
            memcpy(out + j * n + at, pending.sum[j], some * sizeof *out);
    }
}

const float *weft_layer_joined(int32_t n_blocks, int32_t n_parts,
                               const struct weft_k_part *part, int64_t n,
                               void *scratch)
{
    if (n_parts == 1)
        return part->roots;
    weft_k_join(n_blocks, n_parts, part, n, scratch);
    return scratch;
}

void weft_k_join_rows(int32_t n_blocks, int32_t n_parts,
                      const struct weft_k_part *part, int64_t m, int64_t h,
                      const float *bias, const float *residual, float *y,
                      void *scratch)
{
    const struct weft_k_ops *ops = weft_k_ops();
    const float *sum = weft_layer_joined(n_blocks, n_parts, part, m * h,
                                         scratch);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < h; j += WEFT_PANEL) {
            int64_t at = i * h + j;
            ops->finish(weft_min64(WEFT_PANEL, h - j), sum + at,
                        bias ? bias + j : NULL,
                        residual ? residual + at : NULL, WEFT_F32, y + at);
        }
}

void weft_layer_gemm(const struct weft_k_gemm_args *args, void *context)
{
    (void) context;
    weft_k_gemm(args);
}

void weft_layer_gemm_roots(const struct weft_k_gemm_args *all,
                           struct weft_range range, int64_t stride,
                           weft_layer_gemm_fn gemm, void *context)
{
    struct weft_range root[WEFT_MAX_ROOTS];
    int32_t n_roots = weft_k_roots(all->n_blocks, range, root);
    for (int32_t i = 0; i < n_roots; i++) {
        struct weft_k_gemm_args one = *all;
        one.n_blocks = root[i].n;
        one.y = (float *) all->y + i * stride;
        for (int32_t b = 0; b < root[i].n; b++) {
            int32_t t = root[i].first + b;
            one.x[b] = all->x[t];
            one.ldx[b] = all->ldx[t];
            one.w[b] = all->w[t];
            one.k[b] = all->k[t];
            one.kstride[b] = all->kstride[t];
        }
        gemm(&one, context);
    }
}

float *weft_layer_tree(float *leaf[], int32_t n_leaves, size_t n)
{
    for (int32_t step = 1; step < n_leaves; step *= 2)
        for (int32_t t = 0; t + step < n_leaves; t += 2 * step)
            if (!leaf[t])
                leaf[t] = leaf[t + step];
            else if (leaf[t + step])
                weft_k_add(leaf[t], leaf[t + step], n);
    return leaf[0];
}
