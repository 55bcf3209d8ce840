/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a run's calls, shared by what takes some of them. */
#ifndef WEFT_RUN_PREDICT_OPTIONS_INSIDE_H
#define WEFT_RUN_PREDICT_OPTIONS_INSIDE_H

#include "plan/fixed.h"
#include "run/predict/moving.h"
#include "run/predict/options.h"
#include "run/predict/price.h"

/* How much of the time in which a call's devices wait, as those of pipelines
 * do, other calls can use: on 150 random plans (doc/strategies.md) the search
 * was nearest to simulations with half of it, compared with none and all. */
#define WEFT_FINDING_BUBBLES 0.5

/* What a layout was priced with ahead of time. */
struct weft_ahead_price {
    struct weft_priced priced;
    int rc;
    struct weft_err err;
};

/* A layout that a call may have. */
struct weft_candidate {
    struct weft_call_plan plan; /* from device 0 on, and the first node with
                                   this price */
    struct weft_least least;
    double needs; /* priced: bytes of a device; 0: not known */
    double bound; /* no plan with it has a shorter period; 0: not known yet */
    bool closed;  /* it has been priced or is left out */
    bool large;   /* priced, and what it holds exceeds a device */
    bool lost;    /* no plan with it fits, or it is needless */
    struct weft_ahead_price *ahead; /* NULL: it was not */
};

struct weft_candidates {
    struct weft_candidate *at;
    int32_t n, room;
};

struct weft_finding {
    const struct weft_config *config;
    const struct weft_plan_needs *needs;
    const struct weft_find *find;
    struct weft_moving moving;
    struct weft_pricer *pricer;
    struct weft_fixed fixed; /* what the configuration says of layouts */
    int32_t mini_batches;
    int32_t steps;                /* of the optimizer, in an iteration */
    int32_t n_devices;            /* of a node, of those that are used */
    struct weft_call_plan *tried; /* as candidates */
    int32_t n_tried, room;
    /* of each call, 0: of both that train, fused: layouts that were priced, and
     * these wherever their meshes can be */
    struct weft_option *variant[WEFT_MAX_CALLS], *option[WEFT_MAX_CALLS];
    int32_t n_variants[WEFT_MAX_CALLS], variant_room[WEFT_MAX_CALLS];
    int32_t n_options[WEFT_MAX_CALLS], option_room[WEFT_MAX_CALLS];
    int32_t call_of[WEFT_MAX_CALLS]; /* of the search's calls, in the graph */
    int32_t fused[2];                /* the two calls that train */
    int32_t fused_call_of[WEFT_MAX_CALLS];    /* call_of where they are one */
    struct weft_option *copy[WEFT_MAX_CALLS]; /* the options of that search */
    bool moves; /* layouts are of plans whose last samples move */
    struct weft_finding *moved; /* the same with such layouts; NULL: none */
    int64_t n_pairs;            /* of their layouts that were bounded */
    struct weft_candidates candidates[WEFT_MAX_CALLS];
    /* no plan with a layout that was left out, as too slow or not priced, has a
     * shorter period; INFINITY: none was */
    double left_out_s;
    int64_t n_priced;   /* calls' layouts */
    int64_t n_left_out; /* calls' layouts whose recording is too large */
    bool stopped;       /* before all were priced */
};

/* Prices layouts. Close it also after an error. */
int weft_finding_open(const struct weft_config *config,
                      const struct weft_plan_needs *needs,
                      const struct weft_find *find, struct weft_finding *out,
                      struct weft_err *err);
void weft_finding_close(struct weft_finding *f);

/* ---- Parts of weft_finding_open() ---- */

/* Without a layout. Errors: those of weft_pricer_create(). */
int weft_finding_begin(const struct weft_config *config,
                       const struct weft_plan_needs *needs,
                       const struct weft_find *find, struct weft_finding *out,
                       struct weft_err *err);

