/* SPDX-License-Identifier: Apache-2.0 */
/* The attention half of a decoder layer's forward pass on a GPU: norm, q, k
 * and v, attention. */
#include <math.h>

#include "kern/attention_cuda.h"
#include "kern/layer_forward_cuda.h"

/* Whether all KV heads of a block have equally many readers in it. */
static bool heads_are_alike(const struct weft_shape *s, int32_t t)
{
    struct weft_heads first = weft_block_readers(s, t, 0);
    bool alike = true;
    for (int32_t head = 0; head < s->block[t].n_kv; head++) {
        struct weft_heads other = weft_block_readers(s, t, head);
        alike &= other.n == first.n && other.first == head * first.n;
    }
    return alike;
}

bool weft_layer_blocks_are_alike(const struct weft_shape *s,
                                 struct weft_range range)
{
    const struct weft_block *first = &s->block[range.first];
    bool alike = true;
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        alike &= s->block[t].n_kv == first->n_kv
              && s->block[t].n_heads == first->n_heads
              && heads_are_alike(s, t);
    return alike;
}

static size_t parts_of(const struct weft_forward_cuda *p, int32_t n_kv,
                       int32_t n_group)
{
    const struct weft_shape *s = p->f.s;
    return weft_attention_parts_bytes_cuda(
        s->dtype, s->head_dim, n_kv, n_group, p->f.batch->n_runs,
        p->rows.max_rows, s->max_positions);
}

size_t weft_layer_parts_bytes_cuda(const struct weft_forward_cuda *p)
{
    const struct weft_shape *s = p->f.s;
    struct weft_range range = p->f.range;
    size_t most = 0;
    if (weft_layer_blocks_are_alike(s, range))
        return parts_of(p, p->n_kv, weft_block_readers(s, range.first, 0).n);
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        for (int32_t head = 0; head < s->block[t].n_kv; head++) {
            size_t bytes = parts_of(p, 1, weft_block_readers(s, t, head).n);
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* The range's keys and values, in the cache or in scratch. */
struct pages {
    char *kv[WEFT_MAX_BLOCKS]; /* KV head 0 of a block */
    size_t page_bytes;
    const int32_t *page;
    int32_t pages_per_slot;
};

static struct pages pages_of(const struct weft_forward_cuda *p, int32_t layer,
                             const struct weft_k_kv *kv)
{
    const struct weft_shape *s = p->f.s;
    struct weft_range range = p->f.range;
    struct pages pages = {.page_bytes = (size_t) p->n_kv
                                      * weft_layer_head_bytes(s),
                          .page = p->rows.page,
                          .pages_per_slot = p->rows.pages_per_slot};
    if (kv) {
        pages.page_bytes = kv->page_bytes;
        pages.page = kv->page;
        pages.pages_per_slot = kv->pages_per_slot;
    }
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        pages.kv[t] = kv ? weft_kv_head(s, range, kv, layer, t, 0)
                         : p->pages
                               + (size_t) p->kv_before[t]
                                     * weft_layer_head_bytes(s);
    return pages;
}

/* q, k and v of rows r.. r + n - 1. */
static void project_qkv(const struct weft_forward_cuda *p,
                        const struct pages *pages, int64_t r, int64_t n)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    struct weft_qkv_cuda a = {.dtype = s->dtype,
                              .head_dim = s->head_dim,
                              .n_runs = f->batch->n_runs,
                              .max_rows = p->rows.max_rows,
                              .run = p->rows.run,
                              .first_row = p->rows.first_row,
                              .row = r,
                              .n_rows = n,
                              .cos_sin = p->rows.cos_sin,
                              .qnorm = f->qnorm,
                              .knorm = f->knorm,
                              .eps = s->rms_eps,
                              .page_bytes = pages->page_bytes,
                              .head_bytes = weft_layer_head_bytes(s),
                              .page = pages->page,
                              .pages_per_slot = pages->pages_per_slot};
    int32_t n_heads = 0;
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        int64_t width = weft_block_qkv(s, t);
        weft_k_gemm_cuda(
            p->gemm.stream,
            &(struct weft_k_gemm_args){
                .dtype = s->dtype,
                .y_dtype = WEFT_F32,
                .m = n,
                .n = width,
                .n_blocks = 1,
                .x = {weft_layer_at(s, p->normed, r * s->hidden)},
                .ldx = {s->hidden},
                .w = {f->qkv[t]},
                .k = {s->hidden},
                .y = p->product[t],
                .ldy = width},
            p->gemm.scratch);
        a.block[a.n_blocks++] = (struct weft_qkv_block_cuda){
            .product = p->product[t],
            .bias = f->qkv_bias[t],
            .raw = f->at.raw[t],
            .qkv = f->at.qkv[t],
            .kv = pages->kv[t],
            .n_heads = s->block[t].n_heads,
            .n_kv = s->block[t].n_kv,
            .first_head = n_heads};
        n_heads += s->block[t].n_heads + 2 * s->block[t].n_kv;
    }
    weft_qkv_cuda(p->gemm.stream, &a);
}

