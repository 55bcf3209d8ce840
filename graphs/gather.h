/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published weights as a stage of the training layout reads them: its places'
 * own, or, with ZeRO 3, put together from their owners' pieces before every
 * use in a few buffers, which the use after next waits for.
 */
#ifndef WEFT_GRAPHS_GATHER_H
#define WEFT_GRAPHS_GATHER_H

#include "graphs/stage.h"

struct weft_g_gather;

/* For all stages and replicas of a trained model. Errors: WEFT_ENOMEM. */
int weft_g_gather_create(const struct weft_g_model *model,
                         struct weft_g_gather **out, struct weft_err *err);
void weft_g_gather_free(struct weft_g_gather *gather); /* NULL is allowed */
/* Adds the buffers' bytes, by place. */
void weft_g_gather_bytes(const struct weft_shape *shape,
                         const struct weft_g_layout *home,
                         size_t (*bytes)[WEFT_N_MEM_CLASSES]);

/* Weights by place; valid until the next call for the same stage. */
const struct weft_params *weft_g_gather_embed(struct weft_g_gather *gather,
                                              const struct weft_g_pass *pass,
                                              const struct weft_g_stage *at);
/* transposed: those too, see weft_g_gather_transposed(). */
const struct weft_params *weft_g_gather_layer(struct weft_g_gather *gather,
                                              const struct weft_g_pass *pass,
                                              const struct weft_g_stage *at,
                                              int32_t layer, bool transposed);
const struct weft_params *weft_g_gather_head(struct weft_g_gather *gather,
                                             const struct weft_g_pass *pass,
                                             const struct weft_g_stage *at,
                                             const struct weft_params **bwd);
const struct weft_params *weft_g_gather_transposed(
    const struct weft_g_gather *gather);

#endif
