/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of kern.h, rows.h and ops.h on a CUDA device. A function
 * weft_k_<op>_cuda() does what weft_k_<op>() says there, with these
 * differences:
 *   - pointers to numbers are device memory, aligned to 16 bytes, and so is
 *     scratch; structs with options, and arrays of pointers, are host memory
 *     and read before return;
 *   - the work is put on `stream`, and the function returns at once. Errors of
 *     a launch stay with CUDA: cudaGetLastError().
 *
 * The numerics contract holds: a row's bits do not depend on how many rows
 * there are or where it lies among them. "Bits of the CPU" below: those of the
 * instruction sets with fused multiply-adds. doc/gpu.md lists the tolerances
 * of the others.
 */
#ifndef WEFT_KERN_KERN_CUDA_H
#define WEFT_KERN_KERN_CUDA_H

#include "kern/ends.h"
#include "kern/kern.h"
#include "kern/losses.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t */
struct weft_k_part; /* kern/parts.h */
struct weft_k_head_parts;
struct weft_k_shared;

/* ---- Rows: bits of the CPU -------------------------------------------- */

void weft_k_rmsnorm_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                         int64_t m, int64_t h, float eps, const float *x,
                         const float *w, void *y);
/* scratch: (m) f32 */
void weft_k_rmsnorm_backward_cuda(struct CUstream_st *stream, int64_t m,
                                  int64_t h, float eps, const float *x,
                                  const float *w, const float *dy, float *dx,
                                  float *dw, float *scratch);

/* The gradient of y (m, ff) = silu(gate) * up of rows that alternate 32 gates
 * and 32 ups (rows.h), and y unless it is NULL. */
void weft_k_swiglu_backward_cuda(struct CUstream_st *stream,
                                 enum weft_dtype dtype, int64_t m, int64_t ff,
                                 const void *gate_up, const float *dy,
                                 void *y, void *dgate_up);

/* Copies m rows of n numbers; leading dimensions ldx and ldy. */
void weft_k_copy_columns_cuda(struct CUstream_st *stream, int64_t m,
                              int64_t n, const float *x, int64_t ldx,
                              float *y, int64_t ldy);

/* y (n) = dtype(x) */
void weft_k_round_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                       int64_t n, const float *x, void *y);
/* sum (n) += row i of x (m, ldx), rows in order: the gradient of a bias. */
void weft_k_add_rows_cuda(struct CUstream_st *stream, int64_t m, int64_t n,
                          const float *x, int64_t ldx, float *sum);

/* ---- Products ---------------------------------------------------------- */

/* As weft_k_gemm(), but in bf16 a published matrix is row-major, (n, k) with
 * the leading dimension kstride[b] (0: k[b]); in f32 it lies in panels, as on
 * CPUs. x, w, y and their rows are aligned to 16 bytes where the leading
 * dimensions are. The library's order of sums is its own; a row's bits depend
 * on nothing but the row, which was tested when its algorithm was chosen.
 * accumulate adds y to the sum at the end; then n_blocks is 1 and there is
 * neither bias nor residual. */
size_t weft_k_gemm_scratch_bytes_cuda(const struct weft_k_gemm_args *args);
void weft_k_gemm_cuda(struct CUstream_st *stream,
                      const struct weft_k_gemm_args *args, void *scratch);
/* As weft_k_gemm_dw(). In bf16 a step takes 16 tokens of a sample, in the
 * hardware's order, with zeros behind its last. In f32 each sample's sum is
 * added to the gradient, samples in order, instead of going on from it: also
 * independent of micro-batches, which hold whole samples. A sample that is cut
 * into several runs gives other bits (in bf16 unless each has a multiple of 16
 * rows). run_rows is host memory; scratch is not used. */
void weft_k_gemm_dw_cuda(struct CUstream_st *stream,
                         const struct weft_k_gemm_dw_args *args);
/* An algorithm is chosen and tested when a kind of product is first asked for
 * on a device, which takes time and memory. With null pointers for matrices
 * (and m, or run_rows[0], 1) nothing else is done: for the start of a program.
 * Afterwards a product only puts its work on the stream. The first error of
 * this thread's products, which is then forgotten; 0: none. */
