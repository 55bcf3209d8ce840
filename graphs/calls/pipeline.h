/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward and backward pass of one training micro-batch on one stage, and the
 * values that stages pass to one another.
 */
#ifndef WEFT_CALLS_PIPELINE_H
#define WEFT_CALLS_PIPELINE_H

#include "graphs/calls/gather.h"
#include "graphs/calls/stage.h"

/* What a stage's subtask receives. */
struct weft_g_arrival {
    struct weft_g_value batch, x; /* x: input, or gradient of the output */
    bool expected;
};

/* A micro-batch in flight through the stages of replica `dp`. */
struct weft_g_flight {
    struct weft_g_pass pass;
    int32_t dp, group; /* gradient group */
    int32_t n;
    int32_t *index; /* (n) samples; becomes weft_g_stats.sample */
    struct weft_tile *batch;
    size_t batch_bytes;
    int32_t batch_place;
    struct weft_g_value
        *x; /* (n_layers) inputs of layers; and the last stage's output */
    struct weft_g_value *out, *dx; /* (pp) sent to the next, the previous */
    struct weft_g_arrival *in;     /* (pp, 2): of forward, of backward */
    struct weft_g_kept *kept;      /* (n_layers) */
    struct weft_tile *stats;
};

/* Prepares micro-batch number `number` of gradient group `group` for replica
 * dp: samples index[0..n-1] of `sample`, which is that of weft_g_step_begin().
 * Errors: WEFT_ENOMEM. */
int weft_g_flight_init(const struct weft_g_train *train, struct weft_seq *seq,
                       int32_t dp, int32_t group, int32_t number, int32_t n,
                       const int32_t *index,
                       const struct weft_pack_sample *sample,
                       struct weft_g_flight *out, struct weft_err *err);
/* Releases all that is left except `stats` and `index`. */
void weft_g_flight_release(const struct weft_g_train *train,
                           struct weft_g_flight *flight);

/* Inserts the allocation of what a subtask receives into the devices' order.
 * Call it before the preceding subtask of the stage is submitted: messages
 * then arrive during that subtask, and never more of them wait at the
 * receiver. Further calls do nothing. */
void weft_g_flight_expect(const struct weft_g_train *train,
                          struct weft_g_flight *flight, int32_t stage,
                          bool backward);
/* Submits the forward pass of a stage; stage 0 packs the samples first. */
void weft_g_flight_forward(const struct weft_g_train *train,
                           struct weft_g_flight *flight, int32_t stage,
                           const struct weft_pack_sample *sample,
                           struct weft_g_gather *gather);
/* Submits the backward pass of a stage, which begins with the loss on the last
 * stage; gradients are added to `grad`. Releases what the stage kept. */
void weft_g_flight_backward(const struct weft_g_train *train,
                            struct weft_g_flight *flight, int32_t stage,
                            const struct weft_params *grad,
                            struct weft_g_gather *gather);

#endif
