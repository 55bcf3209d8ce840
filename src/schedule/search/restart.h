/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a restart, shared by its parts: pool and turns
 * (restart.c), walks (tabu.c), annealing (anneal.c).
 */
#ifndef WEFT_SCHEDULE_SEARCH_RESTART_H
#define WEFT_SCHEDULE_SEARCH_RESTART_H

#include "schedule/search/search.h"

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
    bool pool_is_stale; /* its makespans were found under another capacity */
    enum weft_jobshop_phase phase;
    double capacity; /* now; 0: none */
    struct weft_jobshop_best best;
    /* (n_ops) the elite, from which walks start; may hold too much */
    int32_t *elite;
    /* INFINITY: there is no elite, or it was found under another capacity */
    double elite_makespan;
    int32_t elite_idle; /* walks from it that led to nothing shorter */
    bool has_elite;
    /* (n_ops) best of the first phase since its last beginning */
    int32_t *loose;
    double loose_makespan, loose_peak;
    double
        least_room; /* least capacity to begin with, of the one asked for */
    int64_t begun;  /* evaluations at its last beginning */
    /* (n_ops) the short enough schedule with the least excess */
    int32_t *near;
    double near_makespan, near_excess;
    /* (n_ops) the least excess of the annealing in progress */
    int32_t *annealed;
    int64_t first_cooling, cooling, most_cooling; /* trials of an annealing */
    int64_t spent[WEFT_JOBSHOP_TURNS]; /* evaluations in this phase */
    int32_t *sequence;                 /* (n_ops) */
    /* (2 n_ops) candidate swaps, each by its second operation; while
     * annealing, the operations of a window */
    int32_t *move;
    int64_t tabu[WEFT_JOBSHOP_TABU], iteration;
    /* mean time of an operation per largest activation */
    double time_per_activation;
    int64_t n_kept; /* how often something better was kept */
    double price;   /* price of holding too much, in time per activation */
    int64_t until;  /* evaluations of this run */
};

/* True when no evaluations are left or the search was cut. */
bool weft_jobshop_restart_ended(const struct weft_jobshop_restart *r);
/* The same, or this run's evaluations are spent, or the goal is reached. */
bool weft_jobshop_restart_stopped(const struct weft_jobshop_restart *r);
/* The makespan to beat. */
double weft_jobshop_restart_shortest(const struct weft_jobshop_restart *r);
void weft_jobshop_restart_copy(const struct weft_jobshop_restart *r,
                               int32_t *to, const int32_t *from);
/* Builds the schedule of one of the pool's better rules into r->sequence;
 * false when it builds none. */
bool weft_jobshop_restart_build_better(struct weft_jobshop_restart *r);
/* Makes r->sequence the elite, from which walks start. */
void weft_jobshop_restart_set_elite(struct weft_jobshop_restart *r,
                                    double makespan);
/* Keeps r->sequence where it is better than the best. */
void weft_jobshop_restart_keep(struct weft_jobshop_restart *r,
                               double makespan);

/* Starts the first phase again from another capacity. */
void weft_jobshop_restart_begin(struct weft_jobshop_restart *r);
/* Remembers the sequence as the one that annealing continues from. */
void weft_jobshop_restart_come_near(struct weft_jobshop_restart *r,
                                    const int32_t *sequence, double makespan,
                                    double excess);
/* One walk. */
void weft_jobshop_restart_walk(struct weft_jobshop_restart *r);
/* Anneals a schedule that is short enough towards less memory. */
void weft_jobshop_restart_anneal(struct weft_jobshop_restart *r);
/* Anneals time and memory together, trading one for the other. */
void weft_jobshop_restart_trade(struct weft_jobshop_restart *r);

#endif
