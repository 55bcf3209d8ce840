/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding, its gradient, and the sums and copies of tied weights. */
#include "kern/parts.h"

#include <string.h>

#include "kern/ops.h"

static int32_t block_of(const struct weft_shape *s, int32_t token)
{
    int32_t t = s->n_blocks - 1;
    while (token < s->block[t].vocab0)
        t--;
    return t;
}

static bool holds(const struct weft_shape *s, struct weft_range range,
                  int32_t token)
{
    int32_t t = block_of(s, token);
    return t >= range.first && t < weft_range_end(range);
}

void weft_k_embed_part(const struct weft_shape *s, struct weft_range range,
                       const void *const table[], int32_t n,
                       const int32_t *token, float *x)
{
    size_t h = (size_t) s->hidden, row_bytes = h * weft_dtype_bytes(s->dtype);
    for (int32_t i = 0; i < n; i++) {
        if (!holds(s, range, token[i]))
            continue;
        int32_t t = block_of(s, token[i]);
        size_t row = (size_t) (token[i] - s->block[t].vocab0);
        weft_convert(x + (size_t) i * h, WEFT_F32,
                     (const char *) table[t] + row * row_bytes, s->dtype, h);
    }
}

void weft_k_embed_select(const struct weft_shape *s, int32_t n,
                         const int32_t *token, int32_t n_parts,
                         const struct weft_k_part *part, float *x)
{
    size_t h = (size_t) s->hidden;
    for (int32_t p = 0; p < n_parts; p++)
        for (int32_t i = 0; i < n && part[p].roots != x; i++)
            if (holds(s, part[p].range, token[i]))
                memcpy(x + (size_t) i * h, part[p].roots + (size_t) i * h,
                       h * sizeof *x);
}

void weft_k_embed(const struct weft_shape *s, const void *const table[],
                  int32_t n, const int32_t *token, float *x)
{
    weft_k_embed_part(s, weft_all_blocks(s), table, n, token, x);
}

void weft_k_embed_backward(const struct weft_shape *s, int32_t n,
                           const int32_t *token, const float *dx,
                           float *const grad[])
{
    size_t h = (size_t) s->hidden;
    for (int32_t i = 0; i < n; i++) {
        int32_t t = block_of(s, token[i]);
        if (!grad[t])
            continue;
        float *g = grad[t] + (size_t) (token[i] - s->block[t].vocab0) * h;
        const float *d = dx + (size_t) i * h;
        for (size_t j = 0; j < h; j++)
            g[j] += d[j];
    }
}

/* A square of words of 4 bytes; both panels of f32 and of pairs of bf16 consist
 * of such. */
struct square {
    uint32_t word[WEFT_PANEL][WEFT_PANEL];
};

/* to[j][i] = from[i * ld + j], i < rows, j < columns; the rest is undefined. */
static void turn(const char *from, int64_t ld, int64_t rows, int64_t columns,
                 struct square *to)
{
    struct square s;
    for (int64_t i = 0; i < rows; i++)
        if (columns == WEFT_PANEL)
            memcpy(s.word[i], from + i * ld * 4, sizeof s.word[i]);
        else
            memcpy(s.word[i], from + i * ld * 4, (size_t) columns * 4);
    weft_k_ops()->transpose(WEFT_F32, &s, to);
}

/* Adds `rows` rows of k to a panel's first columns. */
static void add_rows(const float *row, int64_t rows, int64_t k, float *panel)
{
    for (int64_t k0 = 0; k0 < k; k0 += WEFT_PANEL) {
        struct square turned;
        int64_t columns = weft_min64(k - k0, WEFT_PANEL);
        /* The next panel's rows, in the order in which they lie. */
        const float *next = row + (k + k0) * WEFT_PANEL;
        for (int64_t i = k0; i < k0 + columns; i++, next += WEFT_PANEL) {
            WEFT_PREFETCH(next);
            WEFT_PREFETCH(next + WEFT_PANEL / 2);
        }
        turn((const char *) (row + k0), k, rows, columns, &turned);
        float add[WEFT_PANEL * WEFT_PANEL];
        memcpy(add, turned.word, sizeof add);
        if (rows == WEFT_PANEL)
            weft_k_add(panel, add, (size_t) (columns * WEFT_PANEL));
        else /* what the panel has beyond the vocabulary does not change */
            for (int64_t j = 0; j < columns; j++)
                weft_k_add(panel + j * WEFT_PANEL, add + j * WEFT_PANEL,
                           (size_t) rows);
        panel += columns * WEFT_PANEL;
    }
}

void weft_k_tied_add_gradient(const struct weft_shape *s, int32_t t,
                              struct weft_range chunks,
                              const float *embed_grad, float *head_grad)
{
    int64_t k = s->hidden, first = (int64_t) chunks.first * WEFT_PANEL;
    int64_t n = weft_min64((int64_t) weft_range_end(chunks) * WEFT_PANEL,
                           s->block[t].n_vocab)
              - first;
    for (int64_t n0 = 0; n0 < n; n0 += WEFT_PANEL)
        add_rows(embed_grad + n0 * k, weft_min64(n - n0, WEFT_PANEL), k,
                 head_grad + n0 * k);
}

size_t weft_k_tied_table_scratch_bytes(const struct weft_shape *s)
{
    return (size_t) s->hidden * WEFT_PANEL * weft_dtype_bytes(s->dtype);
}

/* Copies a panel, (k, 32) words, to 32 rows of k. */
static void write_rows(const char *panel, int64_t k, char *row, bool past)
{
    for (int64_t k0 = 0; k0 < k; k0 += WEFT_PANEL) {
        struct square turned;
        int64_t columns = weft_min64(k - k0, WEFT_PANEL);
        size_t bytes = (size_t) columns * 4;
        turn(panel + k0 * WEFT_PANEL * 4, WEFT_PANEL, columns, WEFT_PANEL,
             &turned);
        for (int64_t r = 0; r < WEFT_PANEL; r++) {
            char *to = row + (r * k + k0) * 4;
            if (past)
                weft_k_ops()->copy_past(to, turned.word[r], bytes);
            else
                memcpy(to, turned.word[r], bytes);
        }
    }
}

void weft_k_tied_table(const struct weft_shape *s, int32_t t,
                       const void *head, void *table, void *scratch)
{
    size_t bytes = weft_k_tied_table_scratch_bytes(s);
    bool past = bytes / WEFT_PANEL * (size_t) s->block[t].n_vocab
             >= WEFT_PAST_BYTES;
    int64_t k = s->hidden * (int64_t) weft_dtype_bytes(s->dtype) / 4;
    for (int32_t n0 = 0; n0 < s->block[t].n_vocab; n0 += WEFT_PANEL) {
        size_t at = (size_t) (n0 / WEFT_PANEL) * bytes;
        memcpy(scratch, (const char *) head + at, bytes);
        write_rows(scratch, k, (char *) table + at, past);
    }
    if (past)
        weft_k_ops()->past_done();
}