/* Says why no layout of a placed call was priced, if that is known: the search
 * was stopped, or recordings are too large. */
int weft_finding_check_priced(const struct weft_finding *f, int32_t call,
                              struct weft_err *err);
/* Whether no more layouts are to be priced. */
bool weft_finding_stops(const struct weft_finding *f);
void weft_finding_tell(const struct weft_finding *f,
                       enum weft_find_stage stage, int64_t done, int64_t of);
/* Makes room for one more element. */
bool weft_finding_grow(void *array, int32_t n, int32_t *room, size_t size);
struct weft_option weft_finding_option(const struct weft_finding *f,
                                       int32_t call,
                                       const struct weft_call_plan *plan,
                                       const struct weft_priced *priced);
/* Without options, if none are placed. */
void weft_finding_set_problem(struct weft_finding *f,
                              struct weft_search_problem *p);
void weft_finding_free_options(struct weft_finding *f);
/* candidates.c: lists a layout; whether it is known what the listed ones take
 * at least; prices some of each call; prices all that good plans can have;
 * leaves out those that it was stopped before. Errors: those of
 * weft_pricer_price(), of weft_search_run(). */
int weft_candidate_add(struct weft_finding *f, int32_t call,
                       const struct weft_call_plan *at, struct weft_err *err);
bool weft_candidates_bounded(const struct weft_finding *f);
int weft_candidates_probe(struct weft_finding *f, struct weft_err *err);
int weft_candidates_price(struct weft_finding *f, struct weft_err *err);
int weft_candidates_leave(struct weft_finding *f, struct weft_err *err);

/* ---- The search ---- */

/* The search's problem: all that was priced, wherever it can be; and without
 * options that no plan needs. */
int weft_finding_place(struct weft_finding *f, struct weft_search_problem *p,
                       int64_t *options_out, struct weft_err *err);
int weft_finding_prune(struct weft_finding *f, struct weft_search_problem *p,
                       struct weft_err *err);
/* Both. */
int weft_finding_problem(struct weft_finding *f,
                         struct weft_search_problem *p, int64_t *options_out,
                         struct weft_err *err);
/* Adds a layout of a call. Errors: WEFT_ENOMEM. */
int weft_finding_add(struct weft_finding *f, int32_t call,
                     const struct weft_option *o, struct weft_err *err);

/* Whether training can be fused: two models are trained, on devices of one
 * kind, by no schedule of a file but where the configuration says so. Sets
 * which. */
bool weft_finding_fuses(struct weft_finding *f);
/* Their layouts that fit one another and take less than both after one another,
 * before they are placed. Errors: WEFT_ENOMEM. */
int weft_finding_pair(struct weft_finding *f, struct weft_err *err);
/* The problem with both trainings as one call, of that with all options of the
 * others; without those that no plan needs. There is a pair. Errors: those of
 * weft_search_prune(). */
int weft_finding_fuse(struct weft_finding *f,
                      const struct weft_search_problem *plain,
                      struct weft_search_problem *out, struct weft_err *err);
/* Seconds of an iteration in which a device of the option works. */
double weft_finding_busy_s(const struct weft_option *o);

/* Whether it is known what plans take at least whose last samples move: a call
 * generates, on devices of one kind. Then what was priced, and paired, as such
 * plans have it, in f->moved. Where no layout lets samples move it has no
 * options for a call, and is no problem. Errors: those of
 * weft_g_layout_init(), of weft_overlap_bound(). */
bool weft_finding_moves(const struct weft_finding *f);
int weft_finding_move(struct weft_finding *f, struct weft_err *err);
bool weft_finding_can_move(const struct weft_finding *f);

/* Sets the calls of a plan, and whether training is fused, to the options of a
 * choice. */
void weft_finding_choose(const struct weft_finding *f,
                         const struct weft_search_problem *p,
                         const int32_t *choice, struct weft_plan *plan);

#endif
