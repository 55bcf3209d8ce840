/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: numerical operations on plain pointers, one thread, no allocation.
 *
 * The numerics contract (doc/numerics.md) holds for every function here: the
 * result of a row (token) depends on the tokens before it in its sample, the
 * weights, dtype, instruction set and the partition into T tensor blocks, and
 * never on how many rows or samples share a call. A sum over tokens is one
 * chain of f32 additions in sample order, and the gradient tile is its first
 * term, so the cut into micro-batches does not matter: such a gradient is said
 * to *continue*.
 *
 * Letters: M rows (tokens), H hidden, A query heads, D head size, F MLP
 * columns, V vocabulary, T blocks. Activations: the residual stream and its
 * gradient are f32 (M, H); inputs of products are rounded to the run's dtype.
 *
 * Scratch: every function that needs workspace takes `scratch`, 64-byte
 * aligned, of at least as many bytes as the matching *_scratch_bytes()
 * returns. The caller may use it for other things between calls.
 */
#ifndef WEFT_KERN_KERN_H
#define WEFT_KERN_KERN_H

#include "base/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Choice of the instruction set ------------------------------------ */

enum weft_isa {
    WEFT_ISA_C,
    WEFT_ISA_AVX2,
    WEFT_ISA_AVX512,
    WEFT_ISA_AVX512_BF16,
    WEFT_N_ISAS
};

/* The best instruction set that this CPU and this build have. */
enum weft_isa weft_k_isa_detect(void);

/* "c", "avx2", "avx512", "avx512_bf16" */
const char *weft_k_isa_name(enum weft_isa isa);

/* Whether kernels of both sets give the same bits: all sets with fused
 * multiply-adds do; plain C rounds every product. */
bool weft_k_isa_same_bits(enum weft_isa a, enum weft_isa b);

/* Chooses the kernels for the whole process; call it once, before any kernel
 * (tests may call it again). `name` NULL: WEFT_ISA from the environment if it
 * is set, else the best set. Errors: the name is unknown, or the CPU lacks the
 * set. */
int weft_k_init(const char *name, struct weft_err *err);
enum weft_isa weft_k_isa(void);

/* ---- Products --------------------------------------------------------- */

/* A published matrix: panels [n_pad/32][k][32] f32, or
 * [n_pad/32][k/2][32][2] bf16 (k even). */

/* Y (M, n) = sum over blocks b of X_b (M, k[b]) W_b (n, k[b])^T, in f32.
 * Within a block, every output element is one chain of fused multiply-adds
 * over ascending k (bf16: of the CPU's dot products of pairs of k). The sums
 * of the blocks are added in f32 by a binary tree, ((0+1)+(2+3))+...; where
 * n_blocks, 1..WEFT_MAX_BLOCKS, is no power of two, every level of the tree
 * pairs neighbours from the left.
 * x[b]: row-major in `dtype`, leading dimension ldx[b].
 * w[b]: a published matrix; k[b] (bf16: even) is how much of the depth of its
 * panels is used. A transposed tile is a published matrix of k_pad rows whose
 * panels have the depth n_pad: dX = dY W has n = K, k[b] = N and, where N is
 * not n_pad, kstride[b] = n_pad.
 * bias: (n) f32 or NULL, added after the tree. residual: (M, n) f32 with
 * leading dimension ldy or NULL, added after the bias (may alias y).
 * y: leading dimension ldy; f32 or, when y_dtype is BF16, rounded. */
struct weft_k_gemm_args {
    enum weft_dtype dtype, y_dtype;
    int64_t m, n;
    int32_t n_blocks;
    const void *x[WEFT_MAX_BLOCKS];
    int64_t ldx[WEFT_MAX_BLOCKS];
    const void *w[WEFT_MAX_BLOCKS];
    int64_t k[WEFT_MAX_BLOCKS];
    int64_t kstride[WEFT_MAX_BLOCKS]; /* depth of w's panels; 0: k[b] */
    const float *bias;
    const float *residual;
    void *y;
    int64_t ldy;
    bool accumulate; /* block 0's chain starts from y (f32, n_blocks 1) */
};
void weft_k_gemm(const struct weft_k_gemm_args *args);
/* Sums that wait in the tree at a time, at most: log2 WEFT_MAX_BLOCKS + 1. */
enum { WEFT_TREE_LEVELS = 6 };

/* G += dY^T X over the rows of a micro-batch, in sample order: every element
 * (n, k) is one f32 chain that starts from the gradient's present value.
 * dy: (M, n) and x: (M, k), row-major in `dtype`. grad: a matrix part in flat
 * order; padding rows of its last panel are not changed.
 * In bf16 a step takes two tokens. `run_rows` (n_runs) holds the number of
 * rows of each sample, in order; a sample with an odd number is padded with a
 * zero token, so that its pairs do not depend on the samples around it. */
