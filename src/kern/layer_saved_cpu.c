/* SPDX-License-Identifier: Apache-2.0 */
/* What a layer keeps for its backward pass: where it lies. */
#include "kern/layer.h"

void weft_layer_saved_at(const struct weft_shape *s, int64_t n_rows,
                         struct weft_arena *arena,
                         struct weft_layer_saved *out)
{
    size_t element = weft_dtype_bytes(s->dtype);
    *out = (struct weft_layer_saved){
        .x_mid = weft_arena_take(arena, n_rows * s->hidden, sizeof(float)),
    };
    for (int32_t t = 0; t < s->n_blocks; t++) {
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

size_t weft_k_layer_saved_bytes(const struct weft_shape *shape,
                                int64_t n_rows)
{
    struct weft_arena arena = {0};
    struct weft_layer_saved saved;
    weft_layer_saved_at(shape, n_rows, &arena, &saved);
    return arena.used;
}
