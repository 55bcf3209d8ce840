/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: numerical operations on plain pointers, one thread, no allocation.
 *
 * The numerics contract (doc/numerics.md; design section 3) holds for every
 * function here: what a row yields depends on that row's sample prefix, the
 * weights, dtype, instruction set and the partition into T blocks; never on
 * how many rows or samples share a call. Sums over tokens continue one f32
 * chain in the gradient tile, so the cut into micro-batches does not matter.
 *
 * Letters: M rows (tokens), H hidden, A query heads, D head size, F MLP
 * columns, V vocabulary, T blocks. Activations: the residual stream and its
 * gradient are f32 (M, H); inputs of products are rounded to the run's dtype.
 *
 * Scratch: every function that needs workspace takes `scratch`, 64-byte
 * aligned, of at least the bytes the matching *_scratch_bytes() says; its
 * contents need not survive.
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

/* The best set this CPU runs. */
enum weft_isa weft_k_isa_detect(void);

/* "c", "avx2", "avx512", "avx512_bf16" */
const char *weft_k_isa_name(enum weft_isa isa);

/* Whether the two give the same bits: all sets with fused multiply-adds do,
 * plain C rounds every product. */
bool weft_k_isa_same_bits(enum weft_isa a, enum weft_isa b);

/* Chooses the kernels for the whole process; call once before others (tests
 * may call it again). `name` NULL: WEFT_ISA from the environment if set, else
 * the best. Errors: unknown name, set this CPU lacks. */
int weft_k_init(const char *name, struct weft_err *err);
enum weft_isa weft_k_isa(void);

/* ---- Products --------------------------------------------------------- */

/* A published matrix: panels [n_pad/32][k][32] f32, or
 * [n_pad/32][k/2][32][2] bf16 (k even). */

/* Y (M, n) = sum over blocks b of X_b (M, k[b]) W_b (n, k[b])^T, f32.
 * Within a block k is one ascending FMA chain per output element (bf16: pairs
 * of k, the CPU's dot product); blocks are joined by the binary tree of
 * weft_tree order ((0+1)+(2+3))+... in f32. n_blocks is 1..8, any number (a
 * non-power-of-two joins by pairing from the left at each level).
 * x[b]: row-major in `dtype`, leading dimension ldx[b]; w[b] published, k[b]
 * (bf16: even) the leading part of its panels. A transposed tile is a
 * published matrix of k_pad rows and panels of depth n_pad: dX = dY W has
 * n = K, k[b] = N and, where N is not n_pad, kstride[b] = n_pad.
 * bias: (n) f32 or NULL, added after the tree. residual: (M, n) f32 with
 * leading dimension ldy or NULL, added after the bias (may alias y).
 * y: f32 or, when y_dtype is BF16, rounded; leading dimension ldy. */
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
    bool accumulate; /* start block 0's chain from y (f32, n_blocks 1) */
};
void weft_k_gemm(const struct weft_k_gemm_args *args);

/* G += dY^T X over the rows of a micro-batch, in sample order: for every
 * (n, k) one f32 chain that starts from the gradient's present value.
 * dy: (M, n) dtype, x: (M, k) dtype, row-major; grad: flat order of a matrix
 * part (n_pad panels; padding rows are left alone).
 * bf16 takes two tokens per step: `run_rows` (n_runs) are the row counts of
 * the samples in order, and an odd sample is padded with a zero token, so the
 * chain does not depend on neighbours. */
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

/* Master weights (flat f32) to the published forward and transposed tiles.
 * bwd may be NULL (a frozen model). For f32 the forward tile is the flat order
 * itself. */
void weft_k_publish(const struct weft_layout *layout, enum weft_dtype dtype,
                    const float *master, void *fwd, void *bwd);

/* The same of some chunks (base/shape.h), forward alone: master and fwd begin
 * with the first of them. */
void weft_k_publish_chunks(const struct weft_layout *layout,
                           enum weft_dtype dtype, struct weft_range chunks,
                           const float *master, void *fwd);

