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

/* The sizes in which a recorded run may be smaller. */
enum { WEFT_PRICE_LAYERS, WEFT_PRICE_NODES, WEFT_PRICE_SIZES };

/* What is recorded of a run, at the ends of a straight line; equal ones: there
 * is no line, and one recording is enough. */
struct weft_price_sizes {
    int32_t end[WEFT_PRICE_SIZES][2];
    int32_t nodes; /* of a stage of the layout; 0: no whole number */
    int32_t steps; /* of the optimizer, in each epoch */
    bool trains;
    bool alone;  /* one replica is enough: no other makes it slower */
    bool stands; /* a recorded layer stands for several (pricer.c) */
    /* replicas of a stage exchange gradients between nodes, for which all
     * layers are needed */
    bool exchanges;
};

void weft_price_sizes_set(const struct weft_pricer *p, int32_t call,
                          const struct weft_call_plan *at,
                          struct weft_price_sizes *z);
/* Of a size at one of its ends; corner: a bit for each size. */
WEFT_INLINE int32_t weft_price_end(const struct weft_price_sizes *z, int size,
                                   unsigned corner)
{
    return z->end[size][corner >> size & 1];
}
/* The share of a corner's price in the whole run's; time: of seconds, else of
 * bytes. Shares of all corners come to 1. */
double weft_price_share(const struct weft_pricer *p, int32_t call,
                        const struct weft_call_plan *at,
                        const struct weft_price_sizes *z, unsigned corner,
                        bool time);
/* Which members of a call's tp groups, and which of its replicas, are recorded:
 * the first ones. If devices share nothing, the others do the same at the same
 * time. at, z: the layout of what is recorded, sizes of the whole one. */
struct weft_price_few {
    int32_t members, replicas;
};
struct weft_price_few weft_price_few(const struct weft_pricer *p,
                                     int32_t call,
                                     const struct weft_call_plan *at,
                                     const struct weft_price_sizes *z);
/* Layers of a recorded model. */
WEFT_INLINE int32_t weft_price_layers(const struct weft_shape *shape,
                                      int32_t pp, int32_t of_stage)
{
    int32_t stages = pp <= shape->n_layers ? pp : 1;
    return (int32_t) weft_min64((int64_t) of_stage * stages, shape->n_layers);
}
/* Samples, or gradient groups, of some replicas of all, in some steps of all;
 * 0: of all. */
WEFT_INLINE int32_t weft_price_part(int32_t n, int32_t part, int32_t all)
{
    return all > 0 ? (int32_t) weft_ceil_div((int64_t) n * part, all) : n;
}

/* Responses of a smaller run, in which replicas of a call are recorded that
 * stand for more of them. */
struct weft_price_lengths {
    int32_t
        *response; /* of its samples; NULL: all are as long as they can be */
    /* the call generates, and was simulated: its devices are busy so many times
     * as long as those that are recorded; when samples end, as in struct
     * weft_priced */
    bool simulated;
    double busy, came[WEFT_SEARCH_PARTS];
};
/* replicas: of the call in the whole run. Release it also after an error.
 * Errors: WEFT_ENOMEM; those of weft_costs_create(). */
int weft_price_lengths_set(const struct weft_pricer *p, int32_t call,
                           int32_t replicas, struct weft_trainer *t,
                           struct weft_price_lengths *out,
                           struct weft_err *err);
void weft_price_lengths_release(struct weft_price_lengths *lengths);

/* Sets samples of all calls. */
void weft_price_samples_set(struct weft_pricer *p);

#endif
