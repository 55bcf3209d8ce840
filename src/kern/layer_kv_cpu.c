/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV heads: where they lie in the cache, and their replicas where several
 * blocks read the same head.
 */
#include "kern/layer.h"

enum { PAGE = WEFT_PAGE_TOKENS };

static size_t head_bytes(const struct weft_shape *s)
{
    return 2 * (size_t) s->head_dim * PAGE * weft_dtype_bytes(s->dtype);
}

static size_t layer_bytes(const struct weft_shape *s, struct weft_range range)
{
    size_t heads = 0;
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        heads += (size_t) s->block[t].n_kv;
    return heads * head_bytes(s);
}

size_t weft_k_part_kv_page_bytes(const struct weft_shape *s,
                                 struct weft_range range, int32_t n_layers)
{
    return (size_t) n_layers * layer_bytes(s, range);
}

size_t weft_k_kv_page_bytes(const struct weft_shape *s, int32_t n_layers)
{
    return weft_k_part_kv_page_bytes(s, weft_all_blocks(s), n_layers);
}

char *weft_kv_head(const struct weft_shape *s, struct weft_range range,
                   const struct weft_k_kv *kv, int32_t layer, int32_t t,
                   int32_t head)
{
    struct weft_range before = {range.first, t - range.first};
    return (char *) kv->arena + (size_t) layer * layer_bytes(s, range)
         + layer_bytes(s, before) + (size_t) head * head_bytes(s);
}

void weft_kv_write(const struct weft_shape *s, const struct weft_k_kv *kv,
                   const struct weft_k_run *run, char *head, const void *k,
                   const void *v, int64_t ld)
{
    int64_t d = s->head_dim;
    const int32_t *page = kv->page + (int64_t) run->slot * kv->pages_per_slot;
    for (int64_t i = 0; i < run->n; i++) {
        int64_t at = (run->pos + i) % PAGE;
        char *p = head
                + (size_t) page[(run->pos + i) / PAGE] * kv->page_bytes;
        if (s->dtype == WEFT_BF16) {
            uint16_t *to = (uint16_t *) (void *) p;
            const uint16_t *from = (const uint16_t *) k + i * ld;
            for (int64_t j = 0; j < d; j++)
                to[j * PAGE + at] = from[j];
            memcpy(to + (PAGE + at) * d, (const uint16_t *) v + i * ld,
                   (size_t) d * sizeof *to);
        } else {
            float *to = (float *) (void *) p;
            const float *from = (const float *) k + i * ld;
            for (int64_t j = 0; j < d; j++)
                to[j * PAGE + at] = from[j];
            memcpy(to + (PAGE + at) * d, (const float *) v + i * ld,
                   (size_t) d * sizeof *to);
        }
    }
}

struct weft_heads weft_block_readers(const struct weft_shape *s, int32_t t,
                                     int32_t kv)
{
    const struct weft_block *b = &s->block[t];
    int32_t per_kv = s->n_heads / s->n_kv_heads, head = b->kv0 + kv;
    int32_t first = head * per_kv, end = first + per_kv;
    first = first > b->head0 ? first : b->head0;
    end = end < b->head0 + b->n_heads ? end : b->head0 + b->n_heads;
    return (struct weft_heads){first - b->head0, end - first};
}

/* First row of KV head `kv` (of the model) in block t's QKV part. */
static int64_t kv_row(const struct weft_shape *s, int32_t t, int32_t kv,
                      bool is_v)
{
    const struct weft_block *b = &s->block[t];
    return (b->n_heads + (is_v ? b->n_kv : 0) + kv - b->kv0)
         * (int64_t) s->head_dim;
}

static void copy_head(const struct weft_shape *s, int32_t from, int32_t to,
                      int32_t kv, bool is_v, float *const tile[],
                      weft_rows_copy_fn copy, void *context)
{
    static const enum weft_part_id id[2] = {WEFT_PART_QKV,
                                            WEFT_PART_QKV_BIAS};
    struct weft_layout lf, lt;
    weft_layout_get(s, WEFT_TILE_LAYER, from, &lf);
    weft_layout_get(s, WEFT_TILE_LAYER, to, &lt);
    for (int i = 0; i < 2; i++) {
        const struct weft_part *pf = weft_layout_part(&lf, id[i]);
        const struct weft_part *pt = weft_layout_part(&lt, id[i]);
        if (pf)
            copy(&(struct weft_rows_copy){.n = s->head_dim,
                                          .k = pf->k,
                                          .from = tile[from] + pf->offset,
                                          .from_row = kv_row(s, from, kv,
                                                             is_v),
                                          .to = tile[to] + pt->offset,
                                          .to_row = kv_row(s, to, kv, is_v)},
                 context);
    }
}

