/* SPDX-License-Identifier: Apache-2.0 */
/* A run that was recorded, to be played once or often: what weft_run_simulate()
 * and prices have in common. */
#ifndef WEFT_RUN_PREDICT_SIMULATION_H
#define WEFT_RUN_PREDICT_SIMULATION_H

#include "plan/costs.h"
#include "plan/engine/engine.h"
#include "run/predict/recorded.h"
#include "run/predict/simulate.h"
#include "run/seen.h"

struct weft_simulation {
    const struct weft_simulate_options *options;
    const struct weft_trainer *t;
    struct weft_recorded how;
    struct weft_recording r;
    int32_t *length; /* of responses */
    int32_t n_known,
        n_responses; /* of a run's: of so many it is known; of each
                                     iteration, the fewest */
    double *bound_s; /* (iterations) of generation and inference; NULL: not
                        wanted */
    struct weft_seen seen;
    char *decisions; /* the file of a run's that are made again; NULL: none */
    int32_t *place_of;   /* (devices) */
    double *place_bytes; /* (places) of memory that there is */
    struct weft_costs *costs;
    struct weft_engine_job job;
    struct weft_engine *engine; /* of the last playing */
};

/* Records a run that is described (run/trainer.h), which stays its owner's, who
 * keeps it. Close it also after an error. Errors: as weft_run_simulate(). */
int weft_simulation_open(const struct weft_trainer *t,
                         const struct weft_simulate_options *options,
                         struct weft_simulation *out, struct weft_err *err);
/* The same of iterations that are given, also of a run that goes on; how:
 * which, all ranks', with known lengths. */
int weft_simulation_of(const struct weft_trainer *t,
                       const struct weft_recorded *how,
                       const struct weft_simulate_options *options,
                       struct weft_simulation *out, struct weft_err *err);
void weft_simulation_close(struct weft_simulation *s);
/* Plays it from its beginning. Errors: those of the engine. */
int weft_simulation_play(struct weft_simulation *s, struct weft_err *err);
/* The node that has a device. */
const struct weft_node_kind *weft_simulation_node(
    const struct weft_simulation *s, int32_t device);
/* weft_run_simulate() of a run that is described. */
int weft_simulation_run(const struct weft_trainer *t,
                        const struct weft_simulate_options *options,
                        struct weft_string *out, struct weft_err *err);

#endif
