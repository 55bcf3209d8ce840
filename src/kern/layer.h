/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a decoder layer share: where saved values lie, where the
 * columns of a block are, angles. Internal to the kernels.
 */
#ifndef WEFT_KERN_LAYER_H
#define WEFT_KERN_LAYER_H

#include "kern/parts.h"

/* Hands out 64-byte aligned pieces; with base NULL it only counts. */
struct weft_arena {
    char *base;
    size_t used;
};

WEFT_INLINE void *weft_arena_take(struct weft_arena *a, int64_t n,
                                  size_t size)
{
    size_t at = a->used;
    a->used += ((size_t) n * size + 63) / 64 * 64;
    return a->base ? a->base + at : NULL;
}

/* Columns of a block's matrices. */
WEFT_INLINE int64_t weft_block_q(const struct weft_shape *s, int32_t t)
{
    return (int64_t) s->block[t].n_heads * s->head_dim;
}
WEFT_INLINE int64_t weft_block_kv(const struct weft_shape *s, int32_t t)
{
    return (int64_t) s->block[t].n_kv * s->head_dim;
}
WEFT_INLINE int64_t weft_block_qkv(const struct weft_shape *s, int32_t t)
{
    return weft_block_q(s, t) + 2 * weft_block_kv(s, t);
}
WEFT_INLINE int64_t weft_block_ff(const struct weft_shape *s, int32_t t)
{
    return weft_round_up(s->block[t].n_ff, WEFT_PANEL);
}

/* Element i of p, which is in the run's dtype. */
WEFT_INLINE void *weft_layer_at(const struct weft_shape *s, void *p,
                                int64_t i)
{
    return (char *) p + (size_t) i * weft_dtype_bytes(s->dtype);
}

/* Query heads of block t that read its kv-th KV head: n from `first`, both
 * counted within the block. */
struct weft_heads {
    int32_t first, n;
};
struct weft_heads weft_block_readers(const struct weft_shape *shape,
                                     int32_t t, int32_t kv);

/* A vector of a NORMS tile; NULL: the shape has none of it. */
WEFT_INLINE const float *weft_layer_vector(const struct weft_shape *s,
                                           enum weft_part_id id,
                                           const float *norms)
{
    struct weft_layout l;
    weft_layout_get(s, WEFT_TILE_NORMS, 0, &l);
    const struct weft_part *p = weft_layout_part(&l, id);
    return p ? norms + p->offset : NULL;
}
WEFT_INLINE float *weft_layer_grad(const struct weft_shape *s,
                                   enum weft_part_id id, float *grad_norms)
{
    if (!grad_norms)
        return NULL;
    return (float *) (uintptr_t) weft_layer_vector(s, id, grad_norms);
}

/* ---- Sums over blocks --------------------------------------------------- */

/* The product whose blocks 0..T-1 `all` describes, by the range's roots: y
 * (n_roots, M, n), `stride` floats apart. Bias and residual: only where the
 * range is all blocks. */
void weft_layer_gemm_roots(const struct weft_k_gemm_args *all,
                           struct weft_range range, int64_t stride);

/* The sum over leaves (NULL: none) of n floats by the binary tree; it lies in
 * one of them. n_leaves: a power of two. */
float *weft_layer_tree(float *leaf[], int32_t n_leaves, size_t n);

/* The join (n) of parts that cover [0, T): in scratch, or one part's own. */
const float *weft_layer_joined(int32_t n_blocks, int32_t n_parts,
                               const struct weft_k_part *part, int64_t n,
                               void *scratch);

/* ---- Saved for backward ------------------------------------------------- */

