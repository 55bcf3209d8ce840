/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on a GPU: the rows of several runs, all KV heads, in one launch. */
#ifndef WEFT_KERN_ATTENTION_CUDA_H
#define WEFT_KERN_ATTENTION_CUDA_H

#include "kern/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device memory; the struct itself is read before return. Row j
 * of run i is row first_row[i] + j of q and out, has the position run[i].pos +
 * j, and attends to the keys before it in the cache and its own. Training
 * writes its keys to a cache, too, in slots of its own.
 *
 * Segment s of 64 keys of a slot lies at kv + page[slot * pages_per_slot + s]
 * * page_bytes; there KV head c, at c * head_bytes, has K (D, 64) and V (64,
 * D) in dtype. What no row attends to is not used, whatever it holds. */
struct weft_attention_cuda {
    enum weft_dtype dtype;
    int32_t head_dim;             /* D, at most 256 */
    int32_t n_kv;                 /* KV heads */
    int32_t n_group;              /* query heads that read one */
    int32_t n_runs;               /* at most 65535 */
    int32_t max_rows;             /* of a run, or more */
    const struct weft_k_run *run; /* (n_runs) */
    const int32_t *first_row;     /* (n_runs) */
    char *kv;
    size_t page_bytes, head_bytes;
    const int32_t *page;
    int32_t pages_per_slot;
    float scale;   /* of q . k */
    const void *q; /* (rows, ldq) in dtype, query head g at g * D */
    int64_t ldq;
    void *out; /* (rows, ldo) in dtype */
    int64_t ldo;
    float *lse; /* (rows, ldlse), or NULL */
    int64_t ldlse;
};
struct CUstream_st;
void weft_k_attention_cuda(struct CUstream_st *stream,
                           const struct weft_attention_cuda *a);
/* Writes k and v (rows, ld), KV head c at c * D, to the cache. */
void weft_k_kv_write_cuda(struct CUstream_st *stream,
                          const struct weft_attention_cuda *a, const void *k,
                          const void *v, int64_t ld);

/* Backward pass over whole sequences, all n_rows rows of them; the struct's
 * pointers as above. Row j of run i, of run_rows[i] rows, is first_row[i] +
 * j. dq, dk and dv are overwritten. */
struct weft_attention_backward_cuda {
    enum weft_dtype dtype;
    int32_t head_dim, n_kv, n_group, n_runs, max_rows;
    const int32_t *run_rows, *first_row; /* (n_runs) */
    const void *q, *k, *v; /* (rows, ldqkv) in dtype, a head at its D */
    int64_t ldqkv;
    const void *out;   /* (rows, ldo) in dtype */
    const float *dout; /* (rows, ldo) */
    int64_t ldo;
    const float *lse; /* (rows, ldlse) */
    int64_t ldlse;
    float scale;
    float *delta;        /* scratch: (rows, query heads) */
    float *dq, *dk, *dv; /* (rows, ldd) */
    int64_t ldd;
};
void weft_k_attention_backward_cuda(
    struct CUstream_st *stream, const struct weft_attention_backward_cuda *a,
    int64_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