struct weft_k_gemm_dw_args {
    enum weft_dtype dtype;
    int64_t n, k;
    int32_t n_runs;
    const int32_t *run_rows;
    const void *dy;
    int64_t lddy;
    const void *x;
    int64_t ldx;
    float *grad;
    void *scratch; /* weft_k_gemm_dw_scratch_bytes() */
};
size_t weft_k_gemm_dw_scratch_bytes(enum weft_dtype dtype, int64_t n_rows,
                                    int32_t n_runs, int64_t n, int64_t k);
void weft_k_gemm_dw(const struct weft_k_gemm_dw_args *args);

/* Converts master weights (flat f32) to the published forward tile and its
 * transpose. bwd may be NULL (a frozen model). In f32 the forward tile has the
 * flat order itself. */
void weft_k_publish(const struct weft_layout *layout, enum weft_dtype dtype,
                    const float *master, void *fwd, void *bwd);

/* The same for some chunks of a tile (base/shape.h) and the forward tile
 * alone. master and fwd point to the first of these chunks. */
void weft_k_publish_chunks(const struct weft_layout *layout,
                           enum weft_dtype dtype, struct weft_range chunks,
                           const float *master, void *fwd);

/* The published forward tile of the other kind of device: where a matrix has
 * pairs of k on a CPU (bf16), its rows are stored one after another on a GPU
 * (kern_cuda.h). to_rows: from a CPU's to a GPU's. The rest is copied. */
void weft_k_reorder(const struct weft_layout *layout, enum weft_dtype dtype,
                    bool to_rows, const void *from, void *to);

/* Each operation rounds by itself, in f32 and with every instruction set
 * alike. Equal weights stay as they are. */
WEFT_INLINE float weft_mixed(float mix, float from, float own)
{
    return mix < 1 ? own + mix * (from - own) : from;
}
/* own += mix (fwd - own) for all numbers of a tile, in f32; mix 1: own = fwd.
 * fwd is published in the run's dtype, own is in flat order. */
void weft_k_mix(const struct weft_layout *layout, enum weft_dtype dtype,
                float mix, const void *fwd, float *own);

/* dst (n) += src (n): one addition of a tree. */
void weft_k_add(float *dst, const float *src, size_t n);
/* Sum of squares in double. Every 4096 elements are summed in 16 partial
 * sums; the results are added in index order. */
double weft_k_sum_squares(const float *x, size_t n);
/* The factor that limits a gradient of this norm to `clip`:
 * min(1, clip / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_().
 * clip 0: no limit, the factor is 1. */
float weft_k_clip_scale(double norm, float clip);

/* Moments of numbers that are added tile by tile; the same tiles in the same
 * order give the same bits. All fields are 0 at first. */
struct weft_k_moments {
    int64_t n;
    double mean,
        squares; /* squares: sum of squared distances from the mean */
    double min, max;
};
void weft_k_moments_add(struct weft_k_moments *m, int32_t n, const float *x);
/* 1 / sqrt(unbiased variance + 1e-8); n is 2 or more. */
double weft_k_moments_rstd(const struct weft_k_moments *m);

/* ---- Rows ------------------------------------------------------------- */

/* y (M, H) = dtype(x / sqrt(mean(x^2) + eps) * w), the mean over a row. */
void weft_k_rmsnorm(enum weft_dtype dtype, int64_t m, int64_t h, float eps,
                    const float *x, const float *w, void *y);
/* dy (M, H) is the gradient of the norm's output. dx (M, H) += the gradient of
 * its input; the weight's gradient dw (H) continues, rows in order (NULL: not
 * wanted). */
void weft_k_rmsnorm_backward(int64_t m, int64_t h, float eps, const float *x,
                             const float *w, const float *dy, float *dx,
                             float *dw);

/* ---- Batches, KV ------------------------------------------------------ */

/* n consecutive tokens of one sequence, the first at position `pos`. */
struct weft_k_run {
    int32_t slot; /* KV slot; ignored without a cache */
    int32_t pos;
    int32_t n;
};

/* The rows of several runs, one after another without padding. */
struct weft_k_batch {
    int32_t n_rows, n_runs;
    const struct weft_k_run *run;
    const int32_t *token; /* (n_rows) */
    /* NULL; or on a GPU, where run i has row i or no row: the runs that count,
     * in device memory. Those above only say how many there may be. */
    const struct weft_k_run *device_run;
};

