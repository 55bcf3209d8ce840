/* SPDX-License-Identifier: Apache-2.0 */
/* The attention half of a decoder layer, up to the O product. */
#include "kern/layer_forward.h"

#include <math.h>
#include <string.h>

/* From a row of block t's QKV product: norms of q and k, RoPE, rounding. */
static void finish_qkv(const struct weft_layer_forward *f, int32_t t,
                       int64_t row, const float *cos_sin, float *qkv)
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
    f->rows->round(s->dtype, n, qkv,
                   weft_layer_at(f->s, f->at.qkv[t], row * n));
}

static void project_qkv(const struct weft_layer_forward *f, const float *x)
{
    const struct weft_shape *s = f->s;
    const struct weft_k_batch *b = f->batch;
    int64_t h = s->hidden;
    int32_t run = 0, in_run = 0; /* of the next row */
    for (int64_t r = 0; r < b->n_rows; r += WEFT_CHUNK_ROWS) {
        int64_t n = weft_min64(WEFT_CHUNK_ROWS, b->n_rows - r);
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

/* Attention of run i, whose first row is `row`, over KV head `head` of block
 * t. */
static void attend(const struct weft_layer_forward *f,
                   const struct weft_k_kv *kv, int32_t layer, int32_t i,
                   int64_t row, int32_t t, int32_t head)
{
    const struct weft_k_run *run = &f->batch->run[i];
    const struct weft_shape *s = f->s;
    int64_t d = s->head_dim, q = weft_block_q(s, t);
    int64_t ld = weft_block_qkv(s, t);
    struct weft_heads heads = weft_block_readers(s, t, head);
    void *qkv = weft_layer_at(f->s, f->at.qkv[t], row * ld);
    const void *k = weft_layer_at(f->s, qkv, q + head * d);
    const void *v = weft_layer_at(f->s, qkv,
                                  q + weft_block_kv(s, t) + head * d);
    struct weft_attention a = {
        .dtype = s->dtype,
        .head_dim = s->head_dim,
        .n_group = heads.n,
        .n = run->n,
        .pos = run->pos,
        .q = weft_layer_at(f->s, qkv, heads.first * d),
        .ldq = ld,
        .scale = 1.0f / sqrtf((float) d),
        .out = weft_layer_at(f->s, f->at.att[t], row * q + heads.first * d),
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

void weft_layer_attention(struct weft_layer_forward *f, int32_t layer,
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