int weft_k_products_error_cuda(struct weft_err *err);
/* Does so for all products of a model's layers and head, forwards (generates:
 * of decode steps, whose logits are whole) and, with `backward`, backwards. The
 * memory is free again on return. Errors: as above. */
int weft_k_choose_products_cuda(const struct weft_shape *shape,
                                bool generates, bool backward,
                                struct weft_err *err);

/* ---- Layers: bits of the CPU but for products --------------------------- */

/* As in kern.h and parts.h, on the published tiles of weft_k_publish_cuda()
 * and weft_k_transpose_cuda(). The batch's runs are read before return, and
 * are host memory; so are the structs of parts. `saved` has the CPU's layout.
 * kv->page is read on the device. */
size_t weft_k_part_forward_scratch_bytes_cuda(
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_k_batch *batch);
void weft_k_attention_forward_cuda(struct CUstream_st *stream,
                                   const struct weft_shape *shape,
                                   struct weft_range range,
                                   const struct weft_k_layer *weights,
                                   int32_t layer,
                                   const struct weft_k_batch *batch,
                                   const struct weft_k_kv *kv, const float *x,
                                   void *saved, float *roots, void *scratch);
void weft_k_mlp_forward_cuda(struct CUstream_st *stream,
                             const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_k_layer *weights,
                             const struct weft_k_batch *batch,
                             const float *x_mid, void *saved, float *roots,
                             void *scratch);
/* scratch: weft_k_part_forward_scratch_bytes_cuda() of all blocks. */
void weft_k_layer_forward_cuda(struct CUstream_st *stream,
                               const struct weft_shape *shape,
                               const struct weft_k_layer *weights,
                               int32_t layer,
                               const struct weft_k_batch *batch,
                               const struct weft_k_kv *kv, const float *x,
                               float *y, void *saved, void *scratch);

size_t weft_k_part_backward_scratch_bytes_cuda(
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_k_batch *batch);
void weft_k_mlp_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *shape,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const float *x_mid, const void *saved,
    const float *dx, float *const grad[], float *roots, void *scratch);
void weft_k_heads_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *shape,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const void *saved, const float *dx,
    float *const grad[], float *dqkv, float *shared, void *scratch);
void weft_k_qkv_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *shape,
    struct weft_range range, const struct weft_k_layer *weights,
    const struct weft_k_batch *batch, const float *x, const void *saved,
    int32_t n_members, const struct weft_k_shared *member, float *dqkv,
    float *const grad[], float *roots, float *head_norms, void *scratch);

/* The join of the roots that lie in `range`, which the parts cover, as
 * weft_k_join_rows(); y: (m, h). */
void weft_k_join_rows_cuda(struct CUstream_st *stream, int32_t n_blocks,
                           int32_t n_parts, const struct weft_k_part *part,
                           struct weft_range range, int64_t m, int64_t h,
                           const float *bias, const float *residual,
                           float *y);
/* The same of rows [first, first + n) of m alone, at their places in y and
 * residual. */
void weft_k_join_some_rows_cuda(struct CUstream_st *stream, int32_t n_blocks,
                                int32_t n_parts,
                                const struct weft_k_part *part,
                                struct weft_range range, int64_t m,
                                int64_t first, int64_t n, int64_t h,
                                const float *bias, const float *residual,
                                float *y);
/* Row i of y (m, h) is that of x[i / each], each (m, h). */
struct weft_k_sources {
    const float *x[WEFT_MAX_BLOCKS];
};
void weft_k_gather_rows_cuda(struct CUstream_st *stream, int64_t m, int64_t h,
                             int64_t each, const struct weft_k_sources *from,
                             float *y);
/* weft_k_mlp_norm_backward(), where head_norm is NULL, or with `attention`
 * weft_k_attention_norm_backward(). */
size_t weft_k_norm_join_scratch_bytes_cuda(const struct weft_shape *shape,
                                           int64_t n_rows);
void weft_k_norm_backward_cuda(struct CUstream_st *stream,
                               const struct weft_shape *shape, bool attention,
                               const float *norms, int64_t n_rows,
                               const float *x, int32_t n_parts,
                               const struct weft_k_part *part,
                               const struct weft_k_part *head_norm, float *dx,
                               float *grad_norms, void *scratch);

