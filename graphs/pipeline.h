/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward and backward of one training micro-batch on one stage, and what
 * passes between them.
 */
#ifndef WEFT_GRAPHS_PIPELINE_H
#define WEFT_GRAPHS_PIPELINE_H

#include "graphs/gather.h"
#include "graphs/stage.h"

/* What a stage's subtask receives. */
struct weft_g_arrival {
    struct weft_g_value batch, x; /* x: input, or gradient of the output */
    bool expected;
};

/* A micro-batch on its way through the stages of replica `dp`. */
struct weft_g_flight {
    struct weft_g_pass pass;
    int32_t dp, group; /* gradient group */
    int32_t n;
    int32_t *index; /* (n) samples; goes to the statistics */
    struct weft_tile *batch;
    size_t batch_bytes;
    int32_t batch_place;
    struct weft_g_value
        *x; /* (n_layers) inputs; last stage: and its output */
    struct weft_g_value *out, *dx; /* (pp) what stages pass on */
    struct weft_g_arrival *in;     /* (pp, 2) forward's, backward's */
    struct weft_g_kept *kept;      /* (n_layers) */
    struct weft_tile *stats;
};

/* Where the samples of a mini-batch are, and how they are cut: as given to
 * weft_g_train_step(). Errors: WEFT_ENOMEM. */
int weft_g_flight_init(const struct weft_g_train *train, struct weft_seq *seq,
                       int32_t dp, int32_t group, int32_t number, int32_t n,
                       const int32_t *index,
                       const struct weft_pack_sample *sample,
                       struct weft_g_flight *out, struct weft_err *err);
/* Releases what is left but `stats` and `index`. */
void weft_g_flight_release(const struct weft_g_train *train,
                           struct weft_g_flight *flight);

/* Room for what a subtask receives, in the devices' turn: before the subtask before
 * it, so that messages and work overlap and no more waits here. Once is
 * enough. */
void weft_g_flight_expect(const struct weft_g_train *train,
                          struct weft_g_flight *flight, int32_t stage,
                          bool backward);
/* Forward of a stage; stage 0 packs the samples first. */
void weft_g_flight_forward(const struct weft_g_train *train,
                           struct weft_g_flight *flight, int32_t stage,
                           const struct weft_pack_sample *sample,
                           struct weft_g_gather *gather);
/* Backward of a stage, the last one with the loss; gradients go on in
 * `grad`. Releases what the stage kept. */
void weft_g_flight_backward(const struct weft_g_train *train,
                            struct weft_g_flight *flight, int32_t stage,
                            const struct weft_params *grad,
                            struct weft_g_gather *gather);

#endif
