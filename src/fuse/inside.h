/* SPDX-License-Identifier: Apache-2.0 */
/* What fuse.c, which submits, and measure.c share. */
#ifndef WEFT_FUSE_INSIDE_H
#define WEFT_FUSE_INSIDE_H

#include "schedule/file.h"
#include "fuse/fuse.h"

struct weft_fuse_model {
    const struct weft_g_model *tiles;
    int32_t merge;  /* stages of the model per stage of the schedule */
    int32_t stages; /* of the schedule */
    double *rate;   /* (stages, 2): time per cost of forward, backward */
    double update;  /* time from a step's last backward to the end of AdamW */
};

/* Number of micro-batches of each model's pipelines, and of mini-batches. */
struct weft_fuse_size {
    int32_t n[WEFT_MAX_ROLES], mini_batches;
};

/* The schedule that is used for a size. */
struct weft_fuse_order {
    struct weft_fuse_size size;
    struct weft_schedule schedule;
    struct weft_fuse_order *next;
};

/* Optimizer steps of all models that this iteration submitted under one
 * schedule. */
struct weft_fuse_turn {
    struct weft_schedule_problem problem;
    struct weft_schedule planned;
    struct weft_schedule measured; /* after weft_fuse_measure() */
    double *cost;                  /* of the micro-batches, by model */
    struct weft_span *span; /* (n_tasks) by device; then those of updates:
                               (mini-batches, models) */
    size_t n_tasks, n_spans;
    struct weft_fuse_turn *next;
};

struct weft_fuse {
    struct weft_fuse_options options;
    int n_models;
    struct weft_fuse_model model[WEFT_MAX_ROLES];
    int32_t n_devices; /* of the schedule */
    struct weft_fuse_order *order;
    struct weft_fuse_turn *turn, **last;
    int32_t n_turns;   /* of all iterations so far */
    int32_t n_learned; /* iterations from whose times the rates were made; 0:
                          none, and rates are not in seconds */
    bool was_measured; /* this iteration's schedules are in seconds */
    bool search_again;
    double written_s;                    /* when files were written */
    struct weft_schedule_comparison all; /* the iteration's sums and means */
};

/* Before any was measured: rate_out (pp / merge, 2), of each stage of the
 * schedule, which is `merge` of the model's, the shares of its forward and its
 * backward pass. first (pp + 1): layers. */
void weft_fuse_rates(const struct weft_shape *shape, const int32_t *first,
                     const struct weft_call_plan *plan, int32_t merge,
                     double *rate_out);

/* Where a model's micro-batches begin in the costs of a turn. */
size_t weft_fuse_first(const struct weft_schedule_problem *problem,
                       int model);

#endif
