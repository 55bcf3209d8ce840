/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for an execution plan (ReaL, section 5): every call takes one of
 * its options, a mesh with a layout, so that an iteration takes the least time
 * and nothing is held beyond a device's memory.
 *
 *     time      the steady period: the time from one iteration's end to the next
 *               one's, where devices run tasks of the call with the highest
 *               priority first, as in a run (play.c). What a call reads may still
 *               be made while it runs. A trained role's weights move to a call of
 *               another layout when they are trained.
 *     memory    of a device: what options on it hold always (struct
 *               weft_option), and the most that those need while they run which
 *               can do so at the same time
 *     bound     no order of tasks is better: each cycle of calls that wait for
 *               one another takes its length, each device the work it has, all
 *               devices together the work of all calls; and between two
 *               trainings of a role is the work of all calls that read its
 *               weights, or what is made of them, for the next one
 *
 * Two trained models whose pipelines are fused are one call, which has a layout
 * for each of them and ends when both are trained.
 *
 * Methods: greedy, annealing from there, branch and bound, and every choice.
 * Pure and deterministic: a seed and a number of evaluations give one result,
 * in any number of threads, wherever restarts are done.
 */
#ifndef WEFT_PLAN_SEARCH_SEARCH_H
#define WEFT_PLAN_SEARCH_SEARCH_H

#include "plan/cluster.h"
#include "plan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parts of a call's results that others can begin with. */
enum { WEFT_SEARCH_PARTS = 4 };

struct weft_option {
    struct weft_call_plan plan;
    struct weft_call_plan with; /* of a call that trains two roles: the second
                                   one's, on the same mesh */
    double seconds;  /* of an iteration's part of the call, alone, > 0 */
    double passes_s; /* of that each device passes micro-batches, in the mean:
                        what fused training is made of; the search has no use
                        for it */
    double
        share; /* of its devices' time that it needs meanwhile, > 0, <= 1 */
    /* what devices of each kind of node need beyond that share, as a part of
     * it; 0: they need as much */
    float uneven[WEFT_CLUSTER_KINDS];
    /* that one of its tasks takes, in the mean, and that one at which a device
     * is seen, as long ones are seen more often */
    double task_s, long_task_s;
    int32_t micro_batches; /* that each device takes of it; 0: not known */
    /* its devices work as a gang: while one of them has no time for it, the
     * others wait and have none for other calls */
    bool gang;
    /* any of its devices takes the next micro-batch: those that have time do
     * more than the others */
    bool any_device;
    /* after which share of its seconds the first results are there, the first
     * quarter, half, three quarters; ascending, 1: with all others */
    double came[WEFT_SEARCH_PARTS];
    /* bytes of each device: always; while it runs; of weights while it runs,
     * where the role is trained in another layout, or always with a trunk */
    double held, active, weights;
};

struct weft_search_call {
    const struct weft_option *option;
    int32_t n_options; /* >= 1 */
    int32_t role;      /* calls of a trained role have its weights */
    int priority;      /* on devices of several calls, the highest first */
    bool trains;    /* writes the role's next version; one call of a role */
    bool trained;   /* another call trains its role, or this one */
    bool two;       /* it trains another role, too ... */
    int32_t second; /* ... which is this one */
    /* Calls of one trunk share frozen weights, which stay wherever one of them
     * is: once for calls that lie alike. Its number, from 1 on; 0: none. */
    int32_t trunk;
    uint32_t before; /* set of calls whose results it reads */
    /* calls that train in the iteration before: where it has a device of one,
     * and weights of that one's role then move, it begins behind it */
    uint32_t behind;
    /* its samples move between its devices: of its options is known what no
     * schedule undercuts, and their work can be on any of these devices. The
     * period of a choice is its bound, then. */
    bool moves;
};

enum { WEFT_SEARCH_TOGETHER = 16 };

/* Calls at most: those of a dataflow graph. */
struct weft_search_problem {
    int32_t n_nodes, n_devices; /* of each node */
    double device_bytes;        /* of each device */
    /* nodes before which those of another kind begin, ascending; 0: no more */
    int32_t kind_ends[WEFT_CLUSTER_KINDS - 1];
    /* nodes are alike, and devices of a node, for moves too, and each option is
     * there wherever its mesh can be: of plans that differ in where calls are
     * alone, one is enough */
    bool alike;
    /* of equal priority the first call comes first, and what any device takes
     * last; false: their micro-batches are in turn */
    bool one_by_one;
    /* no plan with an option that was left out before has a shorter period; 0:
     * none was */
    double left_out_s;
    int32_t n_calls;
    struct weft_search_call call[WEFT_MAX_CALLS];
    /* Sets of calls that can need their memory at the same time, on whatever
     * devices; calls of no set need it alone. */
    int32_t n_together;
    uint32_t together[WEFT_SEARCH_TOGETHER];
    /* Seconds that a role's weights take from one layout to another. It is not
     * asked where they are alike, but for ZeRO 3, which gathers them: that is
     * 0. NULL: moves take no time. */
    double (*move)(void *ctx, int32_t role, const struct weft_call_plan *from,
                   const struct weft_call_plan *to);
    void *ctx;
};