/* Paged KV cache. A page holds WEFT_PAGE_TOKENS tokens of all layers:
 * [layer][block][kv head of the block]{K (D, 64), V (64, D)} in dtype. A page
 * must be zero before its first token is written. */
struct weft_k_kv {
    void *arena;
    size_t page_bytes;
    const int32_t *page; /* (n_slots, pages_per_slot) page numbers */
    int32_t pages_per_slot;
};
size_t weft_k_kv_page_bytes(const struct weft_shape *shape, int32_t n_layers);

/* ---- Whole layers ----------------------------------------------------- */

/* Published tiles of one layer; bwd is NULL unless backward is called. */
struct weft_k_layer {
    const void *fwd[WEFT_MAX_BLOCKS]; /* WEFT_TILE_LAYER */
    const void *bwd[WEFT_MAX_BLOCKS];
    const float *norms; /* WEFT_TILE_NORMS, flat */
};

/* One decoder layer, x (M, H) -> y (M, H); y may be x. With `kv`, keys and
 * values of the rows are written to the cache, as layer `layer`, and attention
 * reads the cache. Without, every run must start at position 0. `saved`
 * (weft_k_layer_saved_bytes()) receives what the backward pass needs besides
 * x; NULL for inference, or when the backward pass recomputes it. */
size_t weft_k_layer_saved_bytes(const struct weft_shape *shape,
                                int64_t n_rows);
size_t weft_k_layer_forward_scratch_bytes(const struct weft_shape *shape,
                                          const struct weft_k_batch *batch);
void weft_k_layer_forward(const struct weft_shape *shape,
                          const struct weft_k_layer *weights, int32_t layer,
                          const struct weft_k_batch *batch,
                          const struct weft_k_kv *kv, const float *x,
                          float *y, void *saved, void *scratch);

/* dx (M, H): the gradient of the layer's output on entry, of its input on
 * return. x: the layer's input. saved NULL: it is recomputed from x. grad[t]
 * (WEFT_TILE_LAYER of block t, flat order) and grad_norms (WEFT_TILE_NORMS)
 * continue. Where several blocks hold a KV head, only the tile of the head's
 * owner receives its gradient. */
size_t weft_k_layer_backward_scratch_bytes(const struct weft_shape *shape,
                                           const struct weft_k_batch *batch,
                                           bool recompute);
void weft_k_layer_backward(const struct weft_shape *shape,
                           const struct weft_k_layer *weights,
                           const struct weft_k_batch *batch, const float *x,
                           const void *saved, float *dx, float *const grad[],
                           float *grad_norms, void *scratch);

/* sum_out (chunks.n): weft_k_sum_squares() of each of some chunks of a tile's
 * gradient, without replicas of KV heads that the block does not own. grad
 * points to the first of these chunks. */
void weft_k_chunk_squares(const struct weft_shape *shape,
                          enum weft_tile_kind kind, int32_t block,
                          struct weft_range chunks, const float *grad,
                          double *sum_out);

/* ---- Embedding -------------------------------------------------------- */

/* x (n, H) f32: row i is that of token[i]. table[t]: WEFT_TILE_EMBED of block
 * t, published. */
void weft_k_embed(const struct weft_shape *shape, const void *const table[],
                  int32_t n, const int32_t *token, float *x);
/* dx (n, H). grad[t] (n_vocab of block t, H) continues, rows in order. */
void weft_k_embed_backward(const struct weft_shape *shape, int32_t n,
                           const int32_t *token, const float *dx,
                           float *const grad[]);
/* For tied weights: weft_k_tied_add_gradient() adds the gradient of block t's
 * embedding (row-major) to that of its head (flat order); both point to the
 * first of `chunks`. weft_k_tied_table() makes the published embedding table
 * from the published head; table may be head. Both have room for n_vocab
 * rounded up to WEFT_PANEL rows. */
void weft_k_tied_add_gradient(const struct weft_shape *shape, int32_t t,
                              struct weft_range chunks,
                              const float *embed_grad, float *head_grad);
size_t weft_k_tied_table_scratch_bytes(const struct weft_shape *shape);
void weft_k_tied_table(const struct weft_shape *shape, int32_t t,
                       const void *head, void *table, void *scratch);

/* ---- Heads ------------------------------------------------------------ */

struct weft_k_head {
    const void *fwd[WEFT_MAX_BLOCKS]; /* WEFT_TILE_HEAD */
    const void *bwd[WEFT_MAX_BLOCKS];
    const float *final; /* WEFT_TILE_FINAL, flat */
};

