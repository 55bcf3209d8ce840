/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule problem as a job shop, inside of the search: operations on
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

#include "base/rng.h"
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

/* ---- Random numbers: a stream per restart ------------------------------ */

struct weft_jobshop_rng {
    uint64_t seed, count;
    uint32_t stream, word[4];
    int left;
};
uint32_t weft_jobshop_draw(struct weft_jobshop_rng *rng); /* 32 bits */
int32_t weft_jobshop_below(struct weft_jobshop_rng *rng,
                           int32_t n); /* [0, n) */
double weft_jobshop_uniform(struct weft_jobshop_rng *rng, double a, double b);

/* ---- Constructing: list scheduling ------------------------------------- */

enum {
    WEFT_RULE_TERMS = 3
}; /* due date: offset, per micro-batch, per stage */

/* Of a series's kind (model, pass) the operation of micro-batch i on stage s
 * is due at term[0] + term[1] i + term[2] s. */
struct weft_jobshop_rule {
    bool reversed;
    /* 0: a device never idles while an operation is ready; 1: it may idle for
     * as long as a ready operation would take */
    double wait;
    double *term;  /* (3 n_models, WEFT_RULE_TERMS) */
    double *limit; /* (n_models, 2): micro-batches in flight on a stage, at
                      most limit[0] - limit[1] s */
    /* (n_models) the order in which models are drained; room is kept for those
     * first */
    int32_t *rank;
};

/* A rule at random, or `from` with a few terms changed. Times are of the size
 * of `makespan`. Copies need the same problem. Errors: WEFT_ENOMEM. */
int weft_jobshop_rule_init(struct weft_jobshop_rule *rule,
                           const struct weft_schedule_problem *problem,
                           struct weft_err *err);
void weft_jobshop_rule_release(struct weft_jobshop_rule *rule);
void weft_jobshop_rule_copy(struct weft_jobshop_rule *to,
                            const struct weft_jobshop_rule *from,
                            const struct weft_schedule_problem *problem);
void weft_jobshop_rule_draw(struct weft_jobshop_rule *rule,
                            const struct weft_schedule_problem *problem,
                            double makespan, struct weft_jobshop_rng *rng);
void weft_jobshop_rule_mutate(struct weft_jobshop_rule *rule,
                              const struct weft_schedule_problem *problem,
                              double makespan, struct weft_jobshop_rng *rng);

struct weft_jobshop_list; /* room to work in */
struct weft_jobshop_list *weft_jobshop_list_create(
    const struct weft_jobshop *shop);
void weft_jobshop_list_free(struct weft_jobshop_list *list);

/* Schedules the shop (of the rule's direction) by a rule within a capacity
 * (0: none). tail: (n_ops) longest way after each operation; gives up as soon
 * as more than `enough` is certain. Returns the makespan, or INFINITY.
 * sequence_out is in the direction of the unreversed shop. */
double weft_jobshop_list_build(struct weft_jobshop_list *list,
                               const struct weft_jobshop_rule *rule,
                               const double *tail, double capacity,
                               double enough, int32_t *sequence_out);

/* ---- Improving: swaps of neighbours ------------------------------------ */

/* An operation of a walk, in one cache line. Most operations have one arc in
 * and one arc out, which are kept here; the job shop has the others. */
struct weft_jobshop_node {
    double head, tail; /* start; longest way after the end */
    double time, pred_lag, succ_lag;
    int32_t before, after; /* on the device; -1 */
    int32_t pred, succ;    /* of the first arcs; -1 */
    int32_t place;         /* in the topological order */
    bool more_preds, more_succs;
};

/* A sequence with heads and tails that follow every swap. */
struct weft_jobshop_walk {
    const struct weft_jobshop *shop;
    double capacity;                /* INFINITY: none */
    bool strict;                    /* no swap may hold more than that */
    struct weft_jobshop_node *node; /* node[-1]: no operation, at 0 */
    double *held;                   /* on its device, after it */
    double least_hold;              /* the smallest activation */
    /* sum over all operations of what is held beyond the capacity, each at
     * least the smallest activation */
    double excess;
    int32_t n_over; /* operations after which too much is held */
    /* (n_ops) these operations; (n_ops) their index there, -1: not among
     * them */
    int32_t *over, *over_at;
    double makespan;
    int32_t *order;  /* topological: order[node[x].place] = x */
    int32_t *last;   /* (n_devices) */
    uint64_t *dirty; /* by place */
    bool *mark;
    int32_t *scratch;
    int32_t n_ends, *end; /* the last optimizer steps */
    int64_t n_updates;    /* heads and tails computed so far */
};

