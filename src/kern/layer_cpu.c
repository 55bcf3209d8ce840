/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder layer forwards, a range of its blocks or all of them:
 *
 *     x -> norm -> q, k, v (block by block) -> norm of q, k -> RoPE
 *       -> attention -> O product (T tree) + x = x_mid
 *       -> norm -> gate, up -> silu(gate) up -> down product (T tree) + x_mid
 *
 * Rounded to the run's dtype: the norms' outputs, q, k, v after RoPE,
 * attention's output, gate, up and their product; all else is f32. Rows go
 * through in chunks, which shows in no bit: only attention looks at others.
 * The whole takes a chunk from O to its end at once; parts stop at the sums
 * over blocks, of which they make the roots.
 */
#include "kern/layer.h"

#include <math.h>
#include <string.h>

#include "kern/rows.h"

enum { CHUNK_ROWS = 512 }; /* activations of one chunk stay near the core */

/* ---- Memory ------------------------------------------------------------ */

struct forward {
    const struct weft_shape *s;
    struct weft_range range;
    const struct weft_k_layer *w;
    const struct weft_k_batch *batch;
    const struct weft_row_ops *rows;
    struct weft_layer_saved at; /* in saved, or in scratch */
    bool all_gate_up;           /* gate_up holds all rows, not a chunk */
    const float *norm1, *norm2, *qnorm, *knorm;
    const char *qkv[WEFT_MAX_BLOCKS], *o[WEFT_MAX_BLOCKS];
    const char *gate_up[WEFT_MAX_BLOCKS], *down[WEFT_MAX_BLOCKS];
    const float *qkv_bias[WEFT_MAX_BLOCKS];
    struct weft_rope_table rope;
    void *normed;               /* (chunk, H) in dtype */
    float *product;             /* (chunk, widest qkv) */
    void *act[WEFT_MAX_BLOCKS]; /* (chunk, ff) in dtype */
    float *pages, *attention;
};

/* Where everything lies in scratch. Only row counts matter. */
static void forward_at(struct forward *f, struct weft_arena *arena,
                       bool has_saved)
{
    const struct weft_shape *s = f->s;
    int64_t n = f->batch->n_rows, chunk = weft_min64(n, CHUNK_ROWS);
    size_t element = weft_dtype_bytes(s->dtype);
    int64_t widest = 0;
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        widest = weft_max64(widest, weft_block_qkv(s, t));
        f->act[t] = weft_arena_take(arena, chunk * weft_block_ff(s, t),
                                    element);
        if (has_saved)
            continue;
        f->at.qkv[t] = weft_arena_take(arena, n * weft_block_qkv(s, t),
                                       element);
        f->at.att[t] = weft_arena_take(arena, n * weft_block_q(s, t),
                                       element);
        f->at.gate_up[t] = weft_arena_take(
            arena, chunk * 2 * weft_block_ff(s, t), element);
    }
    f->normed = weft_arena_take(arena, chunk * s->hidden, element);
    f->product = weft_arena_take(arena, chunk * widest, sizeof(float));
    f->pages = weft_arena_take(
        arena,
        weft_ceil_div(n, WEFT_PAGE_TOKENS)
            * (int64_t) weft_attention_segment(s->head_dim),
        sizeof(float));
    f->attention = weft_arena_take(
        arena, (int64_t) weft_attention_scratch(s->head_dim), sizeof(float));
    weft_rope_table_at(s, n, f->batch->n_runs, arena, &f->rope);
}

size_t weft_k_part_forward_scratch_bytes(const struct weft_shape *shape,
                                         struct weft_range range,
                                         const struct weft_k_batch *batch)
{
    struct weft_arena arena = {0};
    struct forward f = {.s = shape, .range = range, .batch = batch};
    forward_at(&f, &arena, false);
    return arena.used;
}

size_t weft_k_layer_forward_scratch_bytes(const struct weft_shape *shape,
                                          const struct weft_k_batch *batch)
{
    return weft_k_part_forward_scratch_bytes(shape, weft_all_blocks(shape),
                                             batch);
}

static const float *vector_of(const struct weft_layout *l,
                              enum weft_part_id id, const void *tile)
{
    const struct weft_part *p = weft_layout_part(l, id);
    return p ? (const float *) (const void *) ((const char *) tile
                                               + p->fwd_bytes)
             : NULL;
}