/* dst += src, n elements (one addition of a tree). */
void weft_k_add(float *dst, const float *src, size_t n);
/* Sum of squares in double: 4096-element tiles, each in order of 16 partial sums, tiles
 * in index order. */
double weft_k_sum_squares(const float *x, size_t n);
/* What keeps a gradient of this norm to at most `clip`: min(1, clip / (norm +
 * 1e-6)), as torch.nn.utils.clip_grad_norm_; clip 0: 1. */
float weft_k_clip_scale(double norm, float clip);

/* Moments of numbers that come tile by tile; the same tiles in the same order
 * give the same bits. Begin with all fields 0. */
struct weft_k_moments {
    int64_t n;
    double mean,
        squares; /* squares: sum of squared distances from the mean */
    double min, max;
};
void weft_k_moments_add(struct weft_k_moments *m, int32_t n, const float *x);
/* 1 / sqrt(unbiased variance + 1e-8), of two numbers or more. */
double weft_k_moments_rstd(const struct weft_k_moments *m);

/* ---- Rows ------------------------------------------------------------- */

/* y = dtype(x / rms(x) * w), rms with eps; (M, H). */
void weft_k_rmsnorm(enum weft_dtype dtype, int64_t m, int64_t h, float eps,
                    const float *x, const float *w, void *y);
/* dx (M, H) += gradient through the norm of dy (f32); dw (H) continues its
 * chain over rows in order (NULL: not wanted). */
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

