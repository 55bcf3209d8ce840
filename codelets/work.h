/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operations on a model's weights do, in the terms of struct weft_work
 * (plan/task.h): each counts the products and the attention that its kernel
 * computes, for a range of tensor blocks. Norms, rotations and activation
 * functions are not counted as operations, of which they are less than a
 * hundredth, but as passes over a layer's rows (n_passes). With LoRA adapters
 * (weft_shape.lora_rank) what their products add is counted, and what frozen
 * weights save backwards is not.
 */
#ifndef WEFT_CODELETS_WORK_H
#define WEFT_CODELETS_WORK_H

#include "codelets/codelets.h"

/* Of a range's blocks; each reads its own KV heads. */
struct weft_block_sums {
    int64_t qkv;      /* rows of the q, k and v matrices */
    int64_t kv;       /* of these, k's or v's */
    int64_t attended; /* columns of o: query heads times head size */
    int64_t mlp, vocab;
};
struct weft_block_sums weft_block_sums(const struct weft_shape *shape,
                                       struct weft_range range);

/* Parts of a layer. Their sum is the layer. */
enum weft_layer_work {
    WEFT_WORK_ATTENTION = 1, /* q, k, v, attention and o */
    WEFT_WORK_MLP = 2,
    WEFT_WORK_MLP_INPUT = 4, /* of it, gate and up alone */
    /* backwards: by input and by weights */
    WEFT_WORK_MLP_BACKWARD = 8,
    WEFT_WORK_HEADS_BACKWARD = 16, /* o, and attention, computed once more */
    WEFT_WORK_QKV_BACKWARD = 32
};
/* parts: of enum weft_layer_work. */
struct weft_work weft_work_layer(const struct weft_shape *shape,
                                 struct weft_range range, int parts,
                                 const struct weft_work_rows *rows);

/* n_products: of the head's matrix with the targets' rows; 1 forward. */
struct weft_work weft_work_head(const struct weft_shape *shape,
                                struct weft_range range, int n_products,
                                const struct weft_work_rows *rows);

/* The same of a score vector, one column. */
struct weft_work weft_work_value(const struct weft_shape *shape,
                                 int n_products,
                                 const struct weft_work_rows *rows);

/* The same of a backward pass, the last of whose products is that by weights,
 * which a frozen head has not. Beside them it computes the logits
 * again that its forward pass has not kept; keeps: as many as it may. */
struct weft_work weft_work_head_backward(const struct weft_shape *shape,
                                         struct weft_range range,
                                         int n_products, bool keeps,
                                         const struct weft_work_rows *rows);

/* Rows of the embedding, of which the task uses those of the batch: (n_rows,
 * H) numbers of table_bytes each, read, or with `adds` added to, and as many
 * f32. */
struct weft_work weft_work_embed(const struct weft_shape *shape,
                                 struct weft_range range, size_t table_bytes,
                                 bool adds,
                                 const struct weft_work_rows *rows);

/* What n_steps decode steps of a member of a stage do: with weights that are
 * read in every step that has rows, and its KV cache. */
struct weft_work weft_work_steps(const struct weft_shape *shape,
                                 struct weft_range range, int32_t n_layers,
                                 bool head, int32_t n_steps,
                                 const struct weft_work_rows step[]);

#endif