static const char *matrix_of(const struct weft_layout *l,
                             enum weft_part_id id, const void *tile)
{
    return (const char *) tile + weft_layout_part(l, id)->fwd_bytes;
}

static void find_weights(struct forward *f)
{
    struct weft_layout l;
    f->norm1 = weft_layer_vector(f->s, WEFT_PART_NORM1, f->w->norms);
    f->norm2 = weft_layer_vector(f->s, WEFT_PART_NORM2, f->w->norms);
    f->qnorm = weft_layer_vector(f->s, WEFT_PART_QNORM, f->w->norms);
    f->knorm = weft_layer_vector(f->s, WEFT_PART_KNORM, f->w->norms);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        const void *tile = f->w->fwd[t];
        weft_layout_get(f->s, WEFT_TILE_LAYER, t, &l);
        f->qkv[t] = matrix_of(&l, WEFT_PART_QKV, tile);
        f->qkv_bias[t] = vector_of(&l, WEFT_PART_QKV_BIAS, tile);
        f->o[t] = matrix_of(&l, WEFT_PART_O, tile);
        f->gate_up[t] = matrix_of(&l, WEFT_PART_GATE_UP, tile);
        f->down[t] = matrix_of(&l, WEFT_PART_DOWN, tile);
    }
}

const float *weft_k_o_bias(const struct weft_shape *shape, const float *norms)
{
    return weft_layer_vector(shape, WEFT_PART_O_BIAS, norms);
}

/* Everything is found; saved: the range's part, or NULL. */
static void begin(struct forward *f, void *saved, void *scratch)
{
    struct weft_arena arena = {.base = saved};
    f->rows = weft_row_ops();
    f->all_gate_up = saved;
    if (saved)
        weft_layer_saved_at(f->s, f->range, f->batch->n_rows, &arena, &f->at);
    arena = (struct weft_arena){.base = scratch};
    forward_at(f, &arena, saved != NULL);
    find_weights(f);
}

/* ---- Attention half ----------------------------------------------------- */

WEFT_INLINE void *row_at(const struct forward *f, void *p, int64_t i)
{
    return (char *) p + (size_t) i * weft_dtype_bytes(f->s->dtype);
}

/* Norm of q and k, RoPE and rounding of a row of block t's product. */
static void finish_qkv(const struct forward *f, int32_t t, int64_t row,
                       const float *cos_sin, float *qkv)
{
    const struct weft_shape *s = f->s;
    int64_t d = s->head_dim, q = weft_block_q(s, t);
    int64_t kv = weft_block_kv(s, t), n = q + 2 * kv;
    if (f->qnorm) {
        if (f->at.raw[t])
            memcpy(f->at.raw[t] + row * (q + kv), qkv,
                   (size_t) (q + kv) * sizeof *qkv);
        f->rows->rmsnorm(WEFT_F32, q / d, d, s->rms_eps, qkv, f->qnorm, qkv);
        f->rows->rmsnorm(WEFT_F32, kv / d, d, s->rms_eps, qkv + q, f->knorm,
                         qkv + q);
    }
    f->rows->rope((q + kv) / d, d, cos_sin, false, qkv);
    f->rows->round(s->dtype, n, qkv, row_at(f, f->at.qkv[t], row * n));
}

static void project_qkv(const struct forward *f, const float *x)
{
    const struct weft_shape *s = f->s;
    const struct weft_k_batch *b = f->batch;
    int64_t h = s->hidden;
    int32_t run = 0, in_run = 0; /* of the next row */
    for (int64_t r = 0; r < b->n_rows; r += CHUNK_ROWS) {
        int64_t n = weft_min64(CHUNK_ROWS, b->n_rows - r);
        int32_t run0 = run, in_run0 = in_run;
        f->rows->rmsnorm(s->dtype, n, h, s->rms_eps, x + r * h, f->norm1,
                         f->normed);
        for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
            int64_t w = weft_block_qkv(s, t);
            weft_k_gemm(&(struct weft_k_gemm_args){.dtype = s->dtype,
                                                   .y_dtype = WEFT_F32,
                                                   .m = n,
                                                   .n = w,
                                                   .n_blocks = 1,
                                                   .x = {f->normed},
                                                   .ldx = {h},
                                                   .w = {f->qkv[t]},
                                                   .k = {h},
                                                   .bias = f->qkv_bias[t],
                                                   .y = f->product,
                                                   .ldy = w});
            run = run0;
            in_run = in_run0;
            for (int64_t i = 0; i < n; i++, in_run++) {
                while (in_run == b->run[run].n) {
                    run++;
                    in_run = 0;
                }
                finish_qkv(f, t, r + i,
                           f->rope.cos_sin
                               + (f->rope.first[run] + in_run) * s->head_dim,
                           f->product + i * w);
            }
        }
    }
}

