/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's weights in safetensors files, read and written a tile at a time.
 *
 * The files know nothing of the partition: they hold the tensors under their
 * global Hugging Face names, so a checkpoint written with T blocks is read
 * with any other T. What has the shape of the weights (Adam's moments, f32
 * masters) is kept the same way in files of another stem.
 */
#ifndef WEFT_MODEL_WEIGHTS_H
#define WEFT_MODEL_WEIGHTS_H

#include "model/arch.h"

/* ---- Reading ---------------------------------------------------------- */

/* What happens when the files lack a scalar head, as for a critic that starts
 * from a language model. */
enum weft_score {
    WEFT_SCORE_REQUIRED,
    WEFT_SCORE_ZERO,
    WEFT_SCORE_RANDOM /* normal, deviation 1 / sqrt(hidden + 1) */
};

struct weft_weights_options {
    const char *stem; /* NULL: "model" */
    enum weft_score score;
    uint64_t seed; /* seed of a random scalar head */
};

struct weft_weights;

/* Opens the weights of a folder and checks that every tensor the architecture
 * needs is there, readable and of its shape, before one number is read.
 * Tensors nobody needs are named in one warning. options: NULL for the
 * defaults. Close with weft_weights_close(). Errors name tensor and file. */
int weft_weights_open(const char *dir, const struct weft_arch *arch,
                      const struct weft_weights_options *options,
                      struct weft_weights **out, struct weft_err *err);
void weft_weights_close(struct weft_weights *weights); /* NULL is allowed */

/* Reads one tile in flat order into flat_out (layout.n_flat floats); replicas
 * are filled, padding is zero. `shape` is the architecture's, partitioned.
 * Several threads may read at the same time. Errors: WEFT_ENUMERIC (NaN or
 * infinity, with tensor and element). */
int weft_weights_read_tile(const struct weft_weights *weights,
                           const struct weft_shape *shape,
                           enum weft_tile_kind kind, int32_t layer,
                           int32_t block, float *flat_out,
                           struct weft_err *err);

/* ---- Writing ---------------------------------------------------------- */

struct weft_weights_writer_options {
    const char *stem;      /* NULL: "model" */
    enum weft_dtype dtype; /* dtype of the tensors in the files */
    /* 0: one file; else shards of at most that size and an index */
    uint64_t max_shard_bytes;
};

struct weft_weights_writer;

/* Begins to write the weights of `arch` into an existing folder, usually a
 * staged one (weft_dir_stage()), and reserves the disk space. It does not
 * write config.json; weft_arch_write() does. */
int weft_weights_writer_open(const char *dir, const struct weft_arch *arch,
                             const struct weft_weights_writer_options *o,
                             struct weft_weights_writer **out,
                             struct weft_err *err);
/* Writes a tile, given in flat order; tiles may come in any order. Replicas in
 * it are ignored. For a tied model the embedding's tiles need not be put, as
 * the head's hold the weights. Threads may put different tiles at the same
 * time. Errors: WEFT_ENUMERIC for NaN and infinity, WEFT_EFULL, WEFT_EIO. */
int weft_weights_writer_put(struct weft_weights_writer *writer,
                            const struct weft_shape *shape,
                            enum weft_tile_kind kind, int32_t layer,
                            int32_t block, const float *flat,
                            struct weft_err *err);
/* Writes elements [first, first + n) of tensor i (model/tensors.h),
 * row-major. */
int weft_weights_writer_put_tensor(struct weft_weights_writer *writer,
                                   size_t i, size_t first, size_t n,
                                   const float *x, struct weft_err *err);
/* Brings all files to the disk and renames them into place, the index last.
 * Frees the writer. Further error: WEFT_ESTATE, which names a tensor that was
 * not put completely. On failure no file is left. */
int weft_weights_writer_close(struct weft_weights_writer *writer,
                              struct weft_err *err);
/* Removes what was written and frees the writer. NULL is allowed. */
void weft_weights_writer_abandon(struct weft_weights_writer *writer);

#endif
