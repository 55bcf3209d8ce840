/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights to what products read: forward panels and the transpose. */
#include <string.h>

#include "kern/ops.h"

/* Flat panels (n_pad / 32)(k)(32) to (k_pad / 32)(n_pad)(32). */
static void transpose_part(const struct weft_k_ops *ops,
                           enum weft_dtype dtype, const struct weft_part *p,
                           const float *flat, char *bwd)
{
    size_t square = WEFT_PANEL * WEFT_PANEL * weft_dtype_bytes(dtype);
    for (int64_t k0 = 0; k0 < p->k_pad; k0 += WEFT_PANEL)
        for (int64_t n0 = 0; n0 < p->n_pad; n0 += WEFT_PANEL) {
            const float *src = flat + n0 * p->k + k0 * WEFT_PANEL;
            float edge[WEFT_PANEL * WEFT_PANEL] = {0};
            if (p->k - k0 < WEFT_PANEL) {
                memcpy(edge, src, (size_t) (p->k - k0) * WEFT_PANEL
                                      * sizeof(float));
                src = edge;
            }
            ops->transpose(dtype, src, bwd);
            bwd += square;
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
        bool matrix = p->k > 0 && p->id != WEFT_PART_EMBED;
        if (p->k == 0 || dtype == WEFT_F32)
            memcpy(to, flat, p->n_flat * sizeof(float));
        else if (!matrix)
            ops->to_bf16(flat, p->n_flat, (uint16_t *) to);
        else
            for (int64_t n0 = 0; n0 < p->n_pad; n0 += WEFT_PANEL)
                ops->pair_bf16(flat + n0 * p->k, p->k,
                               (uint16_t *) to + n0 * p->k);
        if (matrix && bwd)
            transpose_part(ops, dtype, p, flat, (char *) bwd + p->bwd_bytes);
    }
}