static void copy_rows(const struct weft_rows_copy *c, void *context)
{
    struct weft_part p = {.k = (int32_t) c->k};
    (void) context;
    if (c->k == 0)
        memcpy(c->to + c->to_row, c->from + c->from_row,
               (size_t) c->n * sizeof *c->to);
    for (int64_t i = 0; i < c->n; i++) {
        const float *src = c->from + weft_flat_index(&p, c->from_row + i, 0);
        float *dst = c->to + weft_flat_index(&p, c->to_row + i, 0);
        for (int64_t k = 0; k < c->k; k++)
            dst[k * WEFT_PANEL] = src[k * WEFT_PANEL];
    }
}

/* The lowest block of the range that holds block t's first KV head. Block t
 * owns its other KV heads itself. */
static int32_t first_holder(const struct weft_shape *s,
                            struct weft_range range, int32_t t)
{
    int32_t owner = weft_shape_kv_owner(s, s->block[t].kv0);
    return owner > range.first ? owner : range.first;
}

bool weft_k_shares_in_range(const struct weft_shape *s,
                            struct weft_range range)
{
    bool shares = false;
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        shares |= first_holder(s, range, t) != t;
    return shares;
}

void weft_layer_share_range(const struct weft_shape *s,
                            struct weft_range range, float *const tile[],
                            weft_rows_copy_fn copy, void *context)
{
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        int32_t from = first_holder(s, range, t);
        for (int is_v = 0; from != t && is_v < 2; is_v++)
            copy_head(s, from, t, s->block[t].kv0, is_v, tile, copy, context);
    }
}

void weft_k_share_range(const struct weft_shape *s, struct weft_range range,
                        float *const tile[])
{
    weft_layer_share_range(s, range, tile, copy_rows, NULL);
}

/* Whether block t owns row n of its QKV part (or element n of its bias). */
static bool row_is_owned(const struct weft_shape *s, int32_t t, int64_t n)
{
    const struct weft_block *b = &s->block[t];
    int64_t head = n / s->head_dim - b->n_heads;
    if (head < 0)
        return true;
    return head < 2 * b->n_kv
        && weft_shape_kv_owner(s, b->kv0 + (int32_t) (head % b->n_kv)) == t;
}

/* Sum of squares of n elements of a part, the first of which is element
 * `begin`, without replicas of KV heads that other blocks own. */
static double owned_sum(const struct weft_shape *s, int32_t t,
                        const struct weft_part *p, size_t begin, size_t n,
                        const float *grad)
{
    enum { STRIP = 4096 }; /* the same as in weft_k_sum_squares() */
    double sum = 0;
    for (size_t at = 0; at < n; at += STRIP) {
        float strip[STRIP];
        size_t some = n - at < STRIP ? n - at : STRIP;
        for (size_t i = 0; i < some; i++) {
            size_t flat = begin + at + i; /* of the part */
            size_t row = p->k
                           ? flat / ((size_t) p->k * WEFT_PANEL) * WEFT_PANEL
                                 + flat % WEFT_PANEL
                           : flat;
            strip[i] = row_is_owned(s, t, (int64_t) row) ? grad[at + i] : 0;
        }
        sum += weft_k_sum_squares(strip, some);
    }
    return sum;
}

void weft_k_chunk_squares(const struct weft_shape *s,
                          enum weft_tile_kind kind, int32_t t,
                          struct weft_range chunks, const float *grad,
                          double *sum_out)
{
    struct weft_layout l;
    weft_layout_get(s, kind, t, &l);
    /* Only the first KV head of a block can be a replica. */
    bool replica = kind == WEFT_TILE_LAYER
                && weft_shape_kv_owner(s, s->block[t].kv0) != t;
    size_t first = weft_layout_chunk(&l, chunks.first);
    for (int32_t i = 0; i < chunks.n; i++) {
        size_t begin = weft_layout_chunk(&l, chunks.first + i), n;
        const struct weft_part *p = weft_layout_chunk_part(
            &l, chunks.first + i, &n);
        bool qkv = p->id == WEFT_PART_QKV || p->id == WEFT_PART_QKV_BIAS;
        const float *g = grad + (begin - first);
        sum_out[i] = replica && qkv
                       ? owned_sum(s, t, p, begin - p->offset, n, g)
                       : weft_k_sum_squares(g, n);
    }
}