size_t weft_k_layer_backward_scratch_bytes_cuda(
    const struct weft_shape *shape, const struct weft_k_batch *batch,
    bool recompute);
void weft_k_layer_backward_cuda(struct CUstream_st *stream,
                                const struct weft_shape *shape,
                                const struct weft_k_layer *weights,
                                const struct weft_k_batch *batch,
                                const float *x, const void *saved, float *dx,
                                float *const grad[], float *grad_norms,
                                void *scratch);

/* ---- Weights: bits of the CPU ----------------------------------------- */

/* Products on a GPU read bf16 matrices row by row: the published tile has the
 * offsets of the CPU's (fwd_bytes of each part), but a matrix is (n_pad, k),
 * row-major in dtype. In f32, where masters are published themselves, products
 * read panels. Chunks of the tile have the CPU's places, too (a panel's rows);
 * master and fwd point to the first of them. */
void weft_k_publish_cuda(struct CUstream_st *stream,
                         const struct weft_layout *layout,
                         enum weft_dtype dtype, struct weft_range chunks,
                         const float *master, void *fwd);
void weft_k_mix_cuda(struct CUstream_st *stream,
                     const struct weft_layout *layout, enum weft_dtype dtype,
                     float mix, const void *fwd, float *own);

/* The transposed tile from the published one, for gradients of inputs: a
 * matrix is (k_pad, n_pad), row-major in bf16, in f32 as on CPUs. */
void weft_k_transpose_cuda(struct CUstream_st *stream,
                           const struct weft_layout *layout,
                           enum weft_dtype dtype, const void *fwd, void *bwd);
void weft_k_reorder_cuda(struct CUstream_st *stream,
                         const struct weft_layout *layout,
                         enum weft_dtype dtype, bool to_rows,
                         const void *from, void *to);

void weft_k_zero_cuda(struct CUstream_st *stream, void *p, size_t n_bytes);
void weft_k_copy_cuda(struct CUstream_st *stream, void *to, const void *from,
                      size_t n_bytes);
/* from is n pieces, one after another: piece i, of n_each[i] numbers, comes to
 * to[i], the GPU's memory or pinned. n_each and to are read before return. */
void weft_k_deal_cuda(struct CUstream_st *stream, int32_t n,
                      const int32_t *n_each, const float *from,
                      void *const to[]);
/* Copies from pinned memory, when it is the stream's turn. A kernel does it,
 * as the GPU's copy engine may be busy with a large tile. n_bytes: a multiple
 * of 8, as are both addresses. */
void weft_k_put_cuda(struct CUstream_st *stream, void *device,
                     const void *pinned, size_t n_bytes);
/* Copies to pinned memory, when it is the stream's turn. */
void weft_k_get_cuda(struct CUstream_st *stream, void *pinned,
                     const void *device, size_t n_bytes);
/* Waits for all that is on the stream. false: something has failed, which
 * CUDA tells: cudaGetLastError(). */
bool weft_k_wait_cuda(struct CUstream_st *stream);

/* A stream that keeps what this thread puts on it, instead of doing it, until
 * weft_k_captured_cuda() returns what was kept; in between the thread may
 * neither wait, nor allocate, nor choose products. */
struct weft_k_capture {
    struct CUstream_st *stream;
    struct CUgraph_st *graph, *body; /* cudaGraph_t; the body is in a loop */
    /* Of a loop, for weft_k_step_again_cuda(), which says whether it goes round
     * once more. Otherwise 0. */
    uint64_t again;
    bool is_loop;
};
/* false: something has failed, which CUDA tells; or loops cannot be had (CUDA
 * has them from 12.4 on), which it does not tell afterwards. */
bool weft_k_capture_cuda(bool is_loop, struct weft_k_capture *out);
/* Ends the capture. NULL: as before, or there are more than `most` kernels.
 * *n_out: how many they are, in a loop those of one round. */
