/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on rows that a decoder layer is made of, besides its products:
 * one table per instruction set. Internal to the kernels.
 *
 * A sum over a row's elements has 16 partial sums (four times 16 while 64
 * elements remain), which are added by a binary tree. A sum over rows is one
 * chain in row order. No result of a row depends on another row.
 */
#ifndef WEFT_KERN_ROWS_H
#define WEFT_KERN_ROWS_H

#include "kern/kern.h"

/* Attention of query rows of one sequence over one KV head. Segment s of 64
 * keys lies at kv + page[s] * page_bytes (page NULL: kv + s * page_bytes): K
 * (D, 64), then V (64, D), in kv_dtype. Row i has the position pos + i and
 * attends to the keys 0..pos + i; later keys are never used. */
struct weft_attention {
    enum weft_dtype dtype, kv_dtype;
    int32_t head_dim, n_group; /* query heads that read this KV head */
    int32_t n, pos;
    const void *q; /* (n, ldq) in dtype, head g at g * D */
    int64_t ldq;
    const char *kv;
    const int32_t *page;
    size_t page_bytes;
    const char *next; /* segment to prefetch for the next call; or NULL */
    float scale;      /* of q . k */
    void *out;        /* (n, ldo) in dtype, head g at g * D */
    int64_t ldo;
    float *lse; /* (n, ldlse), head g at g; or NULL */
    int64_t ldlse;
    float *scratch; /* weft_attention_scratch() */
};

/* Backward pass of attention over a whole sequence, from position 0. */
struct weft_attention_backward {
    enum weft_dtype dtype;
    int32_t head_dim, n_group, n;
    const void *q, *k, *v; /* (n, ldqkv) in dtype */
    int64_t ldqkv;
    const void *out;   /* (n, ldo) in dtype */
    const float *dout; /* (n, ldo) */
    int64_t ldo;
    const float *lse; /* (n, ldlse) */
    int64_t ldlse;
    float scale;
    float *dq, *dk, *dv; /* (n, ldd), overwritten */
    int64_t ldd;
    float *scratch; /* weft_attention_backward_scratch() */
};

struct weft_row_ops {
    void (*rmsnorm)(enum weft_dtype dtype, int64_t m, int64_t h, float eps,
                    const float *x, const float *w, void *y);
    void (*rmsnorm_backward)(int64_t m, int64_t h, float eps, const float *x,
                             const float *w, const float *dy, float *dx,
                             float *dw);
    /* y (m, ff) = silu(gate) * up. gate_up (m, 2 ff): in every row 32 gates
     * and 32 ups alternate; ff is a multiple of 32. */
    void (*swiglu)(enum weft_dtype dtype, int64_t m, int64_t ff,
                   const void *gate_up, void *y);
    void (*swiglu_backward)(enum weft_dtype dtype, int64_t m, int64_t ff,
                            const void *gate_up, const float *dy,
                            void *dgate_up);
    /* cos, sin (n): of position * frequency, in the bits of
     * weft_rope_angle(). */
    void (*angles)(int64_t n, const float *frequency, int64_t position,
                   float *cos, float *sin);
    /* Rotates x (n_heads, d) in place: (x1, x2) becomes (x1 cos - x2 sin,
     * x2 cos + x1 sin), where x1 and x2 are d / 2 elements apart. cos_sin: d /
     * 2 cosines, then as many sines. inverse: by the negative angle. */
    void (*rope)(int64_t n_heads, int64_t d, const float *cos_sin,
                 bool inverse, float *x);
    /* y (n) = dtype(x) */
    void (*round)(enum weft_dtype dtype, int64_t n, const float *x, void *y);
    /* sum (n) += row i of x (m, ldx), rows in order. */
    void (*add_rows)(int64_t m, int64_t n, const float *x, int64_t ldx,
                     float *sum);
    void (*attention)(const struct weft_attention *a);
    void (*attention_backward)(const struct weft_attention_backward *a);
    /* Copies keys and values (n, ld) of positions 0..n-1 into f32 segments of
     * weft_attention_segment() floats each. */
    void (*pack_kv)(enum weft_dtype dtype, int64_t d, int64_t n,
                    const void *k, const void *v, int64_t ld, float *dst);
};

extern const struct weft_row_ops weft_rows_c, weft_rows_avx2,
    weft_rows_avx512;

/* The table of the instruction set that weft_k_init() chose. */
const struct weft_row_ops *weft_row_ops(void);

/* How many pairs of query row and query head share one load of a segment. */
enum { WEFT_ATTENTION_ITEMS = 48 };

/* Floats of scratch. */
WEFT_INLINE size_t weft_attention_segment(int64_t d)
{
    return (size_t) (2 * d * WEFT_PAGE_TOKENS);
}
WEFT_INLINE size_t weft_attention_scratch(int64_t d)
{
    return (size_t) (WEFT_ATTENTION_ITEMS * (2 * d + WEFT_PAGE_TOKENS + 2))
         + weft_attention_segment(d);
}
WEFT_INLINE size_t weft_attention_backward_scratch(int64_t d, int64_t n)
{
    int64_t page = WEFT_PAGE_TOKENS;
    return (size_t) (3 * weft_round_up(n, page) * d + n * (d + 1)
                     + 2 * page * page);
}

#endif
