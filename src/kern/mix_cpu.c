/* SPDX-License-Identifier: Apache-2.0 */
/* Moves one model's weights towards another's. */
#include "kern/kern.h"

static void mix_f32(float mix, const float *from, size_t n, float *own)
{
    for (size_t i = 0; i < n; i++)
        own[i] = weft_mixed(mix, from[i], own[i]);
}

static void mix_bf16(float mix, const uint16_t *from, size_t n, float *own)
{
    for (size_t i = 0; i < n; i++)
        own[i] = weft_mixed(mix, weft_bf16_to_f32(from[i]), own[i]);
}

/* One panel of a matrix, in which pairs of k are interleaved. */
static void mix_pairs(float mix, const uint16_t *from, int32_t k, float *own)
{
    for (int32_t i = 0; i < k; i++, own += WEFT_PANEL) {
        const uint16_t *row = from + i / 2 * 2 * WEFT_PANEL + i % 2;
        for (int j = 0; j < WEFT_PANEL; j++)
            own[j] = weft_mixed(mix, weft_bf16_to_f32(row[2 * j]), own[j]);
    }
}

void weft_k_mix(const struct weft_layout *layout, enum weft_dtype dtype,
                float mix, const void *fwd, float *own)
{
    for (int32_t i = 0; i < weft_layout_n_chunks(layout); i++) {
        size_t n;
        const struct weft_part *p = weft_layout_chunk_part(layout, i, &n);
        const void *from = (const char *) fwd
                         + weft_layout_chunk_byte(layout, dtype, i);
        float *to = own + weft_layout_chunk(layout, i);
        if (p->k == 0 || dtype == WEFT_F32)
            mix_f32(mix, from, n, to);
        else if (p->id == WEFT_PART_EMBED)
            mix_bf16(mix, from, n, to);
        else
            mix_pairs(mix, from, p->k, to);
    }
}
