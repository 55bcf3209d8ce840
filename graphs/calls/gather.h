/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published weights as a stage of the training layout reads them. Below ZeRO 3
 * they are the tiles at the stage's places. With ZeRO 3 they are copied from
 * their owners' pieces, or the copies that a rank has of other ranks'
 * (relays.h), into a buffer before every use; two layers take turns with two
 * buffers, so the next use can be prepared during the present one.
 */
#ifndef WEFT_CALLS_GATHER_H
#define WEFT_CALLS_GATHER_H

#include "graphs/calls/stage.h"

struct weft_g_gather;

/* Creates the buffers for all stages and replicas of a trained model, which is
 * borrowed. Errors: WEFT_ENOMEM. */
int weft_g_gather_create(const struct weft_g_model *model,
                         struct weft_g_gather **out, struct weft_err *err);
void weft_g_gather_free(struct weft_g_gather *gather); /* NULL is allowed */
/* To be called when tasks were inserted that write the owners' weights. */
void weft_g_gather_renew(struct weft_g_gather *gather);
/* These three return the weights by place, valid until the next call for the
 * same stage. */
const struct weft_params *weft_g_gather_embed(struct weft_g_gather *gather,
                                              const struct weft_g_pass *pass,
                                              const struct weft_g_stage *at);
/* transposed: gathers the transposed weights, too; see
 * weft_g_gather_transposed(). */
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
