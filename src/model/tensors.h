/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a model by their Hugging Face names, and how the tiles of
 * base/shape.h are cut out of them: the only place that knows both.
 *
 * A piece is a rectangle of a tensor that lies in one part of a tile:
 *
 *     q_proj.weight (heads * D, H)           QKV part of block t
 *     +--------+                             +--------+
 *     |        |   rows of block t's heads   | q rows |  row_at = 0
 *     |########| --------------------------> | k rows |  one piece per KV
 *     |        |                             | v rows |  head
 *     +--------+                             +--------+
 */
#ifndef WEFT_MODEL_TENSORS_H
#define WEFT_MODEL_TENSORS_H

#include "base/shape.h"

enum weft_tensor_id {
    WEFT_TENSOR_EMBED,
    WEFT_TENSOR_NORM1,
    WEFT_TENSOR_NORM2,
    WEFT_TENSOR_QNORM,
    WEFT_TENSOR_KNORM,
    WEFT_TENSOR_Q,
    WEFT_TENSOR_Q_BIAS,
    WEFT_TENSOR_K,
    WEFT_TENSOR_K_BIAS,
    WEFT_TENSOR_V,
    WEFT_TENSOR_V_BIAS,
    WEFT_TENSOR_O,
    WEFT_TENSOR_O_BIAS,
    WEFT_TENSOR_GATE,
    WEFT_TENSOR_UP,
    WEFT_TENSOR_DOWN,
    WEFT_TENSOR_NORM,
    WEFT_TENSOR_HEAD,
    WEFT_TENSOR_SCORE,
    WEFT_N_TENSOR_IDS
};

struct weft_tensor {
    enum weft_tensor_id id;
    int32_t layer;      /* -1 outside the layers */
    int64_t rows, cols; /* cols 0: a vector of `rows` */
    char name[80];      /* "model.layers.3.self_attn.q_proj.weight" */
};

/* The tensors that a model of this shape has, in the order of transformers'
 * state_dict. weft_tensor_get() asserts i < count. */
size_t weft_tensor_count(const struct weft_shape *shape);
void weft_tensor_get(const struct weft_shape *shape, size_t i,
                     struct weft_tensor *out);
/* Number of tensor `id` of `layer` in that order, or -1 when the shape has
 * none. */
int64_t weft_tensor_index(const struct weft_shape *shape,
                          enum weft_tensor_id id, int32_t layer);

struct weft_piece {
    enum weft_tensor_id id; /* tensor of the tile's layer */
    int64_t row0, n_rows;   /* rows of the tensor (elements of a vector) */
    int64_t col0, n_cols;   /* n_cols 0: a vector */
    enum weft_part_id part;
    int64_t row_at; /* row of the part where the first row goes */
    bool gate_up;   /* rows go to weft_gate_up_row(i, is_up) */
    bool is_up;
    bool owned; /* false: a replica of another block's rows */
};

/* The number of pieces of a tile: q, o, gate, up, down, biases, and K and V of
 * each KV head. */
size_t weft_piece_count(const struct weft_shape *shape,
                        enum weft_tile_kind kind, int32_t block);
/* Piece i of a tile of a partitioned shape. A tied head is cut out of the
 * embedding; then the embedding's own tiles are replicas. */
void weft_piece_get(const struct weft_shape *shape, enum weft_tile_kind kind,
                    int32_t block, size_t i, struct weft_piece *out);

/* Flat index within the part of the piece's element (row, col), both counted
 * from the piece's corner. */
WEFT_INLINE size_t weft_piece_flat(const struct weft_piece *piece,
                                   const struct weft_part *part, int64_t row,
                                   int64_t col)
{
    if (part->k == 0)
        return (size_t) (piece->row_at + row);
    if (part->id == WEFT_PART_EMBED)
        return (size_t) (piece->row_at + row) * (size_t) part->k
             + (size_t) col;
    return weft_flat_index(part,
                           piece->gate_up
                               ? weft_gate_up_row(row, piece->is_up)
                               : piece->row_at + row,
                           col);
}

#endif
