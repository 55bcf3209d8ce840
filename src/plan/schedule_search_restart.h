/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a restart, shared by its parts: pool and turns
 * (schedule_search_restart.c), walks (schedule_search_tabu.c), annealing
 * (schedule_search_anneal.c).
 */
#ifndef WEFT_PLAN_SCHEDULE_SEARCH_RESTART_H
#define WEFT_PLAN_SCHEDULE_SEARCH_RESTART_H

#include "plan/schedule_jobshop.h"

enum { WEFT_JOBSHOP_POOL = 24, WEFT_JOBSHOP_TABU = 1 << 14 };

enum weft_jobshop_phase {
    WEFT_JOBSHOP_LOOSE, /* a short schedule, whatever it holds, to anneal */
    WEFT_JOBSHOP_MAKESPAN, /* the shortest within the capacity */
    WEFT_JOBSHOP_MEMORY    /* no longer, but less memory */
};

/* What a restart does next. */
enum weft_jobshop_turn {
    WEFT_JOBSHOP_BUILD,
    WEFT_JOBSHOP_WALK,
    WEFT_JOBSHOP_ANNEAL,
    WEFT_JOBSHOP_TRADE,
    WEFT_JOBSHOP_TURNS
};

struct weft_jobshop_pooled {
    struct weft_jobshop_rule rule;
    double makespan;
};

struct weft_jobshop_restart {
    const struct weft_jobshop_goal *goal;
    const struct weft_schedule_problem *problem;
    int32_t index;
    struct weft_jobshop_rng rng;
    struct weft_jobshop_list *list[2]; /* forward, reversed */
    struct weft_jobshop_walk walk;
    struct weft_jobshop_pooled
        pool[WEFT_JOBSHOP_POOL + 1]; /* the last: on trial */
    int32_t n_pool;
    bool pool_is_stale; /* its makespans are of another capacity */
    enum weft_jobshop_phase phase;
    double capacity; /* now; 0: none */
    struct weft_jobshop_best best;
    int32_t *elite;        /* (n_ops) where walks go on; may hold too much */
    double elite_makespan; /* INFINITY: of another capacity, or none */
    int32_t elite_idle;    /* walks from it that led to nothing shorter */
    bool has_elite;
    int32_t *loose; /* (n_ops) of the first phase, since it began anew */
    double loose_makespan, loose_peak;
    double least_room; /* of the capacities it begins with */
    int64_t begun;     /* evaluations when it last did */
    int32_t *near;     /* (n_ops) short enough, with the least excess */
    double near_makespan, near_excess;
    int32_t *annealed; /* (n_ops) of the annealing now: the least excess */
    int64_t first_cooling, cooling, most_cooling; /* trials of an annealing */
    int64_t spent[WEFT_JOBSHOP_TURNS]; /* evaluations in this phase */
    int32_t *sequence;                 /* (n_ops) */
    int32_t *move; /* (2 n_ops) candidates: the second of each pair; in
                      annealing, a window */
    int64_t tabu[WEFT_JOBSHOP_TABU], iteration;
    double
        time_per_activation; /* mean time of an operation per largest activation */
    int64_t n_kept;          /* how often something better was kept */
    double price;  /* of what is held too much, in time per activation */
    int64_t until; /* evaluations of this run */
};

/* Nothing is left to spend, or the search was cut. */
bool weft_jobshop_restart_ended(const struct weft_jobshop_restart *r);
/* That, or this run's evaluations are spent, or the goal is reached. */
bool weft_jobshop_restart_stopped(const struct weft_jobshop_restart *r);
/* The makespan to beat. */
double weft_jobshop_restart_shortest(const struct weft_jobshop_restart *r);
void weft_jobshop_restart_copy(const struct weft_jobshop_restart *r,
                               int32_t *to, const int32_t *from);
/* What one of the pool's better rules builds, into r->sequence. False:
 * nothing. */
bool weft_jobshop_restart_build_better(struct weft_jobshop_restart *r);
/* From r->sequence walks go on. */
void weft_jobshop_restart_set_elite(struct weft_jobshop_restart *r,
                                    double makespan);
/* r->sequence may be better than what there is. */
void weft_jobshop_restart_keep(struct weft_jobshop_restart *r,
                               double makespan);

/* The first phase begins anew, from another capacity. */
void weft_jobshop_restart_begin(struct weft_jobshop_restart *r);
/* The sequence is what annealing goes on from. */
void weft_jobshop_restart_come_near(struct weft_jobshop_restart *r,
                                    const int32_t *sequence, double makespan,
                                    double excess);
/* One walk. */
void weft_jobshop_restart_walk(struct weft_jobshop_restart *r);
/* Anneals what is short enough towards less memory. */
void weft_jobshop_restart_anneal(struct weft_jobshop_restart *r);
/* Anneals time and memory at once, the one for the other. */
void weft_jobshop_restart_trade(struct weft_jobshop_restart *r);

#endif
