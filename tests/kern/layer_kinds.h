/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of layers that tests go through. */
#ifndef WEFT_TESTS_KERN_LAYER_KINDS_H
#define WEFT_TESTS_KERN_LAYER_KINDS_H

#include "layer_fixture.h"

/* All the kinds: grouped heads, heads shared by blocks (whole and ragged),
 * odd head sizes, biases, norms of q and k, scalings, padded MLP columns. */
static const struct kind {
    struct weft_shape s;
    int32_t n_blocks;
} kinds[] = {
    {{.hidden = 64,
      .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 16,
      .intermediate = 96},
     2},
    {{.hidden = 64,
      .n_heads = 1,
      .n_kv_heads = 1,
      .head_dim = 64,
      .intermediate = 72},
     1},
    {{.hidden = 48,
      .n_heads = 8,
      .n_kv_heads = 2,
      .head_dim = 10,
      .intermediate = 256,
      .qkv_bias = true,
      .o_bias = true},
     4},
    {{.hidden = 40,
      .n_heads = 12,
      .n_kv_heads = 3,
      .head_dim = 24,
      .intermediate = 250,
      .qk_norm = true,
      .qkv_bias = true},
     4},
    {{.hidden = 32,
      .n_heads = 8,
      .n_kv_heads = 1,
      .head_dim = 80,
      .intermediate = 512,
      .qk_norm = true,
      .rope = WEFT_ROPE_LLAMA3,
      .rope_factor = 4,
      .rope_low = 1,
      .rope_high = 4,
      .rope_original = 16},
     8},
    {{.hidden = 34,
      .n_heads = 2,
      .n_kv_heads = 2,
      .head_dim = 128,
      .intermediate = 64,
      .rope = WEFT_ROPE_LINEAR,
      .rope_factor = 2},
     1},
    {{.hidden = 32,
      .n_heads = 16,
      .n_kv_heads = 4,
      .head_dim = 8,
      .intermediate = 1030,
      .o_bias = true,
      .qk_norm = true},
     16},
    {{.hidden = 34,
      .n_heads = 96,
      .n_kv_heads = 12,
      .head_dim = 2,
      .intermediate = 2049,
      .qkv_bias = true},
     32},
};

static inline void init_kind(struct fixture *f, size_t kind,
                             enum weft_dtype dtype)
{
    struct weft_shape s = kinds[kind].s;
    s.n_layers = 1;
    s.vocab = WEFT_FF_GRAIN * WEFT_MAX_BLOCKS;
    s.max_positions = 512;
    s.rms_eps = 1e-5f;
    s.rope_theta = 10000;
    s.dtype = dtype;
    fixture_init(f, s, kinds[kind].n_blocks);
}

#endif