/* What a choice of options comes to. */
struct weft_search_value {
    double period; /* seconds */
    double bound;  /* no order of tasks has a shorter period */
    double bytes;  /* of the device that has most */
};

/* Leaves out options that a call does not need: with another one on the same
 * mesh no bound is higher, whatever else is chosen, and it fits as well. So
 * what a search finds for any order of tasks is true of these options, too; its
 * period and the bound of that are of those that are left. option: (n_calls)
 * the problem's own arrays, which are shortened; options on one mesh follow one
 * another. Errors: those of weft_search_create(). */
int weft_search_prune(struct weft_search_problem *problem,
                      struct weft_option *const *option,
                      struct weft_err *err);

struct weft_search;

/* Borrows the problem. Errors: WEFT_EINVAL, a problem without calls or a call
 * without options; WEFT_ENOMEM. */
int weft_search_create(const struct weft_search_problem *problem,
                       struct weft_search **out, struct weft_err *err);
void weft_search_free(struct weft_search *s); /* NULL is allowed */
/* The problem that it was created for. Borrowed. */
const struct weft_search_problem *weft_search_problem_of(
    const struct weft_search *s);

/* Seconds: no choice in which a call has this option, which need not be one of
 * the problem's, has a shorter period. */
double weft_search_least(const struct weft_search *s, int32_t call,
                         const struct weft_option *o);

/* choice (n_calls): an option of each call. */
struct weft_search_value weft_search_value(const struct weft_search *s,
                                           const int32_t *choice);
/* Periods closer than this share count as one. */
#define WEFT_SEARCH_NEAR 1e-4

enum weft_search_method {
    WEFT_SEARCH_ALL,        /* annealing, then branch and bound */
    WEFT_SEARCH_GREEDY,     /* the fastest option of each call, and one call
                               after the other its best beside the others' */
    WEFT_SEARCH_ANNEAL,     /* from there */
    WEFT_SEARCH_BRANCHES,   /* greedy, then branch and bound */
    WEFT_SEARCH_EXHAUSTIVE, /* every choice: of few alone */
    WEFT_N_SEARCH_METHODS
};
/* "all", "greedy", "anneal", "branches", "exhaustive". Static. */
const char *weft_search_method_name(enum weft_search_method method);
/* Choices of an exhaustive search, at most. */
enum { WEFT_SEARCH_CHOICES = 10000000 };

struct weft_search_result;

struct weft_search_how {
    enum weft_search_method method;
    uint64_t seed;
    int64_t evaluations; /* of annealing, over all its restarts */
    int32_t restarts;    /* independent ones; 0: 4 */
    int32_t n_threads;   /* changes no result; 0: one */
    int64_t branches;    /* that branch and bound bounds; 0: none */
    /* the period of a choice of another problem: what is not better is not
     * looked at by branch and bound, and the bound is no more than it; 0:
     * none */
    double known;
    /* Asked now and then, in any thread; true: return the best so far. NULL:
     * nobody asks. */
    bool (*stop)(void *ctx);
    void *ctx;
    /* Does all restarts of annealing, how->restarts of them, in whatever
     * places, by weft_search_restart(). NULL: they are done here. Errors end
     * the search. */
    int (*spread)(const struct weft_search *s,
                  const struct weft_search_how *how,
                  const struct weft_search_result *best,
                  struct weft_search_result *own, struct weft_err *err);
};

/* Choices that fit, shortest first, no two with the same value. */
enum { WEFT_SEARCH_FINALISTS = 20 };
struct weft_search_finalist {
    int32_t choice[WEFT_MAX_CALLS];
    struct weft_search_value value;
};

struct weft_search_result {
    int32_t choice[WEFT_MAX_CALLS];
    struct weft_search_value value;
    double bound;     /* no choice that fits has a shorter period ... */
    double any_order; /* ... nor one than this in another order of tasks */
    int64_t evaluations, branches;
    int32_t n_finalists; /* the first of them is the choice, if it fits */
    struct weft_search_finalist finalist[WEFT_SEARCH_FINALISTS];
    bool fits; /* the choice fits the devices */
    bool stopped;
};

/* The restarts of annealing first, first + stride, ... below how->restarts, each
 * from *best on: what number i has found becomes own[i] (restarts). first <
 * stride, how->restarts > 0. They know nothing of one another: another search of
 * an equal problem, in another process, does the same. */
void weft_search_restart(const struct weft_search *s,
                         const struct weft_search_how *how,
                         const struct weft_search_result *best, int32_t first,
                         int32_t stride, struct weft_search_result *own);

/* Finds a choice. Where none that fits was found, the one that exceeds memory
 * the least. Errors: WEFT_EINVAL, more choices than an exhaustive search has;
 * WEFT_ENOMEM; those of how->spread. */
int weft_search_run(const struct weft_search *s,
                    const struct weft_search_how *how,
                    struct weft_search_result *out, struct weft_err *err);

#ifdef __cplusplus
}
#endif
#endif
