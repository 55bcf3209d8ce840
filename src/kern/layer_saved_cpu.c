/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of what a layer keeps for its backward pass. */
#include "kern/layer.h"

void weft_layer_saved_at(const struct weft_shape *s, struct weft_range range,
                         int64_t n_rows, struct weft_arena *arena,
                         struct weft_layer_saved *out)
{
    size_t element = weft_dtype_bytes(s->dtype);
    *out = (struct weft_layer_saved){0};
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        int64_t q = weft_block_q(s, t), kv = weft_block_kv(s, t);
        out->qkv[t] = weft_arena_take(arena, n_rows * (q + 2 * kv), element);
        if (s->qk_norm)
            out->raw[t] = weft_arena_take(arena, n_rows * (q + kv),
                                          sizeof(float));
        out->att[t] = weft_arena_take(arena, n_rows * q, element);
        out->lse[t] = weft_arena_take(arena, n_rows * s->block[t].n_heads,
                                      sizeof(float));
        out->gate_up[t] = weft_arena_take(
            arena, n_rows * 2 * weft_block_ff(s, t), element);
    }
}

size_t weft_k_part_saved_bytes(const struct weft_shape *shape,
                               struct weft_range range, int64_t n_rows)
{
    struct weft_arena arena = {0};
    struct weft_layer_saved saved;
    weft_layer_saved_at(shape, range, n_rows, &arena, &saved);
    return arena.used;
}

size_t weft_layer_x_mid_bytes(const struct weft_shape *shape, int64_t n_rows)
{
    struct weft_arena arena = {0};
    weft_arena_take(&arena, n_rows * shape->hidden, sizeof(float));
    return arena.used;
}

size_t weft_k_layer_saved_bytes(const struct weft_shape *shape,
                                int64_t n_rows)
{
    return weft_layer_x_mid_bytes(shape, n_rows)
         + weft_k_part_saved_bytes(shape, weft_all_blocks(shape), n_rows);
}