/* Attention of the KV heads head.. head + n_kv - 1 of n blocks from t on, each
 * read by `readers.n` query heads, the first of them readers.first. */
static void attend(const struct weft_forward_cuda *p,
                   const struct pages *pages, struct weft_range blocks,
                   int32_t head, int32_t n_kv, struct weft_heads readers)
{
    const struct weft_layer_forward *f = &p->f;
    const struct weft_shape *s = f->s;
    int64_t d = s->head_dim;
    struct weft_attention_cuda a = {.dtype = s->dtype,
                                    .head_dim = s->head_dim,
                                    .n_kv = n_kv,
                                    .n_group = readers.n,
                                    .n_runs = f->batch->n_runs,
                                    .max_rows = p->rows.max_rows,
                                    .run = p->rows.run,
                                    .first_row = p->rows.first_row,
                                    .page_bytes = pages->page_bytes,
                                    .head_bytes = weft_layer_head_bytes(s),
                                    .page = pages->page,
                                    .pages_per_slot = pages->pages_per_slot,
                                    .scale = 1.0f / sqrtf((float) d),
                                    .ldq = weft_block_qkv(s, blocks.first),
                                    .ldo = weft_block_q(s, blocks.first),
                                    .ldlse = s->block[blocks.first].n_heads,
                                    .parts = p->parts,
                                    .max_keys = s->max_positions};
    for (int32_t t = blocks.first; t < weft_range_end(blocks); t++)
        a.block[a.n_blocks++] = (struct weft_attention_block){
            .kv = pages->kv[t] + (size_t) head * weft_layer_head_bytes(s),
            .q = weft_layer_at(s, f->at.qkv[t], readers.first * d),
            .out = weft_layer_at(s, f->at.att[t], readers.first * d),
            .lse = f->at.lse[t] ? f->at.lse[t] + readers.first : NULL};
    weft_k_attention_cuda(p->gemm.stream, &a);
}

static void attend_all(const struct weft_forward_cuda *p,
                       const struct pages *pages)
{
    const struct weft_shape *s = p->f.s;
    struct weft_range range = p->f.range;
    if (weft_layer_blocks_are_alike(s, range)) {
        attend(p, pages, range, 0, s->block[range.first].n_kv,
               weft_block_readers(s, range.first, 0));
        return;
    }
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        for (int32_t head = 0; head < s->block[t].n_kv; head++)
            attend(p, pages, (struct weft_range){t, 1}, head, 1,
                   weft_block_readers(s, t, head));
}

void weft_layer_attention_cuda(const struct weft_forward_cuda *p,
                               int32_t layer, const struct weft_k_kv *kv,
                               const float *x)
{
    const struct weft_layer_forward *f = &p->f;
    struct pages pages = pages_of(p, layer, kv);
    int64_t n_rows = f->batch->n_rows;
    weft_rows_cuda_fill(
        p->gemm.stream, f->s, f->batch, !kv, &p->rows,
        &(struct weft_rows_norm_cuda){x, f->norm1, p->normed});
    for (int64_t r = 0; r < n_rows; r += WEFT_CHUNK_ROWS_CUDA)
        project_qkv(p, &pages, r,
                    weft_min64(WEFT_CHUNK_ROWS_CUDA, n_rows - r));
    attend_all(p, &pages);
}
