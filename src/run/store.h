/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between model folders and tiles. Folders know global tensor names, tiles
 * know blocks; neither knows the other's cut, so a folder loads into any
 * partition.
 */
#ifndef WEFT_RUN_STORE_H
#define WEFT_RUN_STORE_H

#include "graphs/graphs.h"
#include "model/arch.h"

/* Reads a folder's configuration for a run: dtype "f32" or "bf16" of the
 * published weights (NULL: the folder's, f32 for f16), tensor blocks (0: the
 * default). */
int weft_store_arch(const char *folder, const char *dtype,
                    int32_t tensor_blocks, struct weft_arch *out,
                    struct weft_err *err);

/* The folder holds a tokenizer.json. */
bool weft_store_has_tokenizer(const char *folder);

/* Weights into the tiles of this process, reading only what it needs, once;
 * a trained model gets masters and transposed copies too, moments zero. `stem` NULL: "model". A scalar head that the folder
 * lacks (a language model's folder opened for a critic) starts at zero.
 * Waits for the tiles. */
int weft_store_load(const char *folder, const char *stem,
                    const struct weft_arch *arch,
                    const struct weft_g_model *model, struct weft_err *err);

enum weft_store_what {
    WEFT_STORE_MASTER,
    WEFT_STORE_EXP_AVG,
    WEFT_STORE_EXP_AVG_SQ
};

/* Masters or moments of a trained model to <dir>/<stem>.safetensors under
 * the tensors' global names, rounded to dtype: rank 0 writes, tile by tile as
 * they come. Collective; an error is every rank's. */
int weft_store_save(struct weft_seq *seq, const char *dir, const char *stem,
                    enum weft_store_what what, enum weft_dtype dtype,
                    const struct weft_arch *arch,
                    const struct weft_g_model *model, struct weft_err *err);
/* Moments back. (Masters: weft_store_load.) */
int weft_store_load_moment(const char *dir, const char *stem,
                           enum weft_store_what what,
                           const struct weft_arch *arch,
                           const struct weft_g_model *model,
                           struct weft_err *err);

#endif