struct CUgraphExec_st; /* cudaGraphExec_t */
struct CUgraphExec_st *weft_k_captured_cuda(struct weft_k_capture *c,
                                            int64_t most, int64_t *n_out);
void weft_k_replay_cuda(struct CUstream_st *stream,
                        struct CUgraphExec_st *graph);
void weft_k_graph_free_cuda(struct CUgraphExec_st *graph); /* NULL: nothing */

void weft_k_add_cuda(struct CUstream_st *stream, float *dst, const float *src,
                     size_t n);
/* sum_out[i], i < n_chunks: the sum of squares of the elements
 * begin[i]..begin[i + 1] - 1 of x. begin (n_chunks + 1): device memory. */
void weft_k_sum_squares_cuda(struct CUstream_st *stream, int32_t n_chunks,
                             const int64_t *begin, const float *x,
                             double *sum_out);
/* weft_k_chunk_squares() of a gradient whose padding is 0, or, if `whole`, their
 * sum in the chunks' order. out: pinned memory; nothing waits for it. */
size_t weft_k_chunk_squares_scratch_bytes_cuda(const struct weft_shape *shape,
                                               enum weft_tile_kind kind,
                                               int32_t block,
                                               int32_t n_chunks);
void weft_k_chunk_squares_cuda(struct CUstream_st *stream,
                               const struct weft_shape *shape,
                               enum weft_tile_kind kind, int32_t block,
                               struct weft_range chunks, const float *grad,
                               bool whole, double *out, void *scratch);
void weft_k_share_range_cuda(struct CUstream_st *stream,
                             const struct weft_shape *shape,
                             struct weft_range range, float *const tile[]);
void weft_k_tied_add_gradient_cuda(struct CUstream_st *stream,
                                   const struct weft_shape *shape, int32_t t,
                                   struct weft_range chunks,
                                   const float *embed_grad, float *head_grad);
size_t weft_k_tied_table_scratch_bytes_cuda(const struct weft_shape *shape,
                                            int32_t t);
void weft_k_tied_table_cuda(struct CUstream_st *stream,
                            const struct weft_shape *shape, int32_t t,
                            const void *head, void *table, void *scratch);
/* grad, master, m, v: 16-byte aligned. */
void weft_k_adamw_cuda(struct CUstream_st *stream,
                       const struct weft_k_adamw *o, size_t n, float scale,
                       const float *grad, float *master, float *m, float *v);

/* What a step that is put on a stream before its tokens are known takes from
 * the steps before it, from `drawn`, and which of its texts these have ended.
 * In place of tokens that are not known the caller has put -1 - i, i being an
 * index into drawn, which the kernel replaces. at (n_targets, 4): its fourth
 * number is the row's state, and beside it the same i, as weft_k_row_after()
 * puts it; the kernel leaves the state alone. Where drawn[i] is an end, or its
 * text had ended before, that state is "has ended", and the row's run, if there
 * are any, is empty: run[j] is that of target j. */
struct weft_k_drawn {
    int32_t n_rows, n_targets, n_ends;
    const int32_t *end; /* (n_ends) in host memory */
    const int32_t *drawn;
    int32_t *token;         /* (n_rows) */
    uint32_t *at;           /* (n_targets, 4) */
    struct weft_k_run *run; /* (n_targets), or NULL */
};
WEFT_INLINE uint32_t weft_k_row_after(uint32_t state, int32_t token)
{
    return token < 0 ? state | (uint32_t) -token << 2 : state;
}
void weft_k_drawn_tokens_cuda(struct CUstream_st *stream,
                              const struct weft_k_drawn *d);

/* Steps that follow one another on a stream, perhaps in a loop, without the
 * host: what it has planned for them, as many bytes for each, from step 0 on in
 * pinned memory, and which of them is next. In device memory. */
struct weft_k_steps {
    const char *from;
    int32_t next, end;
};
void weft_k_steps_cuda(struct CUstream_st *stream, const void *from,
                       int32_t next, int32_t end, struct weft_k_steps *out);
/* Copies what was planned for the next step. bytes: a multiple of 16, as are
 * both addresses. */
void weft_k_step_begin_cuda(struct CUstream_st *stream,
                            const struct weft_k_steps *steps, size_t bytes,
                            void *to);
