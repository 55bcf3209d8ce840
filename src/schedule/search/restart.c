/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A restart keeps a pool of rules of list scheduling, draws and mutates them,
 * and improves the schedules of the best rules by walks (tabu search) and by
 * annealing. When the makespan has met its bound, or after a share of the
 * evaluations, the capacity is set below the best schedule's peak, and the
 * search goes on for less memory.
 */
#include "schedule/search/restart.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

enum {
    BUILDS_PER_TURN = 64,
    /* trials of the first annealing, and of a later one */
    COOLING_PER_OP = 1000,
    COOLINGS = 16, /* at most the share divided by this */
    /* a construction counts as one evaluation for so many operations */
    OPS_PER_EVALUATION = 4,
    /* evaluations within which a new beginning must meet the bound */
    STUCK_COOLINGS = 2,
    /* When a phase that does not meet the bound ends, in percent of the
     * evaluations. */
    LOOSE_SHARE = 60,
    FREE_SHARE = 60, /* without a capacity */
    CAPACITY_SHARE = 90
};

/* Capacities to begin with, as multiples of the one asked for. */
static const double LEAST_ROOM = 1.02, MORE_ROOM = 0.5, ROOM_STEP = 1.15;

const struct weft_jobshop_best *weft_jobshop_restart_best(
    const struct weft_jobshop_restart *r)
{
    return &r->best;
}

/* Mean time of an operation per activation of the largest micro-batch. */
static double time_per_activation(const struct weft_jobshop *shop)
{
    double time = 0, most = 0;
    for (int32_t x = 0; x < shop->n_ops; x++) {
        time += shop->op[x].time;
        most = fmax(most, shop->op[x].hold);
    }
    return most > 0 ? time / shop->n_ops / most : 1;
}

int weft_jobshop_restart_create(const struct weft_jobshop_goal *goal,
                                int32_t index,
                                struct weft_jobshop_restart **out,
                                struct weft_err *err)
{
    const struct weft_jobshop *shop = &goal->pair->forward;
    struct weft_jobshop_restart *r = weft_alloc(1, sizeof *r);
    if (!r)
        return weft_err_nomem(err, "a restart", sizeof *r);
    r->goal = goal;
    r->problem = shop->problem;
    r->index = index;
    r->phase = goal->capacity > 0 ? WEFT_JOBSHOP_LOOSE
                                  : WEFT_JOBSHOP_MAKESPAN;
    r->rng = (struct weft_jobshop_rng){.seed = goal->seed,
                                       .stream = (uint32_t) index};
    r->best.makespan = r->best.peak = INFINITY;
    r->near_makespan = r->near_excess = INFINITY;
    r->least_room = LEAST_ROOM;
    weft_jobshop_restart_begin(r);
    size_t n = (size_t) shop->n_ops;
    r->list[0] = weft_jobshop_list_create(shop);
    r->list[1] = weft_jobshop_list_create(&goal->pair->back);
    r->best.sequence = weft_alloc(n, sizeof(int32_t));
    r->sequence = weft_alloc(n, sizeof(int32_t));
    r->move = weft_alloc(2 * n, sizeof(int32_t));
    r->elite = weft_alloc(n, sizeof(int32_t));
    r->loose = weft_alloc(n, sizeof(int32_t));
    r->near = weft_alloc(n, sizeof(int32_t));
    r->annealed = weft_alloc(n, sizeof(int32_t));
    r->most_cooling = goal->share / COOLINGS + 1;
    r->first_cooling = r->cooling = weft_min64(
        (int64_t) COOLING_PER_OP * shop->n_ops, r->most_cooling);
    r->time_per_activation = time_per_activation(shop);
    int rc = 0;
    if (!r->list[0] || !r->list[1] || !r->best.sequence || !r->sequence
        || !r->move || !r->elite || !r->loose || !r->near || !r->annealed)
        rc = weft_err_nomem(err, "a restart", n * sizeof(double));
    for (int i = 0; i <= WEFT_JOBSHOP_POOL && !rc; i++)
        rc = weft_jobshop_rule_init(&r->pool[i].rule, r->problem, err);
    if (!rc)
        rc = weft_jobshop_walk_init(&r->walk, shop, err);
    if (rc)
        weft_jobshop_restart_free(r);
    else
        *out = r;
    return rc;
}

void weft_jobshop_restart_free(struct weft_jobshop_restart *r)
{
    if (!r)
        return;
    weft_jobshop_list_free(r->list[0]);
    weft_jobshop_list_free(r->list[1]);
    for (int i = 0; i <= WEFT_JOBSHOP_POOL; i++)
        weft_jobshop_rule_release(&r->pool[i].rule);
    weft_jobshop_walk_release(&r->walk);
    weft_free(r->best.sequence);
    weft_free(r->sequence);
    weft_free(r->move);
    weft_free(r->elite);
    weft_free(r->loose);
    weft_free(r->near);
    weft_free(r->annealed);
    weft_free(r);
}

