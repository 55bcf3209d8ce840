/* SPDX-License-Identifier: Apache-2.0 */
/* Sets up a layer's forward pass: addresses of weights and of scratch. */
#include "kern/layer_forward.h"

int64_t weft_layer_forward_blocks_at(struct weft_layer_forward *f,
                                     struct weft_arena *arena, int64_t chunk,
                                     bool has_saved)
{
    const struct weft_shape *s = f->s;
    int64_t n = f->batch->n_rows, widest = 0;
    size_t element = weft_dtype_bytes(s->dtype);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        widest = weft_max64(widest, weft_block_qkv(s, t));
        f->act[t] = weft_arena_take(arena, chunk * weft_block_ff(s, t),
                                    element);
        if (has_saved)
            continue;
        f->at.qkv[t] = weft_arena_take(arena, n * weft_block_qkv(s, t),
                                       element);
        f->at.att[t] = weft_arena_take(arena, n * weft_block_q(s, t),
                                       element);
        f->at.gate_up[t] = weft_arena_take(
            arena, chunk * 2 * weft_block_ff(s, t), element);
    }
    return widest;
}

/* Divides the scratch memory; of the batch it reads the row counts alone. */
static void forward_at(struct weft_layer_forward *f, struct weft_arena *arena,
                       bool has_saved)
{
    const struct weft_shape *s = f->s;
    int64_t n = f->batch->n_rows, chunk = weft_min64(n, WEFT_CHUNK_ROWS);
    size_t element = weft_dtype_bytes(s->dtype);
    int64_t widest = weft_layer_forward_blocks_at(f, arena, chunk, has_saved);
    f->normed = weft_arena_take(arena, chunk * s->hidden, element);
    f->product = weft_arena_take(arena, chunk * widest, sizeof(float));
    f->pages = weft_arena_take(
        arena,
        weft_ceil_div(n, WEFT_PAGE_TOKENS)
            * (int64_t) weft_attention_segment(s->head_dim),
        sizeof(float));
    f->attention = weft_arena_take(
        arena, (int64_t) weft_attention_scratch(s->head_dim), sizeof(float));
    weft_rope_table_at(s, n, f->batch->n_runs, arena, &f->rope);
}

size_t weft_k_part_forward_scratch_bytes(const struct weft_shape *shape,
                                         struct weft_range range,
                                         const struct weft_k_batch *batch)
{
    struct weft_arena arena = {0};
    struct weft_layer_forward f = {
        .s = shape, .range = range, .batch = batch};
    forward_at(&f, &arena, false);
    return arena.used;
}

size_t weft_k_layer_forward_scratch_bytes(const struct weft_shape *shape,
                                          const struct weft_k_batch *batch)
{
    return weft_k_part_forward_scratch_bytes(shape, weft_all_blocks(shape),
                                             batch);
}

static const float *vector_of(const struct weft_layout *l,
                              enum weft_part_id id, const void *tile)
{
    const struct weft_part *p = weft_layout_part(l, id);
    return p ? (const float *) (const void *) ((const char *) tile
                                               + p->fwd_bytes)
             : NULL;
}

static const char *matrix_of(const struct weft_layout *l,
                             enum weft_part_id id, const void *tile)
{
    return (const char *) tile + weft_layout_part(l, id)->fwd_bytes;
}

void weft_layer_forward_weights(struct weft_layer_forward *f)
{
    struct weft_layout l;
    f->norm1 = weft_layer_vector(f->s, WEFT_PART_NORM1, f->w->norms);
    f->norm2 = weft_layer_vector(f->s, WEFT_PART_NORM2, f->w->norms);
    f->qnorm = weft_layer_vector(f->s, WEFT_PART_QNORM, f->w->norms);
    f->knorm = weft_layer_vector(f->s, WEFT_PART_KNORM, f->w->norms);
    for (int32_t t = f->range.first; t < weft_range_end(f->range); t++) {
        const void *tile = f->w->fwd[t];
        weft_layout_get(f->s, WEFT_TILE_LAYER, t, &l);
        f->qkv[t] = matrix_of(&l, WEFT_PART_QKV, tile);
        f->qkv_bias[t] = vector_of(&l, WEFT_PART_QKV_BIAS, tile);
        f->o[t] = matrix_of(&l, WEFT_PART_O, tile);
        f->gate_up[t] = matrix_of(&l, WEFT_PART_GATE_UP, tile);
        f->down[t] = matrix_of(&l, WEFT_PART_DOWN, tile);
    }
}

const float *weft_k_o_bias(const struct weft_shape *shape, const float *norms)
{
    return weft_layer_vector(shape, WEFT_PART_O_BIAS, norms);
}

void weft_layer_forward_begin(struct weft_layer_forward *f, void *saved,
                              void *scratch)
{
    struct weft_arena arena = {.base = saved};
    f->rows = weft_row_ops();
    f->gemm = weft_layer_gemm;
    f->all_gate_up = saved;
    if (saved)
        weft_layer_saved_at(f->s, f->range, f->batch->n_rows, &arena, &f->at);
    arena = (struct weft_arena){.base = scratch};
    forward_at(f, &arena, saved != NULL);
    weft_layer_forward_weights(f);
}