/* What a step has drawn, token and logp (n), n <= ld, is row number `next` of
 * tokens and logps (steps, ld); then the step behind it is next. */
struct weft_k_step_drawn {
    int32_t n, ld;
    const int32_t *token;
    const float *logp;
    int32_t *tokens;
    float *logps;
};
void weft_k_step_end_cuda(struct CUstream_st *stream,
                          struct weft_k_steps *steps,
                          const struct weft_k_step_drawn *d);
/* In a loop of steps, behind each: whether another one follows. again: of
 * struct weft_k_capture; 0: it is no loop, and nothing is launched. */
void weft_k_step_again_cuda(struct CUstream_st *stream,
                            const struct weft_k_steps *steps, uint64_t again);

/* Meetings of a tp group's members, which are GPUs that may use one another's
 * memory. What each has for them in its own: zeros before the first. */
struct weft_k_meetings {
    uint32_t n_before;
    uint32_t has_failed; /* nobody waits any more, and sums are wrong */
    uint32_t at[WEFT_MAX_BLOCKS]; /* by member: at which meeting it is */
};
struct weft_k_group {
    int32_t n, k;      /* members; which of them this is */
    uint32_t patience; /* how often one looks at the others; 0: a minute */
    struct weft_k_meetings *of[WEFT_MAX_BLOCKS]; /* (n) */
};
/* The group's next meeting, on the streams of all members: what is on a stream
 * behind it may read what the others have written before theirs. That stays as
 * it is until its owner is behind the next meeting: so long a slow member may
 * read it. So members write to two places in turns. */
void weft_k_meet_cuda(struct CUstream_st *stream,
                      const struct weft_k_group *group);
/* Whether all that this thread has launched is on its streams. */
bool weft_k_has_launched_cuda(void);
/* In place of a member's meetings that will not come: all others go on, with
 * has_failed. */
void weft_k_end_meetings_cuda(struct CUstream_st *stream,
                              const struct weft_k_group *group);
/* Makes x (n) no numbers where a member's meetings have failed. */
void weft_k_spoil_cuda(struct CUstream_st *stream,
                       const struct weft_k_meetings *own, int64_t n,
                       float *x);

/* A table, or gradient, that is NULL: rows of its tokens are left out. */
void weft_k_embed_cuda(struct CUstream_st *stream,
                       const struct weft_shape *shape,
                       const void *const table[], int32_t n,
                       const int32_t *token, float *x);
void weft_k_embed_select_cuda(struct CUstream_st *stream,
                              const struct weft_shape *shape, int32_t n,
                              const int32_t *token, int32_t n_parts,
                              const struct weft_k_part *part, float *x);
void weft_k_embed_backward_cuda(struct CUstream_st *stream,
                                const struct weft_shape *shape, int32_t n,
                                const int32_t *token, const float *dx,
                                float *const grad[]);

/* ---- The head ---------------------------------------------------------- */

/* Chunks of logits come from products; they are bits of the CPU's for the same
 * logits, but for the double logarithm of lse (one unit in the last place).
 *
 * _take: n columns of m rows, logits (m, ld), the first of them token `first`,
 * join the state of each row (m, ld_state); is_first: they begin it. All
 * columns of a vocabulary block, from left to right, in pieces of multiples of
 * 1024. hit (m): the scaled logits of targets among them.
 * _merge: weft_k_head_merge() of parts in device memory.
 * _gradient: out (m, ldo) in dtype = the gradient of sum_i dlogp[i] logp[i] +
 * dentropy[i] entropy[i] with respect to n columns of unscaled logits. entropy
 * and dentropy may be NULL. */
struct weft_softmax; /* kern/softmax.h */
void weft_k_head_take_cuda(struct CUstream_st *stream, int32_t m,
                           int64_t first, int64_t n, bool is_first,
                           const float *logits, int64_t ld,
                           float inv_temperature, const int32_t *target,
                           struct weft_softmax *state, int64_t ld_state,
                           float *hit);
