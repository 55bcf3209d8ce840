/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call takes by itself in a layout: seconds and memory of its devices.
 * The run is recorded with the layout, of the call's tasks alone, and played:
 * so prices have no second description of what calls do. What other calls make
 * is there from the beginning.
 *
 * A large run is not recorded whole. Of each epoch's optimizer steps two are,
 * with their samples (four with ZeRO 0 and one stage on several nodes): every
 * other one takes as much longer as the last ones take after the first. What is
 * recorded is smaller in up to two sizes besides, each at two values between
 * which, and beyond which, a price is a straight line:
 *
 *     layers of a stage    by what the stage with most work has to do
 *     nodes of a stage     4 and 8, with the samples and gradient groups of
 *                          their replicas, where training has more than 16;
 *                          seconds go by log2 dp, bytes by 1 - 1 / dp
 *
 * But of inference, and of training with several stages or on one node, a few
 * layers of each stage are recorded that stand for all of it: each counts for
 * as many as there are in its place (weft_recording_stretch()), and there is no
 * line. Of training with one stage on several nodes all layers are recorded.
 * Where devices share nothing one member or two stand for a tp group, and where
 * training has several stages, with ZeRO 0 or 1, two replicas for all.
 *
 * Inference and generation have all samples of a replica, whatever the steps,
 * and one node of a stage, as replicas have nothing to tell one another; and
 * one replica, where devices share nothing: every one has a rail and memory of
 * its own, and tasks are inserted in no time. A recording that is large all the
 * same, as that of generation in 64 stages, is given up.
 */
#ifndef WEFT_RUN_PREDICT_PRICE_H
#define WEFT_RUN_PREDICT_PRICE_H

#include "plan/layout.h"
#include "plan/search/search.h"
#include "run/predict/simulate.h"

struct weft_priced {
    double seconds;  /* of an iteration; 0: it has no tasks */
    double busy_s;   /* the mean of its devices: at work meanwhile ... */
    double passes_s; /* ... of that in passes of micro-batches, of training */
    /* what devices on each kind of node are at work beyond that mean, as a part
     * of it */
    double uneven[WEFT_CLUSTER_KINDS];
    /* generation: after which share of its seconds the first samples are there,
     * the first quarter, half, three quarters; others: 1 */
    double came[WEFT_SEARCH_PARTS];
    /* bytes of each device, where they are most: weights of the call's role;
     * what it has for good beside them, which are gradients and optimizer state
     * or a KV cache; what its tasks need while they run */
    double weights, state, active;
    bool gang, any_device;      /* see struct weft_option */
    int32_t micro_batches;      /* that each device takes of it */
    double task_s, long_task_s; /* see struct weft_option */
};

struct weft_pricer;
/* A recording of a run that is not whole takes no more, unless the options say
 * another limit; whole plans have none. */
enum { WEFT_PRICE_BYTES = 1 << 30 };

/* Reads models' folders and data as the run would. Borrows all until
 * weft_pricer_free(). whole: every run is recorded whole. Errors: those of
 * weft_trainer_describe(). */
int weft_pricer_create(const struct weft_config *config,
                       const struct weft_plan_needs *needs,
                       const struct weft_simulate_options *options,
                       bool whole, struct weft_pricer **out,
                       struct weft_err *err);
void weft_pricer_free(struct weft_pricer *p); /* NULL is allowed */

/* Whether a call can have the degrees of a layout. */
bool weft_price_can(const struct weft_plan_needs *needs, int32_t call,
                    const struct weft_call_plan *plan);

/* Prices a set of calls, all of which train or none of which do, and which can
 * have the layout. Its mesh begins at device 0. out (WEFT_MAX_CALLS).
 * Errors: those of weft_run_simulate(); WEFT_ENOMEM, too, where a recording
 * takes more than that. */
int weft_pricer_price(struct weft_pricer *p, const struct weft_call_plan *at,
                      uint32_t calls, struct weft_priced *out,
                      struct weft_err *err);

/* What a call takes at least in a layout, and how long its devices work in the
 * mean: no price is lower. It takes no recording. 0: of devices of several
 * kinds, and where measured costs are used. */
struct weft_least {
    double seconds, busy_s;
};
struct weft_least weft_pricer_least(const struct weft_pricer *p,
                                    const struct weft_call_plan *at,
                                    int32_t call);

/* Whether two layouts of a call that trains cut its samples alike, so that they
 * have one price: they differ in the number of micro-batches alone. */
bool weft_pricer_same(const struct weft_pricer *p,
                      const struct weft_call_plan *a,
                      const struct weft_call_plan *b, int32_t call);

/* A whole plan, simulated. stop: asked with ctx now and then whether to give
 * up; NULL: nobody is. Errors: those of weft_run_simulate(); WEFT_ENOMEM, too,
 * where a recording takes more than finalist_bytes of the options. */
int weft_pricer_simulate(struct weft_pricer *p, struct weft_plan *plan,
                         bool (*stop)(void *ctx), void *ctx,
                         struct weft_simulated *out, struct weft_err *err);

#endif
