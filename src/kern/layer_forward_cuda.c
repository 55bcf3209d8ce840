/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward pass of a decoder layer on a GPU: the same values, rounded at the
 * same places, as layer_forward_cpu.c and its neighbours. All rows pass one
 * operation after the other; the MLP's rows in chunks, so that its scratch is
 * bounded. Without a KV cache keys and values of a block go to pages in
 * scratch.
 */
#include <math.h>

#include "kern/attention_cuda.h"
#include "kern/layer_cuda.h"
#include "kern/layer_forward.h"

#ifdef WEFT_CUDA_EXECUTOR /* tests have few rows */
enum { CHUNK_ROWS = 24 };
#else
enum { CHUNK_ROWS = 4096 };
#endif

struct forward {
    struct weft_layer_forward f; /* saved values and weights */
    struct weft_gemm_cuda gemm;
    struct weft_rows_cuda rows;
    void *normed;   /* (M, H) in dtype */
    float *product; /* (M, widest qkv) */
    char *pages;    /* of the widest block */
    float *parts;   /* of attention, or NULL */
};

void weft_layer_gemm_cuda(const struct weft_k_gemm_args *args, void *context)
{
    const struct weft_gemm_cuda *gemm = context;
    weft_k_gemm_cuda(gemm->stream, args, gemm->scratch);
}

size_t weft_layer_gemm_bytes_cuda(const struct weft_shape *s,
                                  struct weft_range range, int64_t m)
{
    static const float bias;
    struct weft_k_gemm_args g = {
        .m = m, .n = s->hidden, .n_blocks = s->n_blocks, .bias = &bias};
    size_t most = weft_k_gemm_scratch_bytes_cuda(&g);
    g.n_blocks = 1;
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        g.n = weft_block_qkv(s, t);
        size_t n = weft_k_gemm_scratch_bytes_cuda(&g);
        most = n > most ? n : most;
    }
    return most;
}

static size_t head_bytes(const struct weft_shape *s)
{
    return 2 * (size_t) s->head_dim * WEFT_PAGE_TOKENS
         * weft_dtype_bytes(s->dtype);
}

/* Of the block that needs most. */
static size_t parts_bytes(const struct forward *p)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    size_t most = 0;
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++)
        for (int32_t head = 0; head < s->block[t].n_kv; head++) {
            bool alike = weft_layer_heads_are_alike(s, t);
            size_t bytes = weft_attention_parts_bytes_cuda(
                s->dtype, s->head_dim, alike ? s->block[t].n_kv : 1,
                weft_block_readers(s, t, head).n, f->batch->n_runs,
                p->rows.max_rows, s->max_positions);
            most = bytes > most ? bytes : most;
        }
    return most;
}

static void forward_at(struct forward *p, struct weft_arena *arena,
                       bool has_saved)
{
    struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    int64_t n = f->batch->n_rows, chunk = weft_min64(n, CHUNK_ROWS);
    int64_t widest = weft_layer_forward_blocks_at(f, arena, chunk, has_saved);
    int64_t n_kv = 0;
    size_t element = weft_dtype_bytes(s->dtype);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++)
        n_kv = weft_max64(n_kv, s->block[t].n_kv);
    p->normed = weft_arena_take(arena, n * s->hidden, element);
    p->product = weft_arena_take(arena, n * widest, sizeof(float));
    weft_rows_cuda_at(s, f->batch, arena, &p->rows);
    p->pages = weft_arena_take(arena, p->rows.n_pages * n_kv, head_bytes(s));
    p->gemm.scratch = weft_arena_take(
        arena, (int64_t) weft_layer_gemm_bytes_cuda(s, f->range, n), 1);
    size_t parts = parts_bytes(p);
    p->parts = parts > 0 ? weft_arena_take(arena, (int64_t) parts, 1) : NULL;
}

size_t weft_k_part_forward_scratch_bytes_cuda(
    const struct weft_shape *shape, struct weft_range range,
    const struct weft_k_batch *batch)
{
    struct weft_arena arena = {0};
    struct forward p = {.f = {.s = shape, .range = range, .batch = batch}};
    forward_at(&p, &arena, false);
    return arena.used;
}

/* ---- Attention ---------------------------------------------------------- */

/* q: columns of the queries; the keys, kv, follow. */
static void norm_heads(const struct forward *p, int32_t t, int64_t q,
                       int64_t kv)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    struct CUstream_st *stream = p->gemm.stream;
    int64_t m = f->batch->n_rows, d = s->head_dim, n = q + 2 * kv;
    if (f->at.raw[t])
        weft_columns_cuda(stream, sizeof(float), m, q + kv, p->product, n,
                          f->at.raw[t], q + kv);
    weft_head_norms_cuda(stream, m, q / d, d, n, s->rms_eps, f->qnorm,
                         p->product);
    weft_head_norms_cuda(stream, m, kv / d, d, n, s->rms_eps, f->knorm,
                         p->product + q);
}