void weft_k_head_merge_cuda(struct CUstream_st *stream,
                            const struct weft_shape *shape,
                            const struct weft_k_targets *targets,
                            int32_t n_parts,
                            const struct weft_k_head_parts *part,
                            float *logp_out, float *entropy_out,
                            float *lse_out);
void weft_k_head_gradient_cuda(struct CUstream_st *stream,
                               enum weft_dtype dtype, int32_t m,
                               int64_t first, int64_t n, const float *logits,
                               int64_t ld, float inv_temperature,
                               const int32_t *target, const float *lse,
                               const float *entropy, const float *dlogp,
                               const float *dentropy, void *out, int64_t ldo);

/* Columns of logits that a product has, of a block's vocabulary or what is left
 * of it; emulated cards have fewer. */
enum { WEFT_K_HEAD_COLUMNS = 32 << 10 };

/* The head with its products, as in kern.h: targets->row and ->target are
 * device memory, run_rows is host memory. A chunk of columns of 1024 rows
 * exists at a time; the gradient of a sample with more rows that predict is
 * added in pieces of so many. */
size_t weft_k_head_scratch_bytes_cuda(const struct weft_shape *shape,
                                      int32_t n, bool backward);
void weft_k_head_logprob_cuda(struct CUstream_st *stream,
                              const struct weft_shape *shape,
                              const struct weft_k_head *head, const float *x,
                              const struct weft_k_targets *targets,
                              float inv_temperature, float *logp_out,
                              float *entropy_out, float *lse_out,
                              void *scratch);
void weft_k_head_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *shape,
    const struct weft_k_head *head, int32_t n_rows, const float *x,
    const struct weft_k_targets *targets, int32_t n_runs,
    const int32_t *run_rows, float inv_temperature, const float *lse,
    const float *entropy, const float *dlogp, const float *dentropy,
    float *dx, float *const grad[], float *grad_final, void *scratch);
/* By members, as in parts.h. A part has the CPU's layout. scratch:
 * weft_k_head_scratch_bytes_cuda(). */
void weft_k_head_part_cuda(struct CUstream_st *stream,
                           const struct weft_shape *shape,
                           struct weft_range range,
                           const struct weft_k_head *head, const float *x,
                           const struct weft_k_targets *targets,
                           float inv_temperature, void *part_out,
                           void *scratch);
void weft_k_head_backward_part_cuda(
    struct CUstream_st *stream, const struct weft_shape *shape,
    struct weft_range range, const struct weft_k_head *head, const float *x,
    const struct weft_k_targets *targets, int32_t n_runs,
    const int32_t *run_rows, float inv_temperature, const float *lse,
    const float *entropy, const float *dlogp, const float *dentropy,
    float *const grad[], float *roots, void *scratch);
size_t weft_k_head_norm_scratch_bytes_cuda(const struct weft_shape *shape,
                                           int32_t n);
void weft_k_head_norm_backward_cuda(struct CUstream_st *stream,
                                    const struct weft_shape *shape,
                                    const float *final, int32_t n_rows,
                                    const float *x,
                                    const struct weft_k_targets *targets,
                                    int32_t n_parts,
                                    const struct weft_k_part *part, float *dx,
                                    float *grad_final, void *scratch);
/* logits (n, V): the columns of the range's vocabulary, of rows row[i]. */
void weft_k_head_logits_cuda(struct CUstream_st *stream,
                             const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_k_head *head, int32_t n,
                             const int32_t *row, const float *x,
                             float *logits, void *scratch);

/* Draws a token from each of m rows of logits (m, ld), as
 * weft_k_sample_held() for (a, b, position) = at (m, 4); -1 where it says so.
 * The tokens are the CPU's. The fourth number is the row's state: only what is
 * held holds the n_held tokens, and what has ended draws nothing: its token is
 * WEFT_K_ENDED. scratch may be NULL where it is to have no bytes. */