/* Rows of several runs one after another, no padding. */
struct weft_k_batch {
    int32_t n_rows, n_runs;
    const struct weft_k_run *run;
    const int32_t *token; /* (n_rows) */
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

/* x (M, H) -> y (M, H), may be the same. With `kv`, keys and values of the rows
 * are written to, and attention reads, the cache (layer index `layer`);
 * without, runs must start at pos 0 and be whole prefixes. `saved`: what
 * backward needs beside x (NULL: inference, or recompute). */
size_t weft_k_layer_saved_bytes(const struct weft_shape *shape,
                                int64_t n_rows);
size_t weft_k_layer_forward_scratch_bytes(const struct weft_shape *shape,
                                          const struct weft_k_batch *batch);
void weft_k_layer_forward(const struct weft_shape *shape,
                          const struct weft_k_layer *weights, int32_t layer,
                          const struct weft_k_batch *batch,
                          const struct weft_k_kv *kv, const float *x,
                          float *y, void *saved, void *scratch);

/* dx (M, H): gradient of the output in, of the input out. x: the layer's
 * input. saved NULL: recomputed from x. grad[t]: WEFT_TILE_LAYER flat order
 * of block t, grad_norms: WEFT_TILE_NORMS; both continue. Gradients of KV
 * rows shared by blocks are accumulated in the owner's tile only. */
size_t weft_k_layer_backward_scratch_bytes(const struct weft_shape *shape,
                                           const struct weft_k_batch *batch,
                                           bool recompute);
void weft_k_layer_backward(const struct weft_shape *shape,
                           const struct weft_k_layer *weights,
                           const struct weft_k_batch *batch, const float *x,
                           const void *saved, float *dx, float *const grad[],
                           float *grad_norms, void *scratch);

/* Sums of squares of some chunks of a tile's gradient, which begins with the
 * first of them, without replicas that its block does not own. sum_out
 * (chunks.n): weft_k_sum_squares() of each. */
void weft_k_chunk_squares(const struct weft_shape *shape,
                          enum weft_tile_kind kind, int32_t block,
                          struct weft_range chunks, const float *grad,
                          double *sum_out);

/* ---- Embedding -------------------------------------------------------- */

/* x (M, H) f32 = rows of the table; table[t]: WEFT_TILE_EMBED published. */
void weft_k_embed(const struct weft_shape *shape, const void *const table[],
                  int32_t n, const int32_t *token, float *x);
/* grad[t] (n_vocab, H) continues, rows in order. */
void weft_k_embed_backward(const struct weft_shape *shape, int32_t n,
                           const int32_t *token, const float *dx,
                           float *const grad[]);
/* Tied weights: adds the embedding's gradient (natural order) of block t to
 * the head's (flat order), some chunks that both begin with; and makes the
 * published table from the published head, in its place if it is the same:
 * both have room for n_vocab rounded up to WEFT_PANEL rows. */
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

/* Rows that predict: row[i] of x (M, H) predicts token target[i]. */
struct weft_k_targets {
    int32_t n;
    const int32_t *row; /* ascending */
    const int32_t *target;
};

/* log p(target) under softmax(logits / temperature) over the whole
 * vocabulary; entropy of that distribution (NULL: not wanted); lse for the
 * backward (NULL: not wanted). Never more than a chunk of logits exists.
 * Order: design section 3 (per vocabulary block with the local maximum,
 * merged by the T tree). */
size_t weft_k_head_scratch_bytes(const struct weft_shape *shape, int32_t n);
void weft_k_head_logprob(const struct weft_shape *shape,
                         const struct weft_k_head *head, const float *x,
                         const struct weft_k_targets *targets,
                         float inv_temperature, float *logp_out,
                         float *entropy_out, float *lse_out, void *scratch);

/* Gradient of sum_i dlogp[i] * logp[i] + dentropy[i] * entropy[i].
 * dx (M = n_rows, H) is overwritten (zero in rows that predict nothing);
 * grad[t], grad_final continue. run_rows as in weft_k_gemm_dw, but counting
 * the predicting rows of every sample. */
size_t weft_k_head_backward_scratch_bytes(const struct weft_shape *shape,
                                          int32_t n, int32_t n_runs);
void weft_k_head_backward(
    const struct weft_shape *shape, const struct weft_k_head *head,
    int32_t n_rows, const float *x, const struct weft_k_targets *targets,
    int32_t n_runs, const int32_t *run_rows, float inv_temperature,
    const float *lse, const float *entropy, const float *dlogp,
    const float *dentropy, float *dx, float *const grad[], float *grad_final,
    void *scratch);

/* Logits (n, V) f32 (before temperature) of n rows of x (n, H): for sampling. */
void weft_k_head_logits(const struct weft_shape *shape,
                        const struct weft_k_head *head, int32_t n,
                        const float *x, float *logits, void *scratch);

/* value[i] = score . norm(x[row[i]]), f32, order of 16 partial sums; targets->target is
 * not read. Backward: dx (n_rows, H) is overwritten, as above; grad_final
 * continues. */
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
/* One token from logits (V): the largest top_k, then of these the smallest
 * set whose share of their probability reaches top_p (never empty); ties by
 * the lower id. One Philox uniform keyed (seed, SAMPLE, a, b, position) goes
 * through the distribution function: in descending probability where top_k or
 * top_p cut, else in the order of ids. logp_out: log softmax(logits /
 * temperature)[token] over the whole vocabulary, the bits of
 * weft_k_head_logprob() with inv_temperature = 1 / temperature. scratch:
 * V * 8 bytes. Returns -1, and leaves logp_out alone, when the logits hold a
 * NaN or no finite largest number (-infinity alone is a token that cannot
 * come). */
int32_t weft_k_sample(const struct weft_shape *shape,
                      const struct weft_k_sampling *sampling,
                      const float *logits, uint32_t a, uint32_t b,
                      uint32_t position, float *logp_out, void *scratch);

/* ---- Reinforcement learning ------------------------------------------- */

enum weft_kl { WEFT_KL_NONE, WEFT_KL_K1, WEFT_KL_K2, WEFT_KL_K3 };

/* Estimate of the KL divergence from the reference at one sampled token
 * (Schulman 2020, "Approximating KL divergence"), with d = logp - ref: k1 = d,
 * k2 = d^2 / 2, k3 = exp(-d) - 1 + d, but at most 10. The slope is the
 * estimate's derivative by logp, 0 beyond that bound. */
struct weft_k_kl {
    double value, slope;
};
struct weft_k_kl weft_k_kl(enum weft_kl kind, float logp, float ref);

/* The coefficient after n samples whose mean KL was `kl` (Ziegler et al. 2019,
 * section 2.2): coef (1 + e n / horizon), e = kl / target - 1 kept in +-0.2. */
double weft_k_kl_adapt(double coef, double kl, double target, int32_t n,
                       int32_t horizon);

/* Generalised advantage estimation (Schulman et al. 2016) of one response of
 * n tokens, gamma and lambda in [0, 1]: backwards recursion in f32.
 * reward, value (n); bootstrap: value after the last token (0 when it ended).
 * advantage_out, return_out (n) with return = advantage + value. */
void weft_k_gae(int32_t n, float gamma, float lambda, const float *reward,
                const float *value, float bootstrap, float *advantage_out,
                float *return_out);

/* PPO's policy loss of tokens i = 0..n-1 of one sample. w: weight of each
 * token in the mini-batch's mean; it scales the gradients and WEFT_STAT_LOSS,
 * not the other statistics. Log-ratios are clamped to 20, with gradient 0
 * beyond, as verl does. ref_logp may be NULL without a KL.
 * Statistics are added to `stat` (the maxima joined), in token order. */
struct weft_k_policy {
    float clip_low, clip_high; /* ratio kept in [1 - low, 1 + high] */
    float dual_clip;           /* c > 1: loss >= -c A for A < 0; 0: off */
    float entropy_coef;
    float kl_coef; /* KL to the reference in the loss */
    enum weft_kl kl;
};
enum weft_policy_stat { /* sums over the sample's tokens, f64; PPO_KL is
                         * the sum of old_logp - logp */
                        WEFT_STAT_LOSS,
                        WEFT_STAT_PG_LOSS,
                        WEFT_STAT_CLIPPED,
                        WEFT_STAT_CLIPPED_LOWER,
                        WEFT_STAT_PPO_KL,
                        WEFT_STAT_ENTROPY,
                        WEFT_STAT_KL,
                        WEFT_STAT_TOKENS,
                        WEFT_STAT_RATIO_MAX_DEV, /* max |ratio - 1| */
                        WEFT_STAT_LOGP_DIFF_MAX, /* max |logp - old_logp| */
                        WEFT_N_POLICY_STATS
};
void weft_k_policy_loss(const struct weft_k_policy *policy, int32_t n,
                        float w, const float *logp, const float *old_logp,
                        const float *ref_logp, const float *advantage,
                        const float *entropy, float *dlogp, float *dentropy,
                        double stat[WEFT_N_POLICY_STATS]);

/* Clipped value loss: w * 0.5 * max((v-R)^2, (clip(v, v_old +- eps) - R)^2);
 * clip <= 0: no clipping. Statistics are added, and only LOSS carries w, as
 * above. */
enum weft_value_stat {
    WEFT_VSTAT_LOSS,
    WEFT_VSTAT_CLIPPED,
    WEFT_VSTAT_VALUE,
    WEFT_VSTAT_TOKENS,
    WEFT_N_VALUE_STATS
};
void weft_k_value_loss(float clip, int32_t n, float w, const float *value,
                       const float *old_value, const float *ret,
                       float *dvalue, double stat[WEFT_N_VALUE_STATS]);

/* ---- Optimizer -------------------------------------------------------- */

struct weft_k_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update; bias correction in double */
};
/* n elements: g = grad * scale; decoupled decay (Loshchilov & Hutter 2019).
 * master, m, v are updated. */
void weft_k_adamw(const struct weft_k_adamw *o, size_t n, float scale,
                  const float *grad, float *master, float *m, float *v);

#ifdef __cplusplus
}
#endif
#endif
