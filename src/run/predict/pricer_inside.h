/* SPDX-License-Identifier: Apache-2.0 */
/* A pricer, shared by its parts. */
#ifndef WEFT_RUN_PREDICT_PRICER_INSIDE_H
#define WEFT_RUN_PREDICT_PRICER_INSIDE_H

#include "run/predict/price.h"
#include "run/trainer.h"

/* The samples of a call, and operations of its model's layers. */
struct weft_price_samples {
    int32_t n;
    double tokens;
    double flop, shortest_flop; /* forward: of all samples, of the shortest */
    double backward, again; /* of the backward pass, and of computing forward
                               again, in shares of that */
    double decoded, cached; /* tokens; keys that they read from caches */
    int32_t least, most;    /* tokens of a sample */
    int32_t longest;        /* decoded of a sample, at most */
    bool alike;             /* all have as many tokens as there can be */
};

struct weft_pricer {
    const struct weft_plan_needs *needs;
    const struct weft_simulate_options *options;
    struct weft_trainer *t; /* the whole run */
    bool whole;
    struct weft_price_samples samples[WEFT_MAX_CALLS];
};

/* Sets samples of all calls. */
void weft_price_samples_set(struct weft_pricer *p);

#endif
