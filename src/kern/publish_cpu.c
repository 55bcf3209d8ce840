/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights to what products read: forward panels and the transpose. */
#include <string.h>

#include "kern/ops.h"

/* One panel, flat (k, 32). */
static void forward(const struct weft_k_ops *ops, enum weft_dtype dtype,
                    const float *flat, int64_t k, void *fwd)
{
    if (dtype == WEFT_F32)
        memcpy(fwd, flat, (size_t) k * WEFT_PANEL * sizeof(float));
    else
        ops->pair_bf16(flat, k, fwd);
}

/* One panel, flat (k, 32), is rows n0.. of every transposed panel of (n_pad,
 * 32), of which there are k_pad / 32. */
static void transposed(const struct weft_k_ops *ops, enum weft_dtype dtype,
                       const struct weft_part *p, const float *flat,
                       int64_t n0, char *bwd)
{
    int64_t row = WEFT_PANEL * (int64_t) weft_dtype_bytes(dtype);
    for (int64_t k0 = 0; k0 < p->k_pad; k0 += WEFT_PANEL) {
        const float *src = flat + k0 * WEFT_PANEL;
        float edge[WEFT_PANEL * WEFT_PANEL];
        if (p->k - k0 < WEFT_PANEL) {
            memset(edge, 0, sizeof edge);
            memcpy(edge, src,
                   (size_t) (p->k - k0) * WEFT_PANEL * sizeof(float));
            src = edge;
        }
        ops->transpose(dtype, src,
                       bwd + (k0 / WEFT_PANEL * p->n_pad + n0) * row);
    }
}

void weft_k_publish(const struct weft_layout *layout, enum weft_dtype dtype,
                    const float *master, void *fwd, void *bwd)
{
    const struct weft_k_ops *ops = weft_k_ops();
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        const float *flat = master + p->offset;
        char *to = (char *) fwd + p->fwd_bytes;
        if (p->id == WEFT_PART_EMBED && dtype == WEFT_BF16) {
            ops->to_bf16(flat, p->n_flat, (uint16_t *) to);
            continue;
        }
        if (p->k == 0 || p->id == WEFT_PART_EMBED) {
            memcpy(to, flat, p->n_flat * sizeof(float));
            continue;
        }
        int64_t size = (int64_t) weft_dtype_bytes(dtype);
        for (int64_t n0 = 0; n0 < p->n_pad; n0 += WEFT_PANEL) {
            const float *panel = flat + n0 * p->k;
            forward(ops, dtype, panel, p->k, to + n0 * p->k * size);
            if (bwd)
                transposed(ops, dtype, p, panel, n0,
                           (char *) bwd + p->bwd_bytes);
        }
    }
}