static const int32_t *pages_of(const struct weft_k_kv *kv,
                               const struct weft_k_run *run)
{
    return kv->page + (int64_t) run->slot * kv->pages_per_slot;
}

/* Attention of run i's rows, first row `row`, over KV head `head` of block
 * t. */
static void attend(const struct forward *f, const struct weft_k_kv *kv,
                   int32_t layer, int32_t i, int64_t row, int32_t t,
                   int32_t head)
{
    const struct weft_k_run *run = &f->batch->run[i];
    const struct weft_shape *s = f->s;
    int64_t d = s->head_dim, q = weft_block_q(s, t);
    int64_t ld = weft_block_qkv(s, t);
    struct weft_heads heads = weft_block_readers(s, t, head);
    void *qkv = row_at(f, f->at.qkv[t], row * ld);
    const void *k = row_at(f, qkv, q + head * d);
    const void *v = row_at(f, qkv, q + weft_block_kv(s, t) + head * d);
    struct weft_attention a = {
        .dtype = s->dtype,
        .head_dim = s->head_dim,
        .n_group = heads.n,
        .n = run->n,
        .pos = run->pos,
        .q = row_at(f, qkv, heads.first * d),
        .ldq = ld,
        .scale = 1.0f / sqrtf((float) d),
        .out = row_at(f, f->at.att[t], row * q + heads.first * d),
        .ldo = q,
        .scratch = f->attention};
    if (f->at.lse[t]) {
        a.ldlse = s->block[t].n_heads;
        a.lse = f->at.lse[t] + row * a.ldlse + heads.first;
    }
    if (kv) {
        char *base = weft_kv_head(s, f->range, kv, layer, t, head);
        weft_kv_write(s, kv, run, base, k, v, ld);
        a.kv = base;
        a.kv_dtype = s->dtype;
        a.page = pages_of(kv, run);
        a.page_bytes = kv->page_bytes;
        if (i + 1 < f->batch->n_runs)
            a.next = base + (size_t) *pages_of(kv, run + 1) * a.page_bytes;
    } else {
        f->rows->pack_kv(s->dtype, d, run->n, k, v, ld, f->pages);
        a.kv = (const char *) f->pages;
        a.kv_dtype = WEFT_F32;
        a.page_bytes = weft_attention_segment(d) * sizeof(float);
    }
    f->rows->attention(&a);
}

/* Up to the input of the O product. */
static void attention(struct forward *f, int32_t layer,
                      const struct weft_k_kv *kv, const float *x)
{
    const struct weft_k_batch *b = f->batch;
    weft_rope_table_fill(f->s, b, &f->rope);
    project_qkv(f, x);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++)
        for (int32_t head = 0; head < f->s->block[t].n_kv; head++)
            for (int32_t i = 0, row = 0; i < b->n_runs; i++) {
                attend(f, kv, layer, i, row, t, head);
                row += b->run[i].n;
            }
}

/* ---- Sums over blocks --------------------------------------------------- */

/* Where rows of a sum over blocks go: roots without anything, or the whole
 * with bias and residual. */
struct sum {
    const float *bias, *residual; /* (H), (M, H) or NULL */
    float *y;                     /* (n_roots, M, H) */
};

/* Rows r..r + n - 1; g says which products. */
static void add_up(const struct forward *f, struct weft_k_gemm_args *g,
                   int64_t r, int64_t n, const struct sum *to)
{
    int64_t h = f->s->hidden;
    g->dtype = f->s->dtype;
    g->y_dtype = WEFT_F32;
    g->m = n;
    g->n = g->ldy = h;
    g->n_blocks = f->s->n_blocks;
    g->bias = to->bias;
    g->residual = to->residual ? to->residual + r * h : NULL;
    g->y = to->y + r * h;
    weft_layer_gemm_roots(g, f->range, f->batch->n_rows * h);
}

static void project_o(const struct forward *f, int64_t r, int64_t n,
                      const struct sum *to)
{
    struct weft_k_gemm_args g = {0};
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        g.k[t] = g.ldx[t] = weft_block_q(f->s, t);
        g.x[t] = row_at(f, f->at.att[t], r * g.k[t]);
        g.w[t] = f->o[t];
    }
    add_up(f, &g, r, n, to);
}