/* What backward needs of a range beside x and x_mid, block by block. */
struct weft_layer_saved {
    void *qkv[WEFT_MAX_BLOCKS];     /* after RoPE, in dtype */
    float *raw[WEFT_MAX_BLOCKS];    /* q, k before their norm; if any */
    void *att[WEFT_MAX_BLOCKS];     /* input of the O product, in dtype */
    float *lse[WEFT_MAX_BLOCKS];    /* (M, heads of the block) */
    void *gate_up[WEFT_MAX_BLOCKS]; /* in dtype */
};
void weft_layer_saved_at(const struct weft_shape *shape,
                         struct weft_range range, int64_t n_rows,
                         struct weft_arena *arena,
                         struct weft_layer_saved *out);

/* x_mid (M, H), after attention's residual, comes first in what the whole
 * layer saves; then [0, T)'s part of this many bytes on. */
size_t weft_layer_x_mid_bytes(const struct weft_shape *shape, int64_t n_rows);

/* Forward up to gate and up, for backward to start from. */
void weft_layer_recompute(const struct weft_shape *shape,
                          const struct weft_k_layer *weights,
                          const struct weft_k_batch *batch, const float *x,
                          void *saved, void *scratch);

/* cos and sin of the rows of a batch: run i's first row at first[i] * D.
 * Runs that start at 0 share theirs. */
struct weft_rope_table {
    int32_t *first;   /* (n_runs) */
    float *cos_sin;   /* (rows, D): D / 2 cosines, D / 2 sines */
    float *frequency; /* (D / 2) */
};
void weft_rope_table_at(const struct weft_shape *shape, int64_t n_rows,
                        int64_t n_runs, struct weft_arena *arena,
                        struct weft_rope_table *out);
void weft_rope_table_fill(const struct weft_shape *shape,
                          const struct weft_k_batch *batch,
                          struct weft_rope_table *table);

/* Radians per position of each pair, rounded to f32 as everywhere. */
void weft_rope_frequencies(const struct weft_shape *shape, float *out);
/* d / 2 cosines, then sines, of position * frequency. */
void weft_rope_angles(int64_t d, const float *frequency, int64_t position,
                      float *out);

/* ---- Shared heads ------------------------------------------------------- */

/* The range's partial dk, dv of heads that others read too: as
 * weft_k_heads_backward(). dqkv[t]: (m, qkv). work: (T, D). */
void weft_layer_share_heads(const struct weft_shape *shape,
                            struct weft_range range, int64_t m,
                            float *const dqkv[], float *shared, float *work);

/* Joins the partial dk and dv of heads that several blocks read by the T
 * tree: into the lowest block of the range that holds the head; the range's
 * others are cleared. member: as weft_k_qkv_backward(). */
void weft_layer_join_heads(const struct weft_shape *shape,
                           struct weft_range range, int64_t m,
                           int32_t n_members,
                           const struct weft_k_shared *member,
                           float *const dqkv[], float *work);

/* Back through RoPE and, where there are any, the norms of q and k. */
struct weft_layer_unrotate {
    const struct weft_shape *s;
    struct weft_range range;
    const struct weft_k_batch *batch;
    const struct weft_rope_table *rope;
    float *const *raw;  /* before the norms, see weft_layer_saved */
    float *const *dqkv; /* (M, qkv) of each block, in place */
    const float *qnorm, *knorm;
    float *head_norms; /* (2, n_roots, M, D) */
    float *row, *sum;  /* workspace: (widest q, k), (2, T, D) */
};
void weft_layer_unrotate(const struct weft_layer_unrotate *u);

/* ---- Cache -------------------------------------------------------------- */

/* The KV head's segments in a cache of the range: at the result + page *
 * page_bytes. */
char *weft_kv_head(const struct weft_shape *shape, struct weft_range range,
                   const struct weft_k_kv *kv, int32_t layer, int32_t t,
                   int32_t head);
/* k, v (n, ld) in dtype of a run into its pages. head: weft_kv_head(). */
void weft_kv_write(const struct weft_shape *shape, const struct weft_k_kv *kv,
                   const struct weft_k_run *run, char *head, const void *k,
                   const void *v, int64_t ld);

#endif
