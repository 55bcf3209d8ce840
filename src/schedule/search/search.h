/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the search: sequences of a job shop are constructed by list
 * scheduling, improved by swaps of neighbours on a device, and a restart does
 * both again and again.
 */
#ifndef WEFT_SCHEDULE_SEARCH_SEARCH_H
#define WEFT_SCHEDULE_SEARCH_SEARCH_H

#include "schedule/jobshop.h"

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
