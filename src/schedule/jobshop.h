/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule problem as a job shop, for bounds and search: operations on
 * machines (devices), arcs with lags between them, and series, whose
 * operations keep their order. Turned around in time a shop is a shop again:
 * heads become tails, and the pass that takes memory the one that gives it
 * back.
 *
 * After a model's last backward pass of a mini-batch comes an operation on no
 * device (-1) for its sync and optimizer step.
 */
#ifndef WEFT_SCHEDULE_JOBSHOP_H
#define WEFT_SCHEDULE_JOBSHOP_H

#include "schedule/schedule.h"

/* Sums of times and activations are compared with this relative slack. */
#define WEFT_JOBSHOP_SLACK 1e-9

static inline bool weft_jobshop_at_most(double x, double y)
{
    return x <= y * (1 + WEFT_JOBSHOP_SLACK);
}

struct weft_jobshop_op {
    double time;
    double hold;         /* activation it takes (> 0) or gives back (< 0) */
    int32_t device;      /* -1: none */
    int32_t series;      /* -1: none */
    int32_t model_stage; /* (model, pipeline, stage); -1: none */
    int32_t place;       /* in its series */
};

struct weft_jobshop_arc {
    int32_t op;
    double lag;
};

struct weft_jobshop_series {
    int32_t *op; /* (n) */
    int32_t n;
    int32_t slot; /* in series_of */
    int32_t model, stage;
    enum weft_pass pass;
    /* the order is fixed by the rules, or may be fixed without loss because
     * micro-batches are equal */
    bool fixed;
};

struct weft_jobshop_model_stage {
    int32_t model, stage, device;
    int32_t take, give; /* series, in this shop's direction of time */
    double most;        /* activation of the largest micro-batch */
    bool equal;         /* micro-batches */
};

struct weft_jobshop {
    const struct weft_schedule_problem *problem;
    int32_t n_ops, n_devices, n_series, n_model_stages;
    bool reversed;
    double grain; /* every time is a multiple of it; 0: none found */
    double work;  /* the most loaded device's */
    struct weft_jobshop_op *op;
    int32_t *pred_at, *succ_at; /* (n_ops + 1) */
    struct weft_jobshop_arc *pred, *succ;
    struct weft_jobshop_series *series;
    struct weft_jobshop_model_stage *model_stage;
    int32_t *device_at; /* (n_devices + 1): its operations in a sequence */
    int32_t *series_at, *series_of; /* by device */
    int32_t *model_stage_at, *model_stage_of;
    int32_t *series_ops; /* storage of series[].op */
};

/* `reversed`: the same operations with time turned around. Errors:
 * WEFT_ENOMEM, WEFT_EINVAL. The problem is borrowed. */
int weft_jobshop_init(struct weft_jobshop *shop,
                      const struct weft_schedule_problem *problem,
                      bool reversed, struct weft_err *err);
void weft_jobshop_release(struct weft_jobshop *shop);

/* A sequence is all operations that have a device, device after device
 * (device_at). Starts of each operation (n_ops), from it or without one (NULL;
 * then series keep their order): the makespan, INFINITY for a cycle. */
double weft_jobshop_time(const struct weft_jobshop *shop,
                         const int32_t *sequence, double *start);
/* The highest activation of any device. */
double weft_jobshop_peak(const struct weft_jobshop *shop,
                         const int32_t *sequence);
int weft_jobshop_export(const struct weft_jobshop *shop,
                        const int32_t *sequence, struct weft_schedule *out,
                        struct weft_err *err);

/* ---- Bounds ------------------------------------------------------------- */

/* A shop, the same reversed, and rules that follow from the capacity. */
struct weft_jobshop_pair {
    struct weft_jobshop forward, back;
    double *head, *tail; /* (n_ops) of the bound last computed */
    /* (n_ops) of passes that take memory: the least time until it is given
     * back */
    double *hold;
};
int weft_jobshop_pair_init(struct weft_jobshop_pair *pair,
                           const struct weft_schedule_problem *problem,
                           struct weft_err *err);
void weft_jobshop_pair_release(struct weft_jobshop_pair *pair);

/* How many micro-batches of each stage fit the capacity (n_model_stages); 0
 * when no limit is known. False when one micro-batch does not fit. */
bool weft_jobshop_in_flight(const struct weft_jobshop *shop, double capacity,
                            int32_t *in_flight);
/* Up to two operations that must run before x (`step` -1) or after it (1)
 * besides its arcs: its neighbour in the series, and the one that memory makes
 * it wait for. */
int weft_jobshop_neighbours(const struct weft_jobshop *shop,
                            const int32_t *in_flight, int32_t x, int32_t step,
                            int32_t out[2]);
/* No schedule within the capacity (0: none) is shorter. Sets head and tail.
 * `argument` may be NULL. Negative: out of memory. */
double weft_jobshop_bound(struct weft_jobshop_pair *pair, double capacity,
                          int effort, const char **argument);
/* The bound that follows from memory; uses head and tail. 0: none. */
double weft_jobshop_memory_bound(const struct weft_jobshop_pair *pair,
                                 double capacity);
/* hold (n_ops): for each pass that takes memory, the longest way to the end of
 * the pass that gives it back. */
void weft_jobshop_holds(const struct weft_jobshop *shop, double *hold);
/* `bound`, raised by refuting makespans above it but below `makespan`, with so
 * many steps (of about 2 ns). Negative: out of memory. */
double weft_jobshop_refute(const struct weft_jobshop *shop, double capacity,
                           double bound, double makespan, int64_t steps,
                           const char **argument);
/* No schedule of at most this makespan holds less. Negative: out of memory. */
double weft_jobshop_peak_bound(struct weft_jobshop_pair *pair,
                               double makespan, int effort);

#endif