void weft_jobshop_restart_begin(struct weft_jobshop_restart *r)
{
    /* The capacity is less tight where the bound was not met. */
    if (!weft_jobshop_at_most(r->loose_makespan, r->goal->makespan))
        r->least_room = fmax(r->least_room,
                             ROOM_STEP * r->capacity / r->goal->capacity);
    r->capacity = r->goal->capacity
                * weft_jobshop_uniform(&r->rng, r->least_room,
                                       r->least_room + MORE_ROOM);
    r->begun = r->best.evaluations;
    r->n_pool = 0;
    r->has_elite = false;
    r->elite_makespan = r->loose_makespan = r->loose_peak = INFINITY;
    memset(r->spent, 0, sizeof r->spent);
}

bool weft_jobshop_restart_ended(const struct weft_jobshop_restart *r)
{
    return r->best.evaluations >= r->goal->share
        || (r->goal->cut && r->goal->cut(r->goal->ctx, r->index));
}

bool weft_jobshop_restart_stopped(const struct weft_jobshop_restart *r)
{
    return r->best.reached || r->best.evaluations >= r->until
        || weft_jobshop_restart_ended(r);
}

/* ---- Pool -------------------------------------------------------------- */

/* Builds a rule's schedule into r->sequence. Returns its makespan; INFINITY
 * when nothing could be built. */
static double build(struct weft_jobshop_restart *r,
                    const struct weft_jobshop_rule *rule, double enough)
{
    const struct weft_jobshop_pair *pair = r->goal->pair;
    r->best.evaluations += 1 + pair->forward.n_ops / OPS_PER_EVALUATION;
    return weft_jobshop_list_build(r->list[rule->reversed], rule,
                                   rule->reversed ? pair->head : pair->tail,
                                   r->capacity, enough, r->sequence);
}

void weft_jobshop_restart_copy(const struct weft_jobshop_restart *r,
                               int32_t *to, const int32_t *from)
{
    const struct weft_jobshop *shop = &r->goal->pair->forward;
    memcpy(to, from,
           (size_t) shop->device_at[shop->n_devices] * sizeof(int32_t));
}

void weft_jobshop_restart_set_elite(struct weft_jobshop_restart *r,
                                    double makespan)
{
    weft_jobshop_restart_copy(r, r->elite, r->sequence);
    if (makespan < r->elite_makespan)
        r->elite_idle = 0;
    r->elite_makespan = makespan;
    r->has_elite = true;
}

static void set_capacity(struct weft_jobshop_restart *r, double capacity)
{
    r->capacity = capacity;
    r->elite_makespan = INFINITY;
    r->pool_is_stale = true;
}

/* Evaluates the pool's rules anew under another capacity. */
static void refresh_pool(struct weft_jobshop_restart *r)
{
    for (int32_t i = 0; i < r->n_pool && r->pool_is_stale; i++)
        r->pool[i].makespan = build(r, &r->pool[i].rule, INFINITY);
    r->pool_is_stale = false;
}

bool weft_jobshop_restart_build_better(struct weft_jobshop_restart *r)
{
    refresh_pool(r);
    int32_t k = weft_jobshop_below(&r->rng, r->n_pool);
    for (int32_t i = 0; i < 2; i++) {
        int32_t other = weft_jobshop_below(&r->rng, r->n_pool);
        if (r->pool[other].makespan < r->pool[k].makespan)
            k = other;
    }
    return build(r, &r->pool[k].rule, INFINITY) < INFINITY;
}

void weft_jobshop_restart_come_near(struct weft_jobshop_restart *r,
                                    const int32_t *sequence, double makespan,
                                    double excess)
{
    weft_jobshop_restart_copy(r, r->near, sequence);
    r->near_makespan = makespan;
    r->near_excess = excess;
}

static void enter(struct weft_jobshop_restart *r,
                  enum weft_jobshop_phase phase)
{
    if (r->near_makespan == INFINITY && r->loose_makespan < INFINITY)
        weft_jobshop_restart_come_near(r, r->loose, r->loose_makespan,
                                       INFINITY);
    r->phase = phase;
    memset(r->spent, 0, sizeof r->spent);
    set_capacity(r, phase == WEFT_JOBSHOP_MEMORY ? r->best.peak * (1 - 1e-6)
                                                 : r->goal->capacity);
}

double weft_jobshop_restart_shortest(const struct weft_jobshop_restart *r)
{
    return r->phase == WEFT_JOBSHOP_LOOSE ? r->loose_makespan
                                          : r->best.makespan;
}

