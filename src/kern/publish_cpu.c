/* SPDX-License-Identifier: Apache-2.0 */
/* Converts master weights to the forms that products read: forward panels and
 * their transpose. */
#include "kern/parts.h"

#include <string.h>

#include "kern/ops.h"

/* Writes one panel (k, 32) to rows n0.. of the k_pad / 32 transposed panels of
 * (n_pad, 32). Rows from k on are 0. */
static void transposed(enum weft_dtype dtype, const struct weft_part *p,
                       const char *panel, int64_t n0, char *bwd)
{
    int64_t row = WEFT_PANEL * (int64_t) weft_dtype_bytes(dtype);
    for (int64_t k0 = 0; k0 < p->k_pad; k0 += WEFT_PANEL) {
        const char *square = panel + k0 * row;
        char last[WEFT_PANEL * WEFT_PANEL * sizeof(float)] = {0};
        if (p->k - k0 < WEFT_PANEL)
            square = memcpy(last, square, (size_t) ((p->k - k0) * row));
        weft_k_ops()->transpose(
            dtype, square, bwd + (k0 / WEFT_PANEL * p->n_pad + n0) * row);
    }
}

static bool is_matrix(const struct weft_part *p)
{
    return p->k > 0 && p->id != WEFT_PART_EMBED;
}

void weft_k_publish_chunks(const struct weft_layout *layout,
                           enum weft_dtype dtype, struct weft_range chunks,
                           const float *master, void *fwd)
{
    const struct weft_k_ops *ops = weft_k_ops();
    size_t first = weft_layout_chunk(layout, chunks.first), n;
    size_t first_byte = weft_layout_chunk_byte(layout, dtype, chunks.first);
    for (int32_t i = chunks.first; i < weft_range_end(chunks); i++) {
        const struct weft_part *p = weft_layout_chunk_part(layout, i, &n);
        const float *flat = master + (weft_layout_chunk(layout, i) - first);
        char *to = (char *) fwd
                 + (weft_layout_chunk_byte(layout, dtype, i) - first_byte);
        if (p->k == 0 || dtype == WEFT_F32)
            memmove(to, flat, n * sizeof *flat);
        else if (p->id == WEFT_PART_EMBED)
            ops->to_bf16(flat, n, (uint16_t *) to);
        else
            ops->pair_bf16(flat, p->k, (uint16_t *) to);
    }
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
    weft_k_publish_chunks(layout, dtype, all, master, fwd);
    if (bwd)
        weft_k_transpose(layout, dtype, fwd, bwd);
}

void weft_k_transpose(const struct weft_layout *layout, enum weft_dtype dtype,
                      const void *fwd, void *bwd)
{
    int64_t size = (int64_t) weft_dtype_bytes(dtype);
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        const char *from = (const char *) fwd + p->fwd_bytes;
        for (int64_t n0 = 0; is_matrix(p) && n0 < p->n_pad; n0 += WEFT_PANEL)
            transposed(dtype, p, from + n0 * p->k * size, n0,
                       (char *) bwd + p->bwd_bytes);
    }
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