WEFT_INLINE bool weft_k_sample_is_cut(int32_t vocab,
                                      const struct weft_k_sampling *sampling)
{
    return sampling->temperature > 0
        && (sampling->top_p < 1
            || (sampling->top_k > 0 && sampling->top_k < vocab));
}
/* Candidates of a row, and one bucket's up to the next power of two. */
WEFT_INLINE int64_t weft_k_sample_room(int32_t vocab)
{
    int64_t n = 1;
    while (n < vocab)
        n *= 2;
    return vocab + n;
}
WEFT_INLINE size_t weft_k_sample_scratch_bytes_cuda(
    const struct weft_shape *shape, const struct weft_k_sampling *sampling,
    int32_t m)
{
    return weft_k_sample_is_cut(shape->vocab, sampling)
             ? (size_t) (m * weft_k_sample_room(shape->vocab)) * 8
             : 0;
}
void weft_k_sample_cuda(struct CUstream_st *stream,
                        const struct weft_shape *shape,
                        const struct weft_k_sampling *sampling,
                        int32_t n_held, const int32_t *held, int32_t m,
                        float *logits, int64_t ld, const uint32_t *at,
                        int32_t *token_out, float *logp_out, void *scratch);

/* The scalar head of the n rows with these numbers, in order: bits of the
 * CPU. `final` and its gradient are whole tiles. */
size_t weft_k_value_scratch_bytes_cuda(const struct weft_shape *shape,
                                       int32_t n);
void weft_k_value_cuda(struct CUstream_st *stream,
                       const struct weft_shape *shape, const float *final,
                       const float *x, int32_t n, const int32_t *row,
                       float *value_out, void *scratch);
void weft_k_value_backward_cuda(struct CUstream_st *stream,
                                const struct weft_shape *shape,
                                const float *final, int32_t n_rows,
                                const float *x, int32_t n, const int32_t *row,
                                const float *dvalue, float *dx,
                                float *grad_final, void *scratch);

/* ---- Reinforcement learning ------------------------------------------- */

/* bootstrap: one number, or NULL for 0. Bits of the CPU. */
void weft_k_gae_cuda(struct CUstream_st *stream, int32_t n, float gamma,
                     float lambda, const float *reward, const float *value,
                     const float *bootstrap, float *advantage_out,
                     float *return_out);

/* The runs of a micro-batch, whose targets follow one another in columns. Run
 * i, of n_targets[i] of them, has the weight weight[i] * gate; where that is 0
 * its gradients and statistics are 0. stats (n, of the loss): are written, not
 * added to; NULL: not wanted. Pointers, here and below, are of what kernels may
 * use: the GPU's memory or pinned memory. Bits of the CPU where exp() has them:
 * sums are in its order. */
struct weft_k_loss_runs {
    int32_t n;
    float gate;
    const int32_t *n_targets;
    const float *weight;
    double *stats;
};
void weft_k_sft_losses_cuda(struct CUstream_st *stream,
                            const struct weft_k_loss_runs *runs,
                            const float *logp, const float *entropy,
                            float *dlogp);
void weft_k_policy_losses_cuda(struct CUstream_st *stream,
                               const struct weft_k_policy *policy,
                               const struct weft_k_loss_runs *runs,
                               const float *logp, const float *old_logp,
                               const float *ref_logp, const float *advantage,
                               const float *entropy, float *dlogp,
                               float *dentropy);
void weft_k_value_losses_cuda(struct CUstream_st *stream, float clip,
                              const struct weft_k_loss_runs *runs,
                              const float *value, const float *old_value,
                              const float *ret, float *dvalue);
/* Of pairs of runs, which have one weight. */
void weft_k_pair_losses_cuda(struct CUstream_st *stream,
                             const struct weft_k_pairs *pairs,
                             const struct weft_k_loss_runs *runs,
                             const float *logp, const float *ref_logp,
                             float *dlogp);
/* label (n): above 0 where the response is desirable. */
void weft_k_kto_losses_cuda(struct CUstream_st *stream,
                            const struct weft_k_kto *kto,
                            const struct weft_k_loss_runs *runs,
                            const float *label, double kl, const float *logp,
                            const float *ref_logp, float *dlogp);
/* Of pairs of runs with one target each; margin (n): of a pair's first. */
void weft_k_bradley_terry_cuda(struct CUstream_st *stream, float center,
                               const struct weft_k_loss_runs *runs,
                               const float *margin, const float *score,
                               float *dscore);

#ifdef __cplusplus
}
#endif
#endif
