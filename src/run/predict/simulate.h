/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that is simulated: the training loop records its iterations
 * (run/predict/recorded.h), and the event engine plays them. Nothing is
 * computed, and no weights are read.
 */
#ifndef WEFT_RUN_PREDICT_SIMULATE_H
#define WEFT_RUN_PREDICT_SIMULATE_H

#include "base/string.h"
#include "plan/cluster.h"
#include "plan/costs.h"
#include "plan/costs_file.h"
#include "plan/layout.h"
#include "plan/lengths.h"
#include "config/config.h"
#include "graphs/calls/layout.h"

/* Tasks are simulated one by one on at most so many devices, where there are so
 * many at most, of some 200 bytes each; else instructions of tp groups stand
 * for them. */
enum { WEFT_FEW_DEVICES = 64, WEFT_FEW_TASKS = 8000000 };

/* What limits a plan: the call that takes most of the time of all devices, as
 * weft simulate prints it, and what most of that is; and of the fullest
 * place's memory the class that takes most. */
enum { WEFT_LIMIT_WAITING = WEFT_N_COST_PARTS };
struct weft_limit {
    int32_t call; /* 0: none, "other" */
    double share; /* of the time of all devices */
    int by;       /* enum weft_cost_part, with messages while its devices have
                     nothing else; or WEFT_LIMIT_WAITING */
    enum weft_mem_class mem;
    double mem_bytes; /* for each device of the place */
};

/* What a simulated run came to. */
struct weft_simulated {
    double iteration_s;            /* once iterations follow one another */
    double call_s[WEFT_MAX_CALLS]; /* from a call's first task to its last, in
                                      an iteration that has neighbours */
    /* of generation and inference, and what no schedule of them undercuts
     * (plan/fusion/bound.h); 0: not asked for or not known */
    double gen_infer_s, gen_infer_least_s;
    double device_bytes; /* of the fullest place, for each of its devices */
    double fullest;      /* the largest share of a device's memory */
    double static_share; /* of the memory of all devices: gradients and
                            optimizer state (ReaL section 8.4) */
    struct weft_limit limit;
};

struct weft_simulate_options {
    const struct weft_cluster *cluster;  /* ranks are its nodes, or parts */
    const struct weft_costs_file *costs; /* tasks as measured; NULL: none */
    const struct weft_lengths *lengths;  /* of responses ... */
    const int32_t *response; /* ... or those of each iteration's samples;
                                NULL: these are drawn */
    int32_t iterations;
    uint32_t calls; /* the rest is left out; 0: none (predict/recorded.h) */
    /* a run of the configuration: its last iterations are simulated, with the
     * lengths that its samples had, and times that it measured are printed
     * beside; NULL: none */
    const char *run_dir;
    bool limit;   /* of simulated->limit the call, too, is wanted */
    bool bound;   /* what generation and inference take at least is said */
    bool decided; /* when its samples moved is as it was in the run */
    bool gangs;   /* instructions of tp groups, not what they expand to */
    int32_t joined_steps; /* of generation (rt/graph.h) */
    const bool *left_out; /* places (rt/graph.h) */
    bool crowded;         /* ranks have no more cores than devices */
    bool
        measured; /* it is an error where costs do not say what a task takes */
    int64_t most_bytes;     /* of the recording; 0: no limit */
    int64_t finalist_bytes; /* of that of a search's finalist; 0: no limit */
    /* asked now and then, with stop_ctx, whether to give up; NULL: never */
    bool (*stop)(void *ctx);
    void *stop_ctx;
    bool json;                        /* instead of tables */
    const char *svg;                  /* a file for the picture; NULL: none */
    const char *trace;                /* for Perfetto */
    struct weft_simulated *simulated; /* filled in; NULL: not wanted */
};

struct weft_costs;
/* Costs of a job's tasks. Ranks beyond the cluster's nodes share them. Errors:
 * those of weft_costs_create(). */
int weft_simulate_costs(const struct weft_simulate_options *options,
                        const struct weft_g_job *job, struct weft_costs **out,
                        struct weft_err *err);

/* Whether tasks of the run are to be simulated by instruction, as
 * options->gangs asks for, or as they are too many. Errors: as
 * weft_run_simulate(). */
int weft_simulate_by_gangs(const struct weft_config *config,
                           const struct weft_g_job *job,
                           struct weft_plan *plan,
                           const struct weft_simulate_options *options,
                           bool *out, struct weft_err *err);

/* Simulates a run of the configuration on a job. Reads models' config.json and
 * data as the run would. plan->n_nodes 0: makes a plan. Tables or JSON are
 * appended to out (NULL: not wanted). Errors: those of weft_trainer_describe(),
 * of weft_costs_create(), of recording, of files; a run with too few
 * iterations; WEFT_EINTERRUPTED where options->stop said so. */
int weft_run_simulate(const struct weft_config *config,
                      const struct weft_g_job *job, struct weft_plan *plan,
                      const struct weft_simulate_options *options,
                      struct weft_string *out, struct weft_err *err);

#endif
