/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding, its gradient, and the sums and copies of tied weights. */
#include "kern/parts.h"

#include <string.h>

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

/* Columns written at a time to each of a panel's 32 rows: one cache line, as
 * rows that lie a multiple of 4 KB apart evict one another. */
enum { STRIP = 16 };

void weft_k_tied_add_gradient(const struct weft_shape *s, int32_t t,
                              struct weft_range chunks,
                              const float *embed_grad, float *head_grad)
{
    int64_t k = s->hidden, first = (int64_t) chunks.first * WEFT_PANEL;
    int64_t n = weft_min64((int64_t) weft_range_end(chunks) * WEFT_PANEL,
                           s->block[t].n_vocab)
              - first;
    for (int64_t n0 = 0; n0 < n; n0 += WEFT_PANEL) {
        float *panel = head_grad + n0 * k;
        int64_t n_rows = weft_min64(n - n0, WEFT_PANEL);
        for (int64_t k0 = 0; k0 < k; k0 += STRIP) {
            int64_t end = weft_min64(k0 + STRIP, k);
            for (int64_t r = 0; r < n_rows; r++) {
                const float *row = embed_grad + (n0 + r) * k;
                for (int64_t j = k0; j < end; j++)
                    panel[j * WEFT_PANEL + r] += row[j];
            }
        }
    }
}

size_t weft_k_tied_table_scratch_bytes(const struct weft_shape *s)
{
    return (size_t) s->hidden * WEFT_PANEL * weft_dtype_bytes(s->dtype);
}

/* Copies a panel, (k, 32) f32 or (k / 2, 32, 2) bf16, to 32 rows of k. */
static void rows_f32(int64_t k, const float *panel, float *row)
{
    for (int64_t k0 = 0; k0 < k; k0 += STRIP)
        for (int64_t r = 0; r < WEFT_PANEL; r++)
            for (int64_t j = k0; j < weft_min64(k0 + STRIP, k); j++)
                row[r * k + j] = panel[j * WEFT_PANEL + r];
}

static void rows_bf16(int64_t k, const uint16_t *panel, uint16_t *row)
{
    for (int64_t k0 = 0; k0 < k; k0 += STRIP)
        for (int64_t r = 0; r < WEFT_PANEL; r++)
            for (int64_t j = k0; j < weft_min64(k0 + STRIP, k); j += 2)
                memcpy(&row[r * k + j], &panel[j * WEFT_PANEL + 2 * r],
                       2 * sizeof *row);
}

void weft_k_tied_table(const struct weft_shape *s, int32_t t,
                       const void *head, void *table, void *scratch)
{
    size_t bytes = weft_k_tied_table_scratch_bytes(s);
    for (int32_t n0 = 0; n0 < s->block[t].n_vocab; n0 += WEFT_PANEL) {
        size_t at = (size_t) (n0 / WEFT_PANEL) * bytes;
        memcpy(scratch, (const char *) head + at, bytes);
        if (s->dtype == WEFT_F32)
            rows_f32(s->hidden, scratch, (float *) ((char *) table + at));
        else
            rows_bf16(s->hidden, scratch, (uint16_t *) ((char *) table + at));
    }
}
