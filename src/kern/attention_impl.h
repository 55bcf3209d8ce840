/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in segments of 64 keys, compiled for one instruction set and
 * included after rows_impl.h.
 *
 *            keys  0..63   64..127  128..
 *   rows  0..63   [\     ]                    full segments: all rows of a
 *        64..127  [      ][\     ]            tile at once; diagonal ones:
 *       128..     [      ][      ][\     ]    every row up to its own key
 *
 * A score is one chain of additions over D, a row's maximum and sum are merged
 * segment by segment, and an output element is one chain over the keys. So a
 * row's bits do not depend on which other rows share its tile.
 */

#include "kern/transpose.h"

enum { PAGE = WEFT_PAGE_TOKENS, ITEMS = WEFT_ATTENTION_ITEMS };

/* A tile of n items. An item is a pair of query row and query head; item i has
 * row (i0 + i) / G and head (i0 + i) % G, G heads to a row. */
struct tile {
    const struct weft_attention *a;
    int64_t i0, n;
    float *q, *o, *s, *max, *sum; /* (n, D), (n, D), (n, 64), (n), (n) */
    float *segment;               /* a segment converted to f32 */
    const char *next;             /* the segment after the present one */
};

static int64_t tile_position(const struct tile *t, int64_t i)
{
    return t->a->pos + (t->i0 + i) / t->a->n_group;
}

/* Turns the item's scores into exp(score - max), and rescales its output and
 * sum so far to the new maximum. `limit`: how many keys of the segment the row
 * may attend to; the others' scores become 0. */
static void tile_softmax(const struct tile *t, int64_t i, int64_t limit)
{
    float *s = t->s + i * PAGE, *o = t->o + i * t->a->head_dim;
    weft_v16 x[4], scale = v_set1(t->a->scale);
    for (int v = 0; v < 4; v++) {
        x[v] = v_mul(v_load(s + v * 16), scale);
        if (limit < 16 * v + 16)
            x[v] = v_keep(x[v], weft_max64(limit - 16 * v, 0), -INFINITY);
    }
    float max = v_max_of(v_max(v_max(x[0], x[1]), v_max(x[2], x[3])));
    max = max > t->max[i] ? max : t->max[i];
    for (int v = 0; v < 4; v++) {
        x[v] = v_exp(v_sub(x[v], v_set1(max)));
        v_store(s + v * 16, x[v]);
    }
    float sum = v_sum(v_add(v_add(x[0], x[1]), v_add(x[2], x[3])));
    float old = weft_expf(t->max[i] - max);
    t->sum[i] = weft_fmaf(t->sum[i], old, sum);
    t->max[i] = max;
    if (old != 1.0f)
        for (int64_t d = 0; d < t->a->head_dim; d += 16)
            row_store(
                WEFT_F32, o, d, t->a->head_dim,
                v_mul(row_load(WEFT_F32, o, d, t->a->head_dim), v_set1(old)));
}

/* How many keys of the segment item i may attend to. */
static int64_t tile_limit(const struct tile *t, int64_t segment, int64_t i)
{
    return weft_min64(tile_position(t, i) - segment * PAGE + 1, PAGE);
}

static const char *segment_at(const struct weft_attention *a, int64_t i)
{
    return a->kv + (size_t) (a->page ? a->page[i] : i) * a->page_bytes;
}

static void tile_segment(const struct tile *t, int64_t segment)
{
    const struct weft_attention *a = t->a;
    int64_t d = a->head_dim, first = 0;
    while (tile_position(t, first) < segment * PAGE)
        first++;
    int64_t n = t->n - first;
    const void *k = segment_at(a, segment);
    bool bf16 = a->kv_dtype == WEFT_BF16;
    if (bf16 && n > 12) {
        for (int64_t i = 0; i < 2 * d * PAGE; i += 16)
            v_store(t->segment + i, v_load_bf16((const uint16_t *) k + i));
        k = t->segment;
        bf16 = false;
    }
    const void *v = row_of(bf16 ? WEFT_BF16 : WEFT_F32, k, d * PAGE);
    const char *next_v = !t->next ? NULL
                                  : t->next
                                        + (size_t) (d * PAGE)
                                              * weft_dtype_bytes(a->kv_dtype);
    mm(&(struct mm){.rows = n,
                    .cols = PAGE,
                    .k = d,
                    .a = t->q + first * d,
                    .ars = d,
                    .aks = 1,
                    .b = k,
                    .ldb = PAGE,
                    .b_bf16 = bf16,
                    .c = t->s + first * PAGE,
                    .ldc = PAGE,
                    .ahead = t->next});
    for (int64_t i = first; i < t->n; i++)
        tile_softmax(t, i, tile_limit(t, segment, i));

    /* On the diagonal, six items at a time share a product over the keys that
     * the first of them may attend to; each then adds its own further keys.
     * Elsewhere all items share one product. */
    for (int64_t i = first, step; i < t->n; i += step) {
        int64_t limit = tile_limit(t, segment, i);
        step = weft_min64(limit < PAGE ? 6 : t->n, t->n - i);
        struct mm pv = {.rows = step,
                        .cols = d,
                        .k = limit,
                        .a = t->s + i * PAGE,
                        .ars = PAGE,
                        .aks = 1,
                        .b = v,
                        .ldb = d,
                        .b_bf16 = bf16,
                        .c = t->o + i * d,
                        .ldc = d,
                        .add = true,
                        .ahead = next_v};
        mm(&pv);
        pv.ahead = NULL;
        for (int64_t j = i; limit < PAGE && j < i + step; j++) {
            pv.rows = 1;
            pv.k = tile_limit(t, segment, j) - limit;
            pv.a = t->s + j * PAGE + limit;
            pv.b = row_of(bf16 ? WEFT_BF16 : WEFT_F32, v, limit * d);
            pv.c = t->o + j * d;
            if (pv.k > 0)
                mm(&pv);
        }
    }
}