/* The MLP of rows r..r + n - 1; to->y NULL: only gate and up. */
static void mlp(const struct forward *f, int64_t r, int64_t n,
                const float *x_mid, const struct sum *to)
{
    const struct weft_shape *s = f->s;
    struct weft_k_gemm_args g = {0};
    int64_t h = s->hidden;
    f->rows->rmsnorm(s->dtype, n, h, s->rms_eps, x_mid + r * h, f->norm2,
                     f->normed);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        int64_t ff = weft_block_ff(s, t);
        void *gate_up = row_at(f, f->at.gate_up[t],
                               f->all_gate_up ? r * 2 * ff : 0);
        weft_k_gemm(&(struct weft_k_gemm_args){.dtype = s->dtype,
                                               .y_dtype = s->dtype,
                                               .m = n,
                                               .n = 2 * ff,
                                               .n_blocks = 1,
                                               .x = {f->normed},
                                               .ldx = {h},
                                               .w = {f->gate_up[t]},
                                               .k = {h},
                                               .y = gate_up,
                                               .ldy = 2 * ff});
        if (to->y)
            f->rows->swiglu(s->dtype, n, ff, gate_up, f->act[t]);
        g.k[t] = g.ldx[t] = ff;
        g.x[t] = f->act[t];
        g.w[t] = f->down[t];
    }
    if (to->y)
        add_up(f, &g, r, n, to);
}

/* ---- Parts and whole ---------------------------------------------------- */

void weft_k_attention_forward(const struct weft_shape *shape,
                              struct weft_range range,
                              const struct weft_k_layer *weights,
                              int32_t layer, const struct weft_k_batch *batch,
                              const struct weft_k_kv *kv, const float *x,
                              void *saved, float *roots, void *scratch)
{
    struct forward f = {
        .s = shape, .range = range, .w = weights, .batch = batch};
    begin(&f, saved, scratch);
    attention(&f, layer, kv, x);
    project_o(&f, 0, batch->n_rows, &(struct sum){.y = roots});
}

void weft_k_mlp_forward(const struct weft_shape *shape,
                        struct weft_range range,
                        const struct weft_k_layer *weights,
                        const struct weft_k_batch *batch, const float *x_mid,
                        void *saved, float *roots, void *scratch)
{
    struct forward f = {
        .s = shape, .range = range, .w = weights, .batch = batch};
    struct sum to = {.y = roots};
    begin(&f, saved, scratch);
    for (int64_t r = 0; r < batch->n_rows; r += CHUNK_ROWS)
        mlp(&f, r, weft_min64(CHUNK_ROWS, batch->n_rows - r), x_mid, &to);
}

static void forward(struct forward *f, int32_t layer,
                    const struct weft_k_kv *kv, const float *x, float *y,
                    void *saved, void *scratch)
{
    int64_t n_rows = f->batch->n_rows;
    size_t before = saved ? weft_layer_x_mid_bytes(f->s, n_rows) : 0;
    float *x_mid = saved ? saved : y;
    f->range = weft_all_blocks(f->s);
    begin(f, saved ? (char *) saved + before : NULL, scratch);
    attention(f, layer, kv, x);
    struct sum mid = {weft_k_o_bias(f->s, f->w->norms), x, x_mid};
    struct sum end = {NULL, x_mid, y};
    for (int64_t r = 0; r < n_rows; r += CHUNK_ROWS) {
        int64_t n = weft_min64(CHUNK_ROWS, n_rows - r);
        project_o(f, r, n, &mid);
        mlp(f, r, n, x_mid, &end);
    }
}

void weft_k_layer_forward(const struct weft_shape *shape,
                          const struct weft_k_layer *weights, int32_t layer,
                          const struct weft_k_batch *batch,
                          const struct weft_k_kv *kv, const float *x,
                          float *y, void *saved, void *scratch)
{
    struct forward f = {.s = shape, .w = weights, .batch = batch};
    forward(&f, layer, kv, x, y, saved, scratch);
}

void weft_layer_recompute(const struct weft_shape *shape,
                          const struct weft_k_layer *weights,
                          const struct weft_k_batch *batch, const float *x,
                          void *saved, void *scratch)
{
    struct forward f = {.s = shape, .w = weights, .batch = batch};
    forward(&f, 0, NULL, x, NULL, saved, scratch);
}
