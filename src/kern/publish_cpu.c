/* SPDX-License-Identifier: Apache-2.0 */
/* Converts master weights to the forms that products read: forward panels and
 * their transpose. */
#include "kern/parts.h"

#include <string.h>

#include "kern/ops.h"

enum { SQUARE_BYTES = WEFT_PANEL * WEFT_PANEL * 4 };

/* How a tile's matrices are written. */
struct writer {
    const struct weft_k_ops *ops;
    enum weft_dtype dtype;
    bool past;
};

static struct writer writer(enum weft_dtype dtype, size_t bytes)
{
    return (struct writer){weft_k_ops(), dtype, bytes >= WEFT_PAST_BYTES};
}

static void put(const struct writer *w, void *to, const void *from,
                size_t bytes)
{
    if (to == from)
        return;
    if (w->past)
        w->ops->copy_past(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static void put_transposed(const struct writer *w, void *to, const void *from,
                           size_t bytes)
{
    _Alignas(64) char turned[SQUARE_BYTES];
    w->ops->transpose(w->dtype, from, w->past ? turned : to);
    if (w->past)
        w->ops->copy_past(to, turned, bytes);
}

/* Writes a panel (k, 32) of f32 to the published one, fwd, and to rows n0.. of
 * the k_pad / 32 transposed panels of (n_pad, 32), whose rows from k on are 0.
 * flat NULL: fwd is published already. bwd NULL: it is not transposed. */
static void write_panel(const struct writer *w, const struct weft_part *p,
                        int64_t n0, const float *flat, char *fwd, char *bwd)
{
    size_t row = WEFT_PANEL * weft_dtype_bytes(w->dtype);
    for (int64_t k0 = 0; k0 < p->k;
         k0 += WEFT_PANEL, fwd += WEFT_PANEL * row) {
        _Alignas(64) char square[SQUARE_BYTES];
        int64_t n = weft_min64(WEFT_PANEL, p->k - k0);
        size_t bytes = (size_t) n * row;
        const char *from = fwd;
        if (flat) {
            from = (const char *) (flat + k0 * WEFT_PANEL);
            if (w->dtype == WEFT_BF16) {
                w->ops->pair_bf16(flat + k0 * WEFT_PANEL, n,
                                  (uint16_t *) (void *) square);
                from = square;
            }
            put(w, fwd, from, bytes);
        }
        if (!bwd)
            continue;
        if (n < WEFT_PANEL) {
            memmove(square, from, bytes);
            memset(square + bytes, 0, WEFT_PANEL * row - bytes);
            from = square;
        }
        put_transposed(w,
                       bwd + (size_t) (k0 / WEFT_PANEL * p->n_pad + n0) * row,
                       from, WEFT_PANEL * row);
    }
}

static bool is_matrix(const struct weft_part *p)
{
    return p->k > 0 && p->id != WEFT_PART_EMBED;
}

/* fwd and master are those of the first chunk, bwd is the tile's. */
static void publish(const struct weft_layout *layout, const struct writer *w,
                    struct weft_range chunks, const float *master, char *fwd,
                    char *bwd)
{
    size_t first = weft_layout_chunk(layout, chunks.first), n;
    size_t first_byte = weft_layout_chunk_byte(layout, w->dtype,
                                               chunks.first);
    for (int32_t i = chunks.first; i < weft_range_end(chunks); i++) {
        const struct weft_part *p = weft_layout_chunk_part(layout, i, &n);
        size_t at = weft_layout_chunk(layout, i);
        const float *flat = master + (at - first);
        char *to = fwd
                 + (weft_layout_chunk_byte(layout, w->dtype, i) - first_byte);
        if (is_matrix(p))
            write_panel(w, p, (int64_t) (at - p->offset) / p->k, flat, to,
                        bwd ? bwd + p->bwd_bytes : NULL);
        else if (p->k == 0 || w->dtype == WEFT_F32)
            memmove(to, flat, n * sizeof *flat);
        else
            w->ops->to_bf16(flat, n, (uint16_t *) (void *) to);
    }
    if (w->past)
        w->ops->past_done();
}

void weft_k_publish_chunks(const struct weft_layout *layout,
                           enum weft_dtype dtype, struct weft_range chunks,
                           const float *master, void *fwd)
{
    struct writer w = writer(
        dtype, weft_layout_chunk_byte(layout, dtype, weft_range_end(chunks))
                   - weft_layout_chunk_byte(layout, dtype, chunks.first));
    publish(layout, &w, chunks, master, fwd, NULL);
}

/* A panel is a matrix of pairs, (k / 2, 32), or (32, k / 2) by rows. */
void weft_k_reorder(const struct weft_layout *layout, enum weft_dtype dtype,
                    bool to_rows, const void *from, void *to)
{
    memcpy(to, from, layout->fwd_bytes);
    for (int32_t i = 0; i < layout->n_parts && dtype == WEFT_BF16; i++) {
        const struct weft_part *p = &layout->part[i];
        int64_t k = p->k / 2, panel = k * WEFT_PANEL;
        const uint32_t *in = (const void *) ((const char *) from
                                             + p->fwd_bytes);
        uint32_t *out = (void *) ((char *) to + p->fwd_bytes);
        if (!is_matrix(p))
            continue;
        for (int64_t n0 = 0; n0 < p->n_pad;
             n0 += WEFT_PANEL, in += panel, out += panel)
            for (int64_t r = 0; r < WEFT_PANEL; r++)
                for (int64_t j = 0; j < k; j++)
                    if (to_rows)
                        out[r * k + j] = in[j * WEFT_PANEL + r];
                    else
                        out[j * WEFT_PANEL + r] = in[r * k + j];
    }
}

void weft_k_publish(const struct weft_layout *layout, enum weft_dtype dtype,
                    const float *master, void *fwd, void *bwd)
{
    struct weft_range all = {0, weft_layout_n_chunks(layout)};
    struct writer w = writer(dtype, layout->fwd_bytes);
    publish(layout, &w, all, master, fwd, bwd);
}

void weft_k_transpose(const struct weft_layout *layout, enum weft_dtype dtype,
                      const void *fwd, void *bwd)
{
    struct writer w = writer(dtype, layout->bwd_bytes);
    int64_t size = (int64_t) weft_dtype_bytes(dtype);
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        char *from = (char *) (uintptr_t) fwd + p->fwd_bytes;
        for (int64_t n0 = 0; is_matrix(p) && n0 < p->n_pad; n0 += WEFT_PANEL)
            write_panel(&w, p, n0, NULL, from + n0 * p->k * size,
                        (char *) bwd + p->bwd_bytes);
    }
    if (w.past)
        w.ops->past_done();
}

void weft_k_transpose_rows(const struct weft_layout *layout, const void *fwd,
                           void *bwd)
{
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        const uint16_t *in = (const void *) ((const char *) fwd
                                             + p->fwd_bytes);
        uint16_t *out = (void *) ((char *) bwd + p->bwd_bytes);
        int64_t n = p->n_pad;
        if (!is_matrix(p))
            continue;
        memset(out, 0, (size_t) (p->k_pad * n) * sizeof *out);
        for (int64_t n0 = 0; n0 < n; n0 += WEFT_PANEL)
            for (int64_t k = 0; k < p->k; k++)
                for (int64_t r = n0; r < n0 + WEFT_PANEL; r++)
                    out[k * n + r] = in[r * p->k + k];
    }
}
