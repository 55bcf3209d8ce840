/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on a GPU: the rows of several runs, all KV heads of blocks that are
 * alike, in one launch. */
#ifndef WEFT_KERN_ATTENTION_CUDA_H
#define WEFT_KERN_ATTENTION_CUDA_H

#include "kern/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a tensor block has of its own. */
struct weft_attention_block {
    char *kv;
    const void *q; /* (rows, ldq) in dtype, query head g at g * D */
    void *out;     /* (rows, ldo) in dtype */
    float *lse;    /* (rows, ldlse), or NULL */
};

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
    int32_t n_kv;                 /* KV heads of a block */
    int32_t n_group;              /* query heads that read one */
    int32_t n_runs;               /* at most 65535 */
    int32_t max_rows;             /* of a run, or more */
    const struct weft_k_run *run; /* (n_runs) */
    const int32_t *first_row;     /* (n_runs) */
    size_t page_bytes, head_bytes;
    const int32_t *page;
    int32_t pages_per_slot;
    float scale; /* of q . k */
    int64_t ldq, ldo, ldlse;
    int32_t n_blocks;
    struct weft_attention_block block[WEFT_MAX_BLOCKS];
    /* Where blocks may share the keys of a sequence: scratch of
     * weft_attention_parts_bytes_cuda(), or NULL; and the most keys that a row
     * has. The bits are the same. n_segments: set by the launch. */
    float *parts;
    int32_t max_keys, n_segments;
};
/* Keys that a block takes alone when blocks share a sequence. */
enum { WEFT_ATTENTION_SEGMENT = 256 };
/* Whether attention is on tensor cores, forwards and backwards: bf16, and a
 * head size up to 128 that is a multiple of 8. Its sums then have an order of
 * their own (attention_mma_cuda.cu), else the CPU's; every pointer and leading
 * dimension is aligned to 16 bytes. */
WEFT_INLINE bool weft_attention_on_tensor_cores(enum weft_dtype dtype,
                                                int32_t head_dim)
{
    return dtype == WEFT_BF16 && head_dim % 8 == 0 && head_dim <= 128;
}
/* n_kv: of all tensor blocks. Never less for more runs; 0: blocks do not
 * share, as a run has several rows, or few keys. */
size_t weft_attention_parts_bytes_cuda(enum weft_dtype dtype,
                                       int32_t head_dim, int32_t n_kv,
                                       int32_t n_group, int32_t n_runs,
                                       int32_t max_rows, int32_t max_keys);
struct CUstream_st;
void weft_k_attention_cuda(struct CUstream_st *stream,
                           const struct weft_attention_cuda *a);

/* What a tensor block has of its own, backwards. */
struct weft_attention_backward_block {
    const void *q, *k, *v; /* (rows, ldqkv) in dtype, a head at its D */
    const void *out;       /* (rows, ldo) in dtype */
    const void *dout;      /* (rows, ldo): f32; on tensor cores in dtype */
    const float *lse;      /* (rows, ldlse) */
    float *delta;          /* scratch: (rows, query heads) */
    float *dq, *dk, *dv;   /* (rows, ldd) */
};

/* Backward pass over whole sequences, all n_rows rows of them; the struct's
 * pointers as above. Row j of run i, of run_rows[i] rows, is first_row[i] +
 * j. dq, dk and dv are overwritten. */
struct weft_attention_backward_cuda {
    enum weft_dtype dtype;
    int32_t head_dim, n_kv, n_group, n_runs, max_rows;
    const int32_t *run_rows, *first_row; /* (n_runs) */
    int64_t ldqkv, ldo, ldlse, ldd;
    float scale;
    int32_t n_blocks;
    struct weft_attention_backward_block block[WEFT_MAX_BLOCKS];
};
void weft_k_attention_backward_cuda(
    struct CUstream_st *stream, const struct weft_attention_backward_cuda *a,
    int64_t n_rows);

/* Those of tensor cores; weft_k_attention_cuda() and its kin call them. */
void weft_attention_mma_cuda(struct CUstream_st *stream,
                             const struct weft_attention_cuda *a);
void weft_attention_mma_backward_cuda(
    struct CUstream_st *stream, const struct weft_attention_backward_cuda *a,
    int64_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