static bool is_best(const struct weft_jobshop_restart *r, double makespan,
                    double peak)
{
    if (r->goal->capacity > 0
        && !weft_jobshop_at_most(peak, r->goal->capacity))
        return false;
    return !weft_jobshop_at_most(r->best.makespan, makespan)
        || (weft_jobshop_at_most(makespan, r->best.makespan)
            && peak < r->best.peak);
}

static void keep_best(struct weft_jobshop_restart *r, double makespan,
                      double peak)
{
    const struct weft_jobshop_goal *goal = r->goal;
    r->n_kept++;
    r->best.makespan = makespan;
    r->best.peak = peak;
    weft_jobshop_restart_copy(r, r->best.sequence, r->sequence);
    if (goal->found)
        goal->found(goal->ctx, makespan, peak);
    r->best.reached = weft_jobshop_at_most(makespan, goal->makespan)
                   && weft_jobshop_at_most(peak, goal->peak);
}

/* Keeps a schedule that is shorter than the best, or as short with a lower
 * peak. Once the bound is met the capacity is lowered step by step, down to
 * the one asked for. */
static void keep_loose(struct weft_jobshop_restart *r, double makespan,
                       double peak)
{
    weft_jobshop_restart_copy(r, r->loose, r->sequence);
    r->n_kept++;
    r->loose_makespan = makespan;
    r->loose_peak = peak;
    weft_jobshop_restart_set_elite(r, makespan);
    if (weft_jobshop_at_most(makespan, r->goal->makespan))
        set_capacity(r, fmax(r->goal->capacity, peak * (1 - 1e-6)));
}

void weft_jobshop_restart_keep(struct weft_jobshop_restart *r,
                               double makespan)
{
    double peak = weft_jobshop_peak(&r->goal->pair->forward, r->sequence);
    bool shorter = !weft_jobshop_at_most(weft_jobshop_restart_shortest(r),
                                         makespan);
    bool best = is_best(r, makespan, peak);
    if (best)
        keep_best(r, makespan, peak);
    if (best
        && (r->phase == WEFT_JOBSHOP_MEMORY
            || weft_jobshop_at_most(makespan, r->goal->makespan))) {
        weft_jobshop_restart_set_elite(r, makespan);
        enter(r, WEFT_JOBSHOP_MEMORY);
    } else if (r->phase == WEFT_JOBSHOP_LOOSE) {
        if (shorter
            || (weft_jobshop_at_most(makespan, r->loose_makespan)
                && peak < r->loose_peak))
            keep_loose(r, makespan, peak);
    } else if (shorter) {
        weft_jobshop_restart_set_elite(r, makespan);
    }
}

static int32_t worst(const struct weft_jobshop_restart *r)
{
    int32_t k = 0;
    for (int32_t i = 1; i < r->n_pool; i++)
        if (r->pool[i].makespan >= r->pool[k].makespan)
            k = i;
    return k;
}

/* Adds a rule: a new one, or a mutation of one in the pool. */
static void try_rule(struct weft_jobshop_restart *r)
{
    refresh_pool(r);
    double size = r->goal->makespan;
    struct weft_jobshop_pooled *p = &r->pool[WEFT_JOBSHOP_POOL];
    int32_t at = r->n_pool < WEFT_JOBSHOP_POOL ? r->n_pool : worst(r);
    if (r->n_pool < WEFT_JOBSHOP_POOL
        || weft_jobshop_below(&r->rng, 8) == 0) {
        weft_jobshop_rule_draw(&p->rule, r->problem, size, &r->rng);
    } else {
        int32_t from = weft_jobshop_below(&r->rng, r->n_pool);
        weft_jobshop_rule_copy(&p->rule, &r->pool[from].rule, r->problem);
        weft_jobshop_rule_mutate(&p->rule, r->problem, size, &r->rng);
        if (r->pool[from].makespan > r->pool[at].makespan - size * 1e-9
            || weft_jobshop_below(&r->rng, 2))
            at = from; /* the child takes its parent's place */
    }
    bool full = r->n_pool == WEFT_JOBSHOP_POOL;
    double enough = full ? r->pool[at].makespan : INFINITY;
    double makespan = build(r, &p->rule, enough * (1 + WEFT_JOBSHOP_SLACK));
    if (makespan == INFINITY && full)
        return;
    weft_jobshop_rule_copy(&r->pool[at].rule, &p->rule, r->problem);
    r->pool[at].makespan = makespan;
    if (!full)
        r->n_pool++;
    if (makespan < INFINITY
        && weft_jobshop_at_most(makespan, r->best.makespan))
        weft_jobshop_restart_keep(r, makespan);
}

/* ---- Turns ------------------------------------------------------------- */