/* Rows that predict a token: row[i] of x (M, H) predicts target[i]. */
struct weft_k_targets {
    int32_t n;
    const int32_t *row; /* ascending */
    const int32_t *target;
    /* Logits of the first n_logits targets, (n_logits, V) f32 cut into the
     * head's chunks: the forward pass leaves them there, and the backward pass,
     * which else computes them again, uses them up. V: of the range that it is
     * asked for. 0: none; kernels of GPUs keep none. */
    int32_t n_logits;
    float *logits;
};

/* logp_out (n): log p(target) under softmax(logits / temperature) over the
 * whole vocabulary. entropy_out (n): entropy of that distribution. lse_out
 * (n): log-sum-exp, which the backward pass takes. The last two may be NULL.
 * Only a chunk of the logits exists at a time, but for those that targets
 * keep; the order of the sums is that of kern/softmax.h. */
size_t weft_k_head_scratch_bytes(const struct weft_shape *shape, int32_t n);
void weft_k_head_logprob(const struct weft_shape *shape,
                         const struct weft_k_head *head, const float *x,
                         const struct weft_k_targets *targets,
                         float inv_temperature, float *logp_out,
                         float *entropy_out, float *lse_out, void *scratch);

/* Gradient of sum_i dlogp[i] * logp[i] + dentropy[i] * entropy[i].
 * dx (n_rows, H) is overwritten, with 0 in rows that predict nothing; grad[t]
 * and grad_final continue. run_rows (n_runs): the number of rows of each
 * sample that predict a token (see struct weft_k_gemm_dw_args). */
size_t weft_k_head_backward_scratch_bytes(const struct weft_shape *shape,
                                          int32_t n, int32_t n_runs);
void weft_k_head_backward(
    const struct weft_shape *shape, const struct weft_k_head *head,
    int32_t n_rows, const float *x, const struct weft_k_targets *targets,
    int32_t n_runs, const int32_t *run_rows, float inv_temperature,
    const float *lse, const float *entropy, const float *dlogp,
    const float *dentropy, float *dx, float *const grad[], float *grad_final,
    void *scratch);

/* For sampling: logits (n, V) f32 of x (n, H), not divided by the
 * temperature. */
void weft_k_head_logits(const struct weft_shape *shape,
                        const struct weft_k_head *head, int32_t n,
                        const float *x, float *logits, void *scratch);

/* value_out[i] = the dot product of the score vector and norm(x[row[i]]), f32,
 * in 16 partial sums; targets->target is not read. Backward: dx (n_rows, H) is
 * overwritten, with 0 in other rows; grad_final continues. */
size_t weft_k_value_scratch_bytes(const struct weft_shape *shape);
void weft_k_value(const struct weft_shape *shape, const float *final,
                  const float *x, const struct weft_k_targets *targets,
                  float *value_out, void *scratch);
void weft_k_value_backward(const struct weft_shape *shape, const float *final,
                           int32_t n_rows, const float *x,
                           const struct weft_k_targets *targets,
                           const float *dvalue, float *dx, float *grad_final,
                           void *scratch);

/* ---- Sampling --------------------------------------------------------- */

struct weft_k_sampling {
    float temperature; /* 0: greedy (log-probs then at temperature 1) */
    int32_t top_k;     /* 0: all */
    float top_p;       /* 1: all */
    uint64_t seed;
};
/* Draws one token from logits (V). The candidates are the top_k largest
 * logits, and of these the smallest set whose share of the candidates'
 * probability reaches top_p (never empty); of equal logits the lower id comes
 * first. One Philox uniform number keyed (seed, SAMPLE, a, b, position) is
 * looked up in the distribution function, which runs over candidates in
 * descending probability where top_k or top_p cut, else over ids. logp_out:
 * log softmax(logits / temperature)[token] over the whole vocabulary, with the
 * bits of weft_k_head_logprob() for inv_temperature = 1 / temperature.
 * scratch: V * 8 bytes. Returns -1, without writing logp_out, when a logit is
 * NaN or the largest one is not finite (a single logit of -infinity is a token
 * that is never drawn). */
int32_t weft_k_sample(const struct weft_shape *shape,
                      const struct weft_k_sampling *sampling,
                      const float *logits, uint32_t a, uint32_t b,
                      uint32_t position, float *logp_out, void *scratch);

/* ---- Optimizer -------------------------------------------------------- */

struct weft_k_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update; bias correction in double */
};
/* One AdamW step of n elements with the gradient grad * scale and decoupled
 * weight decay (Loshchilov & Hutter 2019). master, m, v are updated. */
void weft_k_adamw(const struct weft_k_adamw *o, size_t n, float scale,
                  const float *grad, float *master, float *m, float *v);

#ifdef __cplusplus
}
#endif
#endif