static void attention(const struct weft_attention *a)
{
    int64_t d = a->head_dim, g = a->n_group, items = a->n * g;
    struct tile t = {.a = a, .q = a->scratch};
    t.o = t.q + ITEMS * d;
    t.s = t.o + ITEMS * d;
    t.max = t.s + ITEMS * PAGE;
    t.sum = t.max + ITEMS;
    t.segment = t.sum + ITEMS;
    for (; t.i0 < items; t.i0 += ITEMS) {
        t.n = weft_min64(ITEMS, items - t.i0);
        for (int64_t i = 0; i < t.n; i++) {
            int64_t row = (t.i0 + i) / g, head = (t.i0 + i) % g;
            const void *q = row_of(a->dtype, a->q, row * a->ldq + head * d);
            t.max[i] = -INFINITY;
            t.sum[i] = 0;
            for (int64_t j = 0; j < d; j += 16) {
                row_store(WEFT_F32, t.q + i * d, j, d,
                          row_load(a->dtype, q, j, d));
                row_store(WEFT_F32, t.o + i * d, j, d, v_set1(0));
            }
        }
        int64_t last = tile_position(&t, t.n - 1) / PAGE;
        for (int64_t s = 0; s <= last; s++) {
            t.next = s < last ? segment_at(a, s + 1) : a->next;
            tile_segment(&t, s);
        }
        for (int64_t i = 0; i < t.n; i++) {
            int64_t row = (t.i0 + i) / g, head = (t.i0 + i) % g;
            weft_v16 inv = v_set1(1.0f / t.sum[i]);
            void *out = row_at(a->dtype, a->out, row * a->ldo + head * d);
            for (int64_t j = 0; j < d; j += 16)
                row_store(a->dtype, out, j, d,
                          v_mul(row_load(WEFT_F32, t.o + i * d, j, d), inv));
            if (a->lse)
                a->lse[row * a->ldlse + head] = t.max[i]
                                              + weft_logf(t.sum[i]);
        }
    }
}

/* (n, ld) in dtype to f32 (n, d). */
static void widen(enum weft_dtype dtype, int64_t n, int64_t d, const void *x,
                  int64_t ld, float *y)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < d; i += 16)
            row_store(WEFT_F32, y + r * d, i, d,
                      row_load(dtype, row_of(dtype, x, r * ld), i, d));
}

/* x (n, ld) in dtype to segments (d, 64), `step` floats apart; columns behind
 * n are 0. */
static void transpose(enum weft_dtype dtype, int64_t n, int64_t d,
                      const void *x, int64_t ld, float *y, int64_t step)
{
    for (int64_t s = 0; s < n; s += PAGE, y += step) {
        float block[16 * PAGE];
        for (int64_t i = 0; i < d; i += 16) {
            int64_t w = weft_min64(16, d - i);
            for (int64_t j = 0; j < PAGE; j++)
                v_store(block + j * 16,
                        s + j >= n
                            ? v_set1(0)
                            : row_load(dtype, row_of(dtype, x, (s + j) * ld),
                                       i, d));
            int64_t l = 0;
            for (; l + 8 <= w; l += 8)
                for (int64_t j = 0; j < PAGE; j += 8)
                    transpose8(block + j * 16 + l, 16, y + (i + l) * PAGE + j,
                               PAGE);
            for (; l < w; l++)
                for (int64_t j = 0; j < PAGE; j++)
                    y[(i + l) * PAGE + j] = block[j * 16 + l];
        }
    }
}

static void pack_kv(enum weft_dtype dtype, int64_t d, int64_t n,
                    const void *k, const void *v, int64_t ld, float *dst)
{
    int64_t step = 2 * d * PAGE;
    transpose(dtype, n, d, k, ld, dst, step);
    for (int64_t s = 0; s < n; s += PAGE, dst += step)
        widen(dtype, weft_min64(PAGE, n - s), d, row_of(dtype, v, s * ld), ld,
              dst + d * PAGE);
}