static void project_qkv(const struct forward *p, int32_t t)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    struct CUstream_st *stream = p->gemm.stream;
    int64_t m = f->batch->n_rows, h = s->hidden, d = s->head_dim;
    int64_t q = weft_block_q(s, t), kv = weft_block_kv(s, t), n = q + 2 * kv;
    weft_k_gemm_cuda(stream,
                     &(struct weft_k_gemm_args){.dtype = s->dtype,
                                                .y_dtype = WEFT_F32,
                                                .m = m,
                                                .n = n,
                                                .n_blocks = 1,
                                                .x = {p->normed},
                                                .ldx = {h},
                                                .w = {f->qkv[t]},
                                                .k = {h},
                                                .bias = f->qkv_bias[t],
                                                .y = p->product,
                                                .ldy = n},
                     p->gemm.scratch);
    if (f->qnorm)
        norm_heads(p, t, q, kv);
    weft_k_rope_cuda(stream, m, (q + kv) / d, d, n, p->rows.cos_sin,
                     p->rows.at, false, p->product);
    weft_k_round_cuda(stream, s->dtype, m * n, p->product, f->at.qkv[t]);
}

/* Attention of block t's KV heads head.. head + n_kv - 1, each read by
 * `readers.n` query heads, the first of them readers.first. */
static void attend(const struct forward *p, const struct weft_k_kv *kv,
                   int32_t layer, int32_t t, int32_t head, int32_t n_kv,
                   struct weft_heads readers)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    int64_t d = s->head_dim, q = weft_block_q(s, t);
    int64_t ld = weft_block_qkv(s, t);
    void *qkv = f->at.qkv[t];
    struct weft_attention_cuda a = {
        .dtype = s->dtype,
        .head_dim = s->head_dim,
        .n_kv = n_kv,
        .n_group = readers.n,
        .n_runs = f->batch->n_runs,
        .max_rows = p->rows.max_rows,
        .run = p->rows.run,
        .first_row = p->rows.first_row,
        .kv = p->pages + (size_t) head * head_bytes(s),
        .page_bytes = (size_t) s->block[t].n_kv * head_bytes(s),
        .head_bytes = head_bytes(s),
        .page = p->rows.page,
        .pages_per_slot = p->rows.pages_per_slot,
        .scale = 1.0f / sqrtf((float) d),
        .q = weft_layer_at(s, qkv, readers.first * d),
        .ldq = ld,
        .parts = p->parts,
        .max_keys = s->max_positions,
        .out = weft_layer_at(s, f->at.att[t], readers.first * d),
        .ldo = q};
    if (f->at.lse[t]) {
        a.lse = f->at.lse[t] + readers.first;
        a.ldlse = s->block[t].n_heads;
    }
    if (kv) {
        a.kv = weft_kv_head(s, f->range, kv, layer, t, head);
        a.page_bytes = kv->page_bytes;
        a.page = kv->page;
        a.pages_per_slot = kv->pages_per_slot;
    }
    weft_k_kv_write_cuda(
        p->gemm.stream, &a, weft_layer_at(s, qkv, q + head * d),
        weft_layer_at(s, qkv, q + weft_block_kv(s, t) + head * d), ld);
    weft_k_attention_cuda(p->gemm.stream, &a);
}

bool weft_layer_heads_are_alike(const struct weft_shape *s, int32_t t)
{
    struct weft_heads first = weft_block_readers(s, t, 0);
    bool alike = true;
    for (int32_t head = 0; head < s->block[t].n_kv; head++) {
        struct weft_heads other = weft_block_readers(s, t, head);
        alike &= other.n == first.n && other.first == head * first.n;
    }
    return alike;
}

static void attention(const struct forward *p, int32_t layer,
                      const struct weft_k_kv *kv, const float *x)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    weft_rows_cuda_fill(p->gemm.stream, s, f->batch, !kv, &p->rows);
    weft_k_rmsnorm_cuda(p->gemm.stream, s->dtype, f->batch->n_rows, s->hidden,
                        s->rms_eps, x, f->norm1, p->normed);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        int32_t n_kv = s->block[t].n_kv;
        project_qkv(p, t);
        if (weft_layer_heads_are_alike(s, t))
            attend(p, kv, layer, t, 0, n_kv, weft_block_readers(s, t, 0));
        else
            for (int32_t head = 0; head < n_kv; head++)
                attend(p, kv, layer, t, head, 1,
                       weft_block_readers(s, t, head));
    }
}

/* ---- MLP --------------------------------------------------------------- */