/* Whether annealing makes sense: there is a schedule that is short enough and
 * holds too much, or less memory may be possible. */
static bool may_anneal(const struct weft_jobshop_restart *r)
{
    switch (r->phase) {
    case WEFT_JOBSHOP_LOOSE:
        return weft_jobshop_at_most(r->loose_makespan, r->goal->makespan);
    case WEFT_JOBSHOP_MAKESPAN:
        return !weft_jobshop_at_most(r->best.makespan, r->near_makespan);
    default:
        return true;
    }
}

/* Chooses the activity that has used the smallest part of its share in this
 * phase. */
static enum weft_jobshop_turn next_turn(const struct weft_jobshop_restart *r)
{
    /* Shares of constructions, walks, annealing, and trades of time for
     * memory. */
    static const int64_t shares[][WEFT_JOBSHOP_TURNS] = {
        [WEFT_JOBSHOP_LOOSE] = {1, 3, 4, 0},
        [WEFT_JOBSHOP_MAKESPAN] = {1, 3, 8, 8},
        [WEFT_JOBSHOP_MEMORY] = {1, 2, 8, 0}};
    const int64_t *share = shares[r->phase];
    bool anneals = may_anneal(r), memory = r->phase == WEFT_JOBSHOP_MEMORY;
    bool trades = r->phase == WEFT_JOBSHOP_MAKESPAN && r->goal->memory_binds
               && r->near_makespan < INFINITY;
    const bool may[WEFT_JOBSHOP_TURNS] = {true, !memory || !anneals,
                                          anneals && !trades, trades};
    int64_t spent[WEFT_JOBSHOP_TURNS];
    memcpy(spent, r->spent, sizeof spent);
    /* Annealing and trades are charged before they begin. */
    spent[WEFT_JOBSHOP_ANNEAL] += r->cooling;
    spent[WEFT_JOBSHOP_TRADE] += r->cooling;
    enum weft_jobshop_turn next = WEFT_JOBSHOP_BUILD;
    for (enum weft_jobshop_turn k = 0; k < WEFT_JOBSHOP_TURNS; k++)
        if (may[k] && spent[k] * share[next] < spent[next] * share[k])
            next = k;
    return next;
}

static void take_turn(struct weft_jobshop_restart *r)
{
    enum weft_jobshop_turn turn = next_turn(r);
    enum weft_jobshop_phase phase = r->phase;
    int64_t before = r->best.evaluations, kept = r->n_kept;
    switch (turn) {
    case WEFT_JOBSHOP_WALK:
        weft_jobshop_restart_walk(r);
        break;
    case WEFT_JOBSHOP_ANNEAL:
        weft_jobshop_restart_anneal(r);
        break;
    case WEFT_JOBSHOP_TRADE:
        weft_jobshop_restart_trade(r);
        break;
    default:
        for (int i = 0;
             i < BUILDS_PER_TURN && !weft_jobshop_restart_stopped(r); i++)
            try_rule(r);
    }
    if (r->phase != phase || r->begun >= before)
        return;
    /* An activity that found something better is charged half. */
    if (r->n_kept > kept)
        r->spent[turn] /= 2;
    else
        r->spent[turn] += r->best.evaluations - before;
}

/* Whether the phase has used its share. Where memory alone raises the bound, a
 * schedule that is short enough but holds too much does not end it. */
static bool is_over(const struct weft_jobshop_restart *r)
{
    int64_t share = r->goal->capacity <= 0 ? FREE_SHARE : CAPACITY_SHARE;
    if (r->phase == WEFT_JOBSHOP_LOOSE)
        share = r->goal->memory_binds && r->loose_makespan < INFINITY
                  ? 0
                  : LOOSE_SHARE;
    else if (r->phase == WEFT_JOBSHOP_MEMORY || r->best.makespan == INFINITY)
        return false;
    return r->best.evaluations > r->goal->share / 100 * share;
}

/* Whether this beginning should be given up. */
static bool is_stuck(const struct weft_jobshop_restart *r)
{
    return r->phase == WEFT_JOBSHOP_LOOSE
        && !weft_jobshop_at_most(r->loose_makespan, r->goal->makespan)
        && r->best.evaluations - r->begun > STUCK_COOLINGS * r->cooling;
}

void weft_jobshop_restart_run(struct weft_jobshop_restart *r,
                              int64_t evaluations)
{
    r->until += evaluations;
    while (!weft_jobshop_restart_stopped(r)) {
        take_turn(r);
        if (is_over(r))
            enter(r, r->phase == WEFT_JOBSHOP_LOOSE ? WEFT_JOBSHOP_MAKESPAN
                                                    : WEFT_JOBSHOP_MEMORY);
        else if (is_stuck(r))
            weft_jobshop_restart_begin(r);
    }
}