/* Errors: WEFT_ENOMEM. */
int weft_jobshop_walk_init(struct weft_jobshop_walk *walk,
                           const struct weft_jobshop *shop,
                           struct weft_err *err);
void weft_jobshop_walk_release(struct weft_jobshop_walk *walk);
/* Loads a sequence under a capacity (0: none); unless `strict` it may hold
 * more. False for a cycle. */
bool weft_jobshop_walk_load(struct weft_jobshop_walk *walk,
                            const int32_t *sequence, double capacity,
                            bool strict);
void weft_jobshop_walk_store(const struct weft_jobshop_walk *walk,
                             int32_t *sequence_out);
/* Whether v, which directly follows u on a device, may be swapped with it. */
bool weft_jobshop_walk_may_swap(const struct weft_jobshop_walk *walk,
                                int32_t u, int32_t v);
/* What the swap adds to the excess. */
double weft_jobshop_walk_excess(const struct weft_jobshop_walk *walk,
                                int32_t u, int32_t v);
/* The longest way through u or v after the swap, in constant time. The
 * makespan after the swap is at least that, and equal to it where it grows
 * (unless the swap closes a cycle). */
double weft_jobshop_walk_estimate(const struct weft_jobshop_walk *walk,
                                  int32_t u, int32_t v);
/* Swaps u and v. Returns false, with nothing done, where that would close a
 * cycle. Swapping v and u undoes it, with the same heads and tails as
 * before. */
bool weft_jobshop_walk_swap(struct weft_jobshop_walk *walk, int32_t u,
                            int32_t v);

/* ---- Improving: less memory within a deadline -------------------------- */

struct weft_jobshop_metropolis {
    struct weft_jobshop_walk *walk; /* borrowed */
    double deadline;
    /* price of being late, in activation per time; INFINITY: never late */
    double price;
    double most;  /* activation of the largest micro-batch */
    bool focused; /* half of the trials are near places that hold too much */
    /* Operations of the window in which swaps are tried; NULL: everywhere. */
    const int32_t *window;
    int32_t n_window;
    int64_t n_swaps;
};

/* The walk must be loaded with the capacity and not be strict. Without a price
 * its makespan must be at most `deadline`, and stays so. */
void weft_jobshop_metropolis_begin(struct weft_jobshop_metropolis *metropolis,
                                   struct weft_jobshop_walk *walk,
                                   double deadline, double price);
/* Whether the schedule fits and is in time. */
bool weft_jobshop_metropolis_done(
    const struct weft_jobshop_metropolis *metropolis);
/* Tries n_moves swaps at a temperature (1: activation of the largest micro-
 * batch); ends as soon as the schedule fits and is in time. */
void weft_jobshop_metropolis_run(struct weft_jobshop_metropolis *metropolis,
                                 struct weft_jobshop_rng *rng,
                                 double temperature, int32_t n_moves);

/* Repairs a schedule: where a device holds more than the walk's capacity, the
 * next pass that gives memory back is moved first. False if that is not
 * enough. */
bool weft_jobshop_walk_repair(struct weft_jobshop_walk *walk);

/* ---- A restart: a stream of rules and walks ---------------------------- */

struct weft_jobshop_restart;
/* What the restarts of a search share. */
struct weft_jobshop_goal {
    const struct weft_jobshop_pair
        *pair;             /* heads and tails without capacity */
    double capacity;       /* 0: none */
    double makespan, peak; /* bounds: nothing better exists */
    /* whether the capacity raises the makespan's bound */
    bool memory_binds;
    uint64_t seed;
    int64_t share; /* evaluations of one restart */
    /* True: give up at once. Called now and then; may be NULL. */
    bool (*cut)(void *ctx, int32_t restart);
    /* Called when a restart found something better; may be NULL. */
    void (*found)(void *ctx, double makespan, double peak);
    void *ctx;
};
struct weft_jobshop_best {
    double makespan, peak;  /* INFINITY: nothing found */
    int32_t *sequence;      /* (n_ops) */
    int64_t evaluations;    /* done so far */
    int64_t swaps, updates; /* of them swaps done; heads and tails computed */
    bool reached;           /* the goal */
};
/* Restart number `index`. Errors: WEFT_ENOMEM. */
int weft_jobshop_restart_create(const struct weft_jobshop_goal *goal,
                                int32_t index,
                                struct weft_jobshop_restart **out,
                                struct weft_err *err);
void weft_jobshop_restart_free(struct weft_jobshop_restart *restart);
/* Continues for n evaluations; fewer only if it reached the goal or was
 * cut. */
void weft_jobshop_restart_run(struct weft_jobshop_restart *restart,
                              int64_t evaluations);
const struct weft_jobshop_best *weft_jobshop_restart_best(
    const struct weft_jobshop_restart *restart);

#endif
