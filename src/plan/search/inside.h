/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the search, shared by its parts. */
#ifndef WEFT_PLAN_SEARCH_INSIDE_H
#define WEFT_PLAN_SEARCH_INSIDE_H

#include "plan/search/search.h"

enum {
    WEFT_SEARCH_CYCLES = 64, /* more only make the bound better */
    WEFT_SEARCH_WEIGHTS = 9  /* mixtures of a cycle's bound and that of all
                                devices together */
};

/* Calls that wait for one another around `height` iterations. One of them may
 * read what another makes, `maker`, while it does: when the first `part` of
 * that is there, the reader has all but that left to do. */
struct weft_search_cycle {
    uint32_t calls;
    uint32_t moves; /* those that weights move to first */
    uint32_t work;  /* others, which all are at work in the rest of it */
    int32_t height;
    int32_t maker, reader; /* -1: there are none */
    int32_t part;          /* of WEFT_SEARCH_PARTS */
};

struct weft_search {
    const struct weft_search_problem *p;
    int32_t
        trainer[WEFT_MAX_CALLS]; /* the call that trains a call's role; -1:
                                        none */
    int32_t by_priority[WEFT_MAX_CALLS]; /* calls, the highest first */
    uint32_t moving;                     /* calls whose samples move */
    int32_t timing; /* the call by which iterations are timed: the first that
                       trains, or else the last */
    int32_t n_cycles;
    struct weft_search_cycle cycle[WEFT_SEARCH_CYCLES];
    /* least of each call's part in each mixture */
    double least[WEFT_SEARCH_CYCLES][WEFT_SEARCH_WEIGHTS][WEFT_MAX_CALLS];
};

/* The weight of a cycle's bound in mixture i; the rest is that of all devices
 * together: any such mean of two lower bounds is one. */
static inline double weft_search_weight(int32_t i)
{
    return (double) i / (WEFT_SEARCH_WEIGHTS - 1);
}

/* Seconds of a call that a cycle cannot do without. */
double weft_search_length(const struct weft_search_cycle *cycle, int32_t call,
                          const struct weft_option *o);
/* What an option of a call adds to mixture w of cycle k. */
double weft_search_part(const struct weft_search *s, int32_t k, int32_t w,
                        int32_t call, const struct weft_option *o);

static inline const struct weft_option *weft_search_chosen(
    const struct weft_search *s, const int32_t *choice, int32_t call)
{
    return &s->p->call[call].option[choice[call]];
}

/* The number of a node's kind. */
static inline int32_t weft_search_kind(const struct weft_search *s,
                                       int32_t node)
{
    int32_t k = 0;
    while (k < WEFT_CLUSTER_KINDS - 1 && s->p->kind_ends[k] > 0
           && s->p->kind_ends[k] <= node)
        k++;
    return k;
}

/* Seconds of work of an option's device on a node of a kind. */
static inline double weft_search_work(const struct weft_option *o,
                                      int32_t kind)
{
    return o->share * (1 + (double) o->uneven[kind]) * o->seconds;
}

/* The layout that an option of a call has for a role of the call. */
static inline const struct weft_call_plan *weft_search_layout(
    const struct weft_search *s, int32_t call, const struct weft_option *o,
    int32_t role)
{
    const struct weft_search_call *c = &s->p->call[call];
    return c->two && role == c->second ? &o->with : &o->plan;
}

/* Seconds that weights move before a call; 0: they do not. */
double weft_search_move(const struct weft_search *s, const int32_t *choice,
                        int32_t call);
/* The same between any two layouts of a role. */
double weft_search_way(const struct weft_search *s, int32_t role,
                       const struct weft_call_plan *from,
                       const struct weft_call_plan *to);
/* Whether option b of a call can be left out as it has a. */
bool weft_search_dominates(const struct weft_search *s, int32_t call,
                           const struct weft_option *a,
                           const struct weft_option *b);
/* Whether a value is better: it fits, or exceeds memory less; then it is
 * shorter. */
bool weft_search_better(const struct weft_search *s,
                        const struct weft_search_value *a,
                        const struct weft_search_value *b);
bool weft_search_covers(const struct weft_mesh *mesh, int32_t node,
                        int32_t device);

static inline bool weft_search_same_mesh(const struct weft_mesh *a,
                                         const struct weft_mesh *b)
{
    return a->node == b->node && a->n_nodes == b->n_nodes
        && a->device == b->device && a->n_devices == b->n_devices;
}

bool weft_search_overlap(const struct weft_mesh *a,
                         const struct weft_mesh *b);
/* No order of tasks makes a choice's period shorter. */
double weft_search_bound(const struct weft_search *s, const int32_t *choice);
/* The period of a choice. */
double weft_search_play(const struct weft_search *s, const int32_t *choice);
/* The most bytes of a device, with the first n calls of `order` alone. */
double weft_search_bytes(const struct weft_search *s, const int32_t *choice,
                         const int32_t *order, int32_t n);

/* Whether devices of a problem can be exchanged (mirror.c). */
bool weft_search_has_mirrors(const struct weft_search_problem *p);
/* Whether an option on a mesh is needless after the first n calls of `order`
 * have theirs: exchanged devices make an option of it that is nearer to the
 * first device. Of a problem that has mirrors. */
bool weft_search_is_mirrored(const struct weft_search *s,
                             const int32_t *choice, const int32_t *order,
                             int32_t n, const struct weft_mesh *mesh);

/* Visits the images of a choice that are other choices of the same devices of
 * gangs. Of a problem that has mirrors. Returns whether these are all, as there
 * are not too many. */
bool weft_search_images(const struct weft_search *s, const int32_t *choice,
                        void (*visit)(void *ctx, const int32_t *choice),
                        void *ctx);

/* The value of a choice whose period is its bound, and takes no playing: it is
 * no longer than the period that weft_search_set_period() sets. */
struct weft_search_value weft_search_unplayed(const struct weft_search *s,
                                              const int32_t *choice);
void weft_search_set_period(const struct weft_search *s,
                            const int32_t *choice,
                            struct weft_search_value *v);
/* Whether a choice with this value, or one with a longer period, can be the
 * best or among the finalists. */
bool weft_search_counts(const struct weft_search *s,
                        const struct weft_search_value *v,
                        const struct weft_search_result *best);

/* Counts an evaluation of a choice, which may be the best or among the
 * finalists. */
void weft_search_consider(const struct weft_search *s, const int32_t *choice,
                          const struct weft_search_value *v,
                          struct weft_search_result *best);

/* The parts of weft_search_run(); each makes *best better. */
void weft_search_greedy(const struct weft_search *s,
                        const struct weft_search_how *how,
                        struct weft_search_result *best);
/* Errors: WEFT_ENOMEM, those of how->spread. */
int weft_search_anneal(const struct weft_search *s,
                       const struct weft_search_how *how,
                       struct weft_search_result *best, struct weft_err *err);
/* Looks at every choice; sets best->bound, too. Errors: WEFT_EINVAL, there are
 * too many. */
int weft_search_every(const struct weft_search *s,
                      const struct weft_search_how *how,
                      struct weft_search_result *best, struct weft_err *err);
/* Sets best->bound, too; without branches, to what needs none. Errors:
 * WEFT_ENOMEM. */
int weft_search_branch(const struct weft_search *s,
                       const struct weft_search_how *how,
                       struct weft_search_result *best, struct weft_err *err);

#endif
