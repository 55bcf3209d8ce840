/* SPDX-License-Identifier: Apache-2.0 */
/* What fuse.c, which submits, and fuse_measure.c share. */
#ifndef WEFT_RUN_FUSE_INSIDE_H
#define WEFT_RUN_FUSE_INSIDE_H

#include "plan/schedule_file.h"
#include "run/trainer.h"

enum { WEFT_FUSE_MODELS = 2 };

struct weft_fuse_model {
    const struct weft_run_model *run;
    int32_t merge;  /* stages of the model that are one of the schedule */
    int32_t stages; /* of the schedule */
    double *rate;   /* (stages, 2): time of forward, backward per cost */
};

/* Devices' orders for so many micro-batches. */
struct weft_fuse_order {
    int32_t n[WEFT_FUSE_MODELS];
    struct weft_schedule schedule;
    struct weft_fuse_order *next;
};

/* An optimizer step of both models, this iteration's. */
struct weft_fuse_step {
    struct weft_schedule_problem problem;
    struct weft_schedule planned;
    struct weft_schedule measured; /* after weft_fuse_measure() */
    double *cost;           /* of the micro-batches, model after model */
    struct weft_span *span; /* of the subtasks, device after device */
    size_t n_spans;
    struct weft_fuse_step *next;
};

struct weft_fuse {
    struct weft_fuse_model model[WEFT_FUSE_MODELS];
    int32_t n_devices; /* of the schedule */
    struct weft_fuse_order *order;
    struct weft_fuse_step *step, **last;
    bool is_measured;  /* rates are seconds */
    bool was_measured; /* so were those of this iteration's plans */
    bool search_again;
    double written_s;                    /* files, at */
    struct weft_schedule_comparison all; /* of the iteration: sums, means */
};

#endif
