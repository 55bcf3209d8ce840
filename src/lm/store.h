/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads model folders into tiles, and writes tiles to folders. Folders have
 * whole tensors with global names, tiles have blocks of them, so any folder
 * can be loaded into any partition.
 */
#ifndef WEFT_LM_STORE_H
#define WEFT_LM_STORE_H

#include "graphs/calls/calls.h"
#include "model/arch.h"

/* Reads the architecture of a model folder. dtype: "f32" or "bf16", that of
 * the published weights (NULL: the folder's; f32 if that is f16).
 * tensor_blocks: 0 for the default. */
int weft_store_arch(const char *folder, const char *dtype,
                    int32_t tensor_blocks, struct weft_arch *out,
                    struct weft_err *err);

/* Whether the folder has a tokenizer.json. */
bool weft_store_has_tokenizer(const char *folder);

/* Loads weights into the tiles of this process. It reads each tensor that the
 * process needs once. A trained model gets masters and transposed weights,
 * too, and its moments become 0. stem NULL: "model". A scalar head that the
 * folder lacks (when a language model's folder is opened for a critic) becomes
 * 0. Waits for the tiles. */
int weft_store_load(const char *folder, const char *stem,
                    const struct weft_arch *arch,
                    const struct weft_g_model *model, struct weft_err *err);

enum weft_store_what {
    WEFT_STORE_MASTER,
    WEFT_STORE_EXP_AVG,
    WEFT_STORE_EXP_AVG_SQ
};

/* Writes masters or moments of a trained model, or the weights of another, to
 * <dir>/<stem>.safetensors, rounded to dtype, under the tensors' global names.
 * Tiles are sent one after another to rank 0, which writes them. Collective;
 * all ranks return the same error. */
int weft_store_save(struct weft_seq *seq, const char *dir, const char *stem,
                    enum weft_store_what what, enum weft_dtype dtype,
                    const struct weft_arch *arch,
                    const struct weft_g_model *model, struct weft_err *err);
/* The copies that saving moments of a recorded model makes (rt/graph.h); those
 * of masters and weights are no larger. */
void weft_store_record_save(struct weft_seq *seq,
                            const struct weft_g_model *model);
/* Loads moments. (Masters are loaded by weft_store_load().) */
int weft_store_load_moment(const char *dir, const char *stem,
                           enum weft_store_what what,
                           const struct weft_arch *arch,
                           const struct weft_g_model *model,
                           struct weft_err *err);

/* Moves weights, masters and moments to the tiles of a model of the same shape
 * with another home layout, tile by tile in the flat order of folders, by way
 * of rank 0. Nothing else uses either model meanwhile; those of `from` stay as
 * they are. Collective; all ranks return the same error: WEFT_ENOMEM. */
int weft_store_move(struct weft_seq *seq, const struct weft_g_model *from,
                    const struct weft_g_model *to, struct weft_err *err);

#endif
