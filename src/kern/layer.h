/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a decoder layer share: the layout of saved values, the
 * columns of a block, sums over blocks, angles of RoPE, the KV cache. Internal
 * to the kernels.
 */
#ifndef WEFT_KERN_LAYER_H
#define WEFT_KERN_LAYER_H

#include "kern/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Divides memory at `base` into pieces aligned to 64 bytes; with base NULL it
 * only counts how much they take. */
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

/* How many columns of a block are q; of k (and v); of q, k and v; of the
 * MLP. */
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

/* Address of element i of p, whose elements have the run's dtype. */
WEFT_INLINE void *weft_layer_at(const struct weft_shape *s, void *p,
                                int64_t i)
{
    return (char *) p + (size_t) i * weft_dtype_bytes(s->dtype);
}

/* The query heads of block t that read its kv-th KV head: n of them from
 * `first` on. kv and first are counted within the block. */
struct weft_heads {
    int32_t first, n;
};
struct weft_heads weft_block_readers(const struct weft_shape *shape,
                                     int32_t t, int32_t kv);

/* A vector in a WEFT_TILE_NORMS tile, or NULL if the shape has none. */
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

/* weft_k_gemm(), or what does the same on a GPU. */
typedef void (*weft_layer_gemm_fn)(const struct weft_k_gemm_args *args,
                                   void *context);
void weft_layer_gemm(const struct weft_k_gemm_args *args, void *context);

/* The roots of a product over the range's blocks. `all` describes the product
 * over blocks 0..T-1; y (n_roots, M, n), roots `stride` floats apart. `all`
 * may have a bias and a residual only if the range is all blocks. */
void weft_layer_gemm_roots(const struct weft_k_gemm_args *all,
                           struct weft_range range, int64_t stride,
                           weft_layer_gemm_fn gemm, void *context);

/* Adds leaves of n floats by the binary tree, in place; returns the leaf that
 * then holds the sum. A leaf may be NULL, which adds nothing. n_leaves: a
 * power of two. */
float *weft_layer_tree(float *leaf[], int32_t n_leaves, size_t n);

/* The join (n) of parts that cover [0, T); it lies in scratch, or is a single
 * part's own memory. */
const float *weft_layer_joined(int32_t n_blocks, int32_t n_parts,
                               const struct weft_k_part *part, int64_t n,
                               void *scratch);

/* ---- Saved for backward ------------------------------------------------- */

/* What the backward pass of a range needs besides x and x_mid, by block. */
struct weft_layer_saved {
    void *qkv[WEFT_MAX_BLOCKS];     /* after RoPE, in dtype */
    float *raw[WEFT_MAX_BLOCKS];    /* q, k before qk_norm, else NULL */
    void *att[WEFT_MAX_BLOCKS];     /* input of the O product, in dtype */
    float *lse[WEFT_MAX_BLOCKS];    /* (M, heads of the block) */
    void *gate_up[WEFT_MAX_BLOCKS]; /* in dtype */
};
void weft_layer_saved_at(const struct weft_shape *shape,
                         struct weft_range range, int64_t n_rows,
                         struct weft_arena *arena,
                         struct weft_layer_saved *out);

/* What a whole layer saves begins with x_mid (M, H), the sum after attention;
 * the part of [0, T) follows after this many bytes. */
size_t weft_layer_x_mid_bytes(const struct weft_shape *shape, int64_t n_rows);

/* Recomputes what the backward pass needs: the forward pass up to gate and
 * up. */
void weft_layer_recompute(const struct weft_shape *shape,
                          const struct weft_k_layer *weights,
                          const struct weft_k_batch *batch, const float *x,
                          void *saved, void *scratch);

/* Cosines and sines of a batch's rows; those of run i begin at cos_sin +
 * first[i] * D. Runs that start at position 0 share theirs. */
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

/* out (D / 2): radians per position of each pair, rounded to f32 as in other
 * implementations. */
void weft_rope_frequencies(const struct weft_shape *shape, float *out);
/* out (d): d / 2 cosines of position * frequency, then as many sines. */
void weft_rope_angles(int64_t d, const float *frequency, int64_t position,
                      float *out);

/* ---- Shared heads ------------------------------------------------------- */

/* One sum of a KV head's dk or dv: row r of `to` becomes the sum over a
 * subtree's blocks of row r of x[t]; then those of `zero` become 0. All rows
 * have D floats, and are ld apart. */
struct weft_heads_sum {
    struct weft_range tree;
    const float *x[WEFT_MAX_BLOCKS]; /* by block; NULL: none */
    int64_t ld[WEFT_MAX_BLOCKS];
    float *to; /* may be one of x, in place */
    int64_t ld_to;
    int32_t n_zero;
    float *zero[WEFT_MAX_BLOCKS];
    int64_t ld_zero[WEFT_MAX_BLOCKS];
};
typedef void (*weft_heads_sum_fn)(const struct weft_heads_sum *sum,
                                  void *context);
/* On the CPU. */
struct weft_heads_sum_cpu {
    int64_t m, d;
    float *work; /* (T, D) */
};
void weft_layer_sum_heads(const struct weft_heads_sum *sum, void *context);

/* Writes the range's partial dk and dv of KV heads that blocks outside the
 * range read too; `shared` as in weft_k_heads_backward(). dqkv[t]: (m, qkv of
 * block t). */
void weft_layer_share_heads(const struct weft_shape *shape,
                            struct weft_range range, int64_t m,
                            float *const dqkv[], float *shared,
                            weft_heads_sum_fn sum, void *context);

/* Adds the partial dk and dv of KV heads that several blocks read by the T
 * tree. dqkv of the lowest block of the range that holds the head receives the
 * sum; that of the range's other blocks becomes 0. member: as in
 * weft_k_qkv_backward(). */
void weft_layer_join_heads(const struct weft_shape *shape,
                           struct weft_range range, int64_t m,
                           int32_t n_members,
                           const struct weft_k_shared *member,
                           float *const dqkv[], weft_heads_sum_fn sum,
                           void *context);

/* The backward pass of RoPE and, if the shape has qk_norm, of q's and k's
 * norms. */
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

/* Copies n rows of k columns of a matrix part in flat order, or n elements of
 * a vector (k 0). from NULL, on a GPU: zeros. */
struct weft_rows_copy {
    int64_t n, k;
    const float *from;
    int64_t from_row;
    float *to;
    int64_t to_row;
};
typedef void (*weft_rows_copy_fn)(const struct weft_rows_copy *copy,
                                  void *context);
/* weft_k_share_range() by such copies. */
void weft_layer_share_range(const struct weft_shape *shape,
                            struct weft_range range, float *const tile[],
                            weft_rows_copy_fn copy, void *context);

/* ---- Cache -------------------------------------------------------------- */

/* Where a KV head lies in a cache of the range's blocks: its segment in a page
 * begins at the returned address + page * page_bytes. */
char *weft_kv_head(const struct weft_shape *shape, struct weft_range range,
                   const struct weft_k_kv *kv, int32_t layer, int32_t t,
                   int32_t head);
/* Writes k, v (n, ld) in dtype, the rows of a run, to the run's pages. head:
 * from weft_kv_head(). */
void weft_kv_write(const struct weft_shape *shape, const struct weft_k_kv *kv,
                   const struct weft_k_run *run, char *head, const void *k,
                   const void *v, int64_t ld);

#ifdef __cplusplus
}
#endif
#endif