/* The MLP of rows r.. r + n - 1; to->y NULL: only gate and up. */
static void mlp_chunk(const struct forward *p, int64_t r, int64_t n,
                      const float *x_mid, const struct weft_layer_sum *to)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    struct weft_k_gemm_args g = {0};
    int64_t h = s->hidden;
    weft_k_rmsnorm_cuda(p->gemm.stream, s->dtype, n, h, s->rms_eps,
                        x_mid + r * h, f->norm2, p->normed);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        int64_t ff = weft_block_ff(s, t);
        void *gate_up = weft_layer_at(s, f->at.gate_up[t],
                                      f->all_gate_up ? r * 2 * ff : 0);
        weft_k_gemm_cuda(p->gemm.stream,
                         &(struct weft_k_gemm_args){.dtype = s->dtype,
                                                    .y_dtype = s->dtype,
                                                    .m = n,
                                                    .n = 2 * ff,
                                                    .n_blocks = 1,
                                                    .x = {p->normed},
                                                    .ldx = {h},
                                                    .w = {f->gate_up[t]},
                                                    .k = {h},
                                                    .y = gate_up,
                                                    .ldy = 2 * ff},
                         p->gemm.scratch);
        if (to->y)
            weft_k_swiglu_cuda(p->gemm.stream, s->dtype, n, ff, gate_up,
                               f->act[t]);
        g.k[t] = g.ldx[t] = ff;
        g.x[t] = f->act[t];
        g.w[t] = f->down[t];
    }
    if (to->y)
        weft_layer_add_up(f, &g, r, n, to);
}

static void mlp(const struct forward *p, const float *x_mid,
                const struct weft_layer_sum *to)
{
    int64_t n_rows = p->f.batch->n_rows;
    for (int64_t r = 0; r < n_rows; r += CHUNK_ROWS)
        mlp_chunk(p, r, weft_min64(CHUNK_ROWS, n_rows - r), x_mid, to);
}

/* ---- Parts and whole ---------------------------------------------------- */

static void begin(struct forward *p, void *saved, void *scratch)
{
    struct weft_layer_forward *f = &p->f;
    struct weft_arena arena = {.base = saved};
    f->gemm = weft_layer_gemm_cuda;
    f->gemm_context = &p->gemm;
    f->all_gate_up = saved;
    if (saved)
        weft_layer_saved_at(f->s, f->range, f->batch->n_rows, &arena, &f->at);
    arena = (struct weft_arena){.base = scratch};
    forward_at(p, &arena, saved != NULL);
    weft_layer_forward_weights(f);
}

void weft_k_attention_forward_cuda(struct CUstream_st *stream,
                                   const struct weft_shape *shape,
                                   struct weft_range range,
                                   const struct weft_k_layer *weights,
                                   int32_t layer,
                                   const struct weft_k_batch *batch,
                                   const struct weft_k_kv *kv, const float *x,
                                   void *saved, float *roots, void *scratch)
{
    struct forward p = {
        .f = {.s = shape, .range = range, .w = weights, .batch = batch},
        .gemm = {.stream = stream}};
    begin(&p, saved, scratch);
    attention(&p, layer, kv, x);
    weft_layer_project_o(&p.f, 0, batch->n_rows,
                         &(struct weft_layer_sum){.y = roots});
}

void weft_k_mlp_forward_cuda(struct CUstream_st *stream,
                             const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_k_layer *weights,
                             const struct weft_k_batch *batch,
                             const float *x_mid, void *saved, float *roots,
                             void *scratch)
{
    struct forward p = {
        .f = {.s = shape, .range = range, .w = weights, .batch = batch},
        .gemm = {.stream = stream}};
    begin(&p, saved, scratch);
    mlp(&p, x_mid, &(struct weft_layer_sum){.y = roots});
}

void weft_k_layer_forward_cuda(struct CUstream_st *stream,
                               const struct weft_shape *shape,
                               const struct weft_k_layer *weights,
                               int32_t layer,
                               const struct weft_k_batch *batch,
                               const struct weft_k_kv *kv, const float *x,
                               float *y, void *saved, void *scratch)
{
    struct forward p = {.f = {.s = shape,
                              .range = weft_all_blocks(shape),
                              .w = weights,
                              .batch = batch},
                        .gemm = {.stream = stream}};
    size_t before = saved ? weft_layer_x_mid_bytes(shape, batch->n_rows) : 0;
    float *x_mid = saved ? saved : y;
    begin(&p, saved ? (char *) saved + before : NULL, scratch);
    attention(&p, layer, kv, x);
    struct weft_layer_sum mid = {weft_k_o_bias(shape, weights->norms), x,
                                 x_mid};
    weft_layer_project_o(&p.f, 0, batch->n_rows, &mid);
    mlp(&p, x_mid, &(struct weft_layer_sum){NULL, x_mid, y});
}
