/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A restart draws and mutates rules of list scheduling in a pool, and improves
 * what the best of them build by tabu search: swaps of neighbours on a
 * critical path, the one that promises most, never soon the reverse of one
 * just done. What is short enough but holds too much is annealed, each time
 * more slowly. When the makespan has met its bound, or after a share of the
 * evaluations, the capacity goes below the best schedule's peak.
 */
#include <math.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/err.h"
#include "plan/schedule_shop.h"

enum {
    N_POOL = 24,
    N_TABU = 1 << 14,
    BUILDS_PER_TURN = 64,
    PATIENCE_SWAPS = 2000,
    PATIENCE_WALKS = 100,
    WALK_SHARE = 2,        /* of evaluations, to one of constructions */
    SETTLE_SHARE = 8,      /* where there is something to anneal */
    COOLING_STEP = 1024,   /* trials at one temperature */
    COOLING_PER_OP = 2000, /* trials of the first annealing; of a later one */
    COOLINGS = 16,         /* at most the share through this */
    PATIENCE_REHEATS = 4,
    OPS_PER_EVALUATION = 4, /* a construction counts one for so many */
    /* When a phase that does not meet the bound ends, of 100 evaluations. */
    LOOSE_SHARE = 10,
    FREE_SHARE = 60, /* without a capacity; odd ones coming down to it */
    CAPACITY_SHARE = 90
};

enum phase {
    LOOSE,    /* a short schedule, whatever it holds, to anneal */
    MAKESPAN, /* the shortest within the capacity */
    MEMORY    /* no longer, but less memory */
};

/* Temperatures, of activations of the largest micro-batch. */
static const double COLD = 0.05, WARM = 2, HOT = 10;

struct pooled {
    struct weft_shop_rule rule;
    double makespan;
};

struct weft_shop_restart {
    const struct weft_shop_goal *goal;
    const struct weft_schedule_problem *problem;
    int32_t index;
    struct weft_shop_rng rng;
    struct weft_shop_list *list[2]; /* forward, reversed */
    struct weft_shop_walk walk;
    struct pooled pool[N_POOL + 1]; /* the last: being tried */
    int32_t n_pool;
    enum phase phase;
    double capacity; /* now; 0: none */
    struct weft_shop_best best;
    int32_t *elite;        /* (n_ops) where walks go on; may hold too much */
    double elite_makespan; /* INFINITY: of another capacity, or none */
    int32_t elite_idle;    /* walks from it that led to nothing shorter */
    bool has_elite;
    int32_t *loose; /* (n_ops) of the first phase */
    double loose_makespan, loose_peak;
    int32_t *settled;  /* (n_ops) of the annealing now: the least excess */
    int64_t cooling;   /* trials of the next annealing */
    int64_t owed;      /* evaluations due to it */
    int32_t *sequence; /* (n_ops) */
    int32_t *path;     /* (n_ops) candidates: the second of each pair */
    int64_t tabu[N_TABU], iteration;
    int64_t until; /* evaluations of this run */
};

const struct weft_shop_best *weft_shop_restart_best(
    const struct weft_shop_restart *r)
{
    return &r->best;
}

int weft_shop_restart_create(const struct weft_shop_goal *goal, int32_t index,
                             struct weft_shop_restart **out,
                             struct weft_err *err)
{
    const struct weft_shop *shop = &goal->pair->forward;
    struct weft_shop_restart *r = weft_alloc(1, sizeof *r);
    if (!r)
        return weft_err_nomem(err, "a restart", sizeof *r);
    r->goal = goal;
    r->problem = shop->problem;
    r->index = index;
    r->phase = goal->capacity > 0 ? LOOSE : MAKESPAN;
    r->rng = (struct weft_shop_rng){.seed = goal->seed,
                                    .stream = (uint32_t) index};
    r->best.makespan = r->best.peak = INFINITY;
    r->elite_makespan = r->loose_makespan = r->loose_peak = INFINITY;
    size_t n = (size_t) shop->n_ops;
    r->list[0] = weft_shop_list_create(shop);
    r->list[1] = weft_shop_list_create(&goal->pair->back);
    r->best.sequence = weft_alloc(n, sizeof(int32_t));
    r->sequence = weft_alloc(n, sizeof(int32_t));
    r->path = weft_alloc(n, sizeof(int32_t));
    r->elite = weft_alloc(n, sizeof(int32_t));
    r->loose = weft_alloc(n, sizeof(int32_t));
    r->settled = weft_alloc(n, sizeof(int32_t));
    r->cooling = weft_min64((int64_t) COOLING_PER_OP * shop->n_ops,
                            goal->share / COOLINGS + 1);
    int rc = 0;
    if (!r->list[0] || !r->list[1] || !r->best.sequence || !r->sequence
        || !r->path || !r->elite || !r->loose || !r->settled)
        rc = weft_err_nomem(err, "a restart", n * sizeof(double));
    for (int i = 0; i <= N_POOL && !rc; i++)
        rc = weft_shop_rule_init(&r->pool[i].rule, r->problem, err);
    if (!rc)
        rc = weft_shop_walk_init(&r->walk, shop, err);
    if (rc)
        weft_shop_restart_free(r);
    else
        *out = r;
    return rc;
}

void weft_shop_restart_free(struct weft_shop_restart *r)
{
    if (!r)
        return;
    weft_shop_list_free(r->list[0]);
    weft_shop_list_free(r->list[1]);
    for (int i = 0; i <= N_POOL; i++)
        weft_shop_rule_release(&r->pool[i].rule);
    weft_shop_walk_release(&r->walk);
    weft_free(r->best.sequence);
    weft_free(r->sequence);
    weft_free(r->path);
    weft_free(r->elite);
    weft_free(r->loose);
    weft_free(r->settled);
    weft_free(r);
}

static bool at_most(double x, double y)
{
    return x <= y * (1 + WEFT_SHOP_SLACK);
}

/* Nothing is left to spend, or the search was cut. */
static bool ended(const struct weft_shop_restart *r)
{
    return r->best.evaluations >= r->goal->share
        || (r->goal->cut && r->goal->cut(r->goal->ctx, r->index));
}

static bool stopped(const struct weft_shop_restart *r)
{
    return r->best.reached || r->best.evaluations >= r->until || ended(r);
}

/* ---- Pool ----------------------------------------------------------------- */

static double build(struct weft_shop_restart *r,
                    const struct weft_shop_rule *rule, double enough)
{
    const struct weft_shop_pair *pair = r->goal->pair;
    r->best.evaluations += 1 + pair->forward.n_ops / OPS_PER_EVALUATION;
    return weft_shop_list_build(r->list[rule->reversed], rule,
                                rule->reversed ? pair->head : pair->tail,
                                r->capacity, enough, r->sequence);
}

static void copy(const struct weft_shop_restart *r, int32_t *to,
                 const int32_t *from)
{
    const struct weft_shop *shop = &r->goal->pair->forward;
    memcpy(to, from,
           (size_t) shop->device_at[shop->n_devices] * sizeof(int32_t));
}

/* From r->sequence walks go on. */
static void set_elite(struct weft_shop_restart *r, double makespan)
{
    copy(r, r->elite, r->sequence);
    if (makespan < r->elite_makespan)
        r->elite_idle = 0;
    r->elite_makespan = makespan;
    r->has_elite = true;
}

/* The same rules under another capacity. */
static void set_capacity(struct weft_shop_restart *r, double capacity)
{
    r->capacity = capacity;
    r->elite_makespan = INFINITY;
    for (int32_t i = 0; i < r->n_pool; i++)
        r->pool[i].makespan = build(r, &r->pool[i].rule, INFINITY);
}

static void enter(struct weft_shop_restart *r, enum phase phase)
{
    r->phase = phase;
    set_capacity(r, phase == MEMORY ? r->best.peak * (1 - 1e-6)
                                    : r->goal->capacity);
}

/* The makespan to beat. */
static double shortest(const struct weft_shop_restart *r)
{
    return r->phase == LOOSE ? r->loose_makespan : r->best.makespan;
}

static bool is_best(const struct weft_shop_restart *r, double makespan,
                    double peak)
{
    if (r->goal->capacity > 0 && !at_most(peak, r->goal->capacity))
        return false;
    return !at_most(r->best.makespan, makespan)
        || (at_most(makespan, r->best.makespan) && peak < r->best.peak);
}

static void keep_best(struct weft_shop_restart *r, double makespan,
                      double peak)
{
    const struct weft_shop_goal *goal = r->goal;
    r->best.makespan = makespan;
    r->best.peak = peak;
    copy(r, r->best.sequence, r->sequence);
    if (goal->found)
        goal->found(goal->ctx, makespan, peak);
    r->best.reached = at_most(makespan, goal->makespan)
                   && at_most(peak, goal->peak);
}

/* The shortest, or as short and lower. From the bound on it comes down, to
 * the capacity at last. */
static void keep_loose(struct weft_shop_restart *r, double makespan,
                       double peak)
{
    copy(r, r->loose, r->sequence);
    r->loose_makespan = makespan;
    r->loose_peak = peak;
    set_elite(r, makespan);
    if (at_most(makespan, r->goal->makespan))
        set_capacity(r, fmax(r->goal->capacity, peak * (1 - 1e-6)));
}

/* r->sequence may be better than what there is. */
static void keep(struct weft_shop_restart *r, double makespan)
{
    double peak = weft_shop_peak(&r->goal->pair->forward, r->sequence);
    bool shorter = !at_most(shortest(r), makespan);
    bool best = is_best(r, makespan, peak);
    if (best)
        keep_best(r, makespan, peak);
    if (best
        && (r->phase == MEMORY || at_most(makespan, r->goal->makespan))) {
        set_elite(r, makespan);
        enter(r, MEMORY);
    } else if (r->phase == LOOSE) {
        if (shorter
            || (at_most(makespan, r->loose_makespan) && peak < r->loose_peak))
            keep_loose(r, makespan, peak);
    } else if (shorter) {
        set_elite(r, makespan);
    }
}

static int32_t worst(const struct weft_shop_restart *r)
{
    int32_t k = 0;
    for (int32_t i = 1; i < r->n_pool; i++)
        if (r->pool[i].makespan >= r->pool[k].makespan)
            k = i;
    return k;
}

/* One more rule: new, or one of the pool's changed. */
static void try_rule(struct weft_shop_restart *r)
{
    double size = r->goal->makespan;
    struct pooled *p = &r->pool[N_POOL];
    int32_t at = r->n_pool < N_POOL ? r->n_pool : worst(r);
    if (r->n_pool < N_POOL || weft_shop_below(&r->rng, 8) == 0) {
        weft_shop_rule_draw(&p->rule, r->problem, size, &r->rng);
    } else {
        int32_t from = weft_shop_below(&r->rng, r->n_pool);
        weft_shop_rule_copy(&p->rule, &r->pool[from].rule, r->problem);
        weft_shop_rule_mutate(&p->rule, r->problem, size, &r->rng);
        if (r->pool[from].makespan > r->pool[at].makespan - size * 1e-9
            || weft_shop_below(&r->rng, 2))
            at = from; /* the child takes its parent's place */
    }
    bool full = r->n_pool == N_POOL;
    double enough = full ? r->pool[at].makespan : INFINITY;
    double makespan = build(r, &p->rule, enough * (1 + WEFT_SHOP_SLACK));
    if (makespan == INFINITY && full)
        return;
    weft_shop_rule_copy(&r->pool[at].rule, &p->rule, r->problem);
    r->pool[at].makespan = makespan;
    if (!full)
        r->n_pool++;
    if (makespan < INFINITY && at_most(makespan, r->best.makespan))
        keep(r, makespan);
}

/* ---- Tabu search ---------------------------------------------------------- */

static int64_t *tabu(struct weft_shop_restart *r, int32_t u, int32_t v)
{
    uint32_t h = (uint32_t) u * 0x9e3779b1u ^ (uint32_t) v * 0x85ebca6bu;
    return &r->tabu[(h ^ h >> 15) % N_TABU];
}

/* An operation whose end lets x start no earlier; -1: x starts at 0. Through
 * its device only if no arc does, or by a coin. */
static int32_t critical_before(struct weft_shop_restart *r, int32_t x)
{
    const struct weft_shop_walk *w = &r->walk;
    const struct weft_shop *shop = w->shop;
    int32_t n = 0, before = -1, y = w->node[x].before;
    if (w->node[x].head <= 0)
        return -1;
    if (y >= 0 && w->node[y].head + w->node[y].time == w->node[x].head) {
        before = y;
        n = 1;
    }
    for (int32_t k = shop->pred_at[x]; k < shop->pred_at[x + 1]; k++) {
        y = shop->pred[k].op;
        if (w->node[y].head + w->node[y].time + shop->pred[k].lag
                == w->node[x].head
            && y != before && (++n == 1 || weft_shop_below(&r->rng, n) == 0))
            before = y;
    }
    return before;
}

/* Neighbours on a critical path that may be swapped, into r->path. */
static int32_t collect(struct weft_shop_restart *r)
{
    const struct weft_shop_walk *w = &r->walk;
    int32_t n = 0, x = -1;
    for (int32_t k = 0; k < w->n_ends && x < 0; k++)
        if (w->node[w->end[k]].head + w->node[w->end[k]].time == w->makespan)
            x = w->end[k];
    for (int32_t y; (y = critical_before(r, x)) >= 0; x = y)
        if (y == w->node[x].before && weft_shop_walk_may_swap(w, y, x))
            r->path[n++] = x;
    return n;
}

/* The swap to do; -1: none. */
static int32_t choose(struct weft_shop_restart *r, int32_t n)
{
    const struct weft_shop_walk *w = &r->walk;
    double least = INFINITY;
    int32_t best = -1, n_best = 0;
    for (int32_t k = 0; k < n; k++) {
        int32_t v = r->path[k], u = w->node[v].before;
        double t = weft_shop_walk_estimate(w, u, v);
        if (*tabu(r, u, v) > r->iteration && t >= r->best.makespan)
            continue;
        if (t > least
            || (t == least && weft_shop_below(&r->rng, ++n_best) != 0))
            continue;
        n_best = t < least ? 1 : n_best;
        least = t;
        best = v;
    }
    r->best.evaluations += n + 1;
    if (best < 0 && n > 0)
        best = r->path[weft_shop_below(&r->rng, n)];
    return best;
}

static bool worth_keeping(const struct weft_shop_restart *r, double makespan)
{
    return r->phase == MEMORY ? at_most(makespan, r->best.makespan)
                              : !at_most(shortest(r), makespan);
}

/* From what is loaded, until nothing better comes for `patience` swaps. */
static void improve(struct weft_shop_restart *r, int32_t patience)
{
    struct weft_shop_walk *w = &r->walk;
    double least = INFINITY, capacity = r->capacity;
    for (int32_t idle = 0; idle < patience; idle++) {
        if (w->makespan < least) {
            least = w->makespan;
            idle = 0;
            if (least <= r->elite_makespan) {
                weft_shop_walk_store(w, r->sequence);
                set_elite(r, least);
                if (worth_keeping(r, least))
                    keep(r, least);
            }
        }
        if (r->capacity != capacity || (idle % 64 == 0 && stopped(r)))
            break;
        int32_t v = choose(r, collect(r));
        if (v < 0)
            break;
        int32_t u = w->node[v].before;
        if (weft_shop_walk_swap(w, u, v))
            r->best.swaps++;
        *tabu(r, v, u) = ++r->iteration + 8 + weft_shop_below(&r->rng, 16);
    }
    r->best.updates = w->n_updates;
}

/* ---- Walks ---------------------------------------------------------------- */

/* What one of the pool's better rules builds. */
static bool load_from_pool(struct weft_shop_restart *r)
{
    int32_t k = weft_shop_below(&r->rng, r->n_pool);
    for (int32_t i = 0; i < 2; i++) {
        int32_t other = weft_shop_below(&r->rng, r->n_pool);
        if (r->pool[other].makespan < r->pool[k].makespan)
            k = other;
    }
    return build(r, &r->pool[k].rule, INFINITY) < INFINITY
        && weft_shop_walk_load(&r->walk, r->sequence, r->capacity);
}

/* The elite with a few swaps anywhere. */
static bool load_elite(struct weft_shop_restart *r)
{
    struct weft_shop_walk *w = &r->walk;
    if (!weft_shop_walk_load(w, r->elite, r->capacity)
        || !weft_shop_walk_repair(w))
        return false;
    if (r->elite_makespan == INFINITY)
        return true;
    for (int32_t n = 2 + weft_shop_below(&r->rng, 16); n > 0; n--) {
        int32_t v = weft_shop_below(&r->rng, w->shop->n_ops);
        int32_t u = w->node[v].before;
        if (u >= 0 && weft_shop_walk_may_swap(w, u, v))
            weft_shop_walk_swap(w, u, v);
    }
    return true;
}

/* Walks for so many evaluations. */
static void walk(struct weft_shop_restart *r, int64_t evaluations)
{
    int64_t until = r->best.evaluations + evaluations;
    while (r->best.evaluations < until && !stopped(r)) {
        bool elite = r->has_elite && weft_shop_below(&r->rng, 4) != 0;
        if (++r->elite_idle > PATIENCE_WALKS) {
            elite = false; /* begin elsewhere */
            r->elite_idle = 0;
            r->elite_makespan = INFINITY;
        }
        if ((elite && load_elite(r)) || load_from_pool(r))
            improve(r, PATIENCE_SWAPS);
        r->best.evaluations++;
    }
}

/* ---- Annealing ------------------------------------------------------------ */

static void cool(struct weft_shop_restart *r, struct weft_shop_settle *s,
                 double from, int64_t trials)
{
    double each = pow(COLD / from, (double) COOLING_STEP / (double) trials);
    for (int64_t i = 0; i < trials && s->n_over > 0 && !ended(r);
         i += COOLING_STEP, from *= each) {
        weft_shop_settle_run(s, &r->rng, from, COOLING_STEP);
        r->best.evaluations += COOLING_STEP;
    }
}

/* Log-uniform, from `hot` down to where little moves. */
static double temperature(struct weft_shop_restart *r, double hot)
{
    return hot * pow(COLD / hot, weft_shop_uniform(&r->rng, 0, 0.8));
}

/* Anneals r->settled, then again and again the best of that, not as hot. True
 * if it ended better than it began. */
static bool settle_from(struct weft_shop_restart *r, double deadline,
                        double capacity)
{
    double asked = r->capacity, from = temperature(r, HOT);
    double begin = INFINITY, least = INFINITY;
    int64_t trials = r->cooling;
    struct weft_shop_settle s;
    for (int i = 0; i < PATIENCE_REHEATS && r->capacity == asked; i++) {
        if (ended(r) || !weft_shop_walk_load(&r->walk, r->settled, 0))
            break;
        weft_shop_settle_begin(&s, &r->walk, deadline, capacity);
        if (begin == INFINITY)
            begin = s.excess;
        cool(r, &s, from, trials);
        r->best.swaps += s.n_swaps;
        weft_shop_walk_store(&r->walk, r->sequence);
        if (s.excess < 0.8 * least)
            i = -1;
        if (s.excess < least) {
            least = s.excess;
            copy(r, r->settled, r->sequence);
        }
        keep(r, r->walk.makespan);
        from = temperature(r, WARM);
        trials = r->cooling / 2;
    }
    r->cooling = weft_min64(2 * r->cooling, r->goal->share / COOLINGS + 1);
    return least < begin;
}

/* What is short enough towards less memory. */
static void settle(struct weft_shop_restart *r)
{
    enum phase phase = r->phase;
    double share = weft_shop_uniform(&r->rng, -3, 1);
    if (phase == MEMORY) {
        double more = fmax(0, r->capacity - r->goal->peak);
        copy(r, r->settled, r->best.sequence);
        settle_from(r, r->best.makespan,
                    r->capacity - share * share / 9 * more);
        return;
    }
    double deadline = r->loose_makespan;
    if (share > 0 && phase == MAKESPAN && r->best.makespan < INFINITY)
        deadline += share * (r->best.makespan - deadline);
    copy(r, r->settled, r->loose);
    bool better = settle_from(r, deadline, r->goal->capacity);
    if (better && deadline == r->loose_makespan && r->phase == phase)
        copy(r, r->loose, r->settled);
    if (phase == MAKESPAN && r->phase == MAKESPAN) {
        /* Almost there: walks may do the rest. */
        copy(r, r->elite, r->settled);
        r->elite_makespan = INFINITY;
        r->elite_idle = 0;
    }
}

/* ---- Turns ---------------------------------------------------------------- */

/* Is there a schedule that is short enough and holds too much? */
static bool may_settle(const struct weft_shop_restart *r)
{
    switch (r->phase) {
    case LOOSE:
        return r->capacity > 0;
    case MAKESPAN:
        return !at_most(r->best.makespan, r->loose_makespan);
    default:
        return true;
    }
}

/* After so many evaluations of constructions. */
static void improve_turn(struct weft_shop_restart *r, int64_t built)
{
    bool settles = may_settle(r);
    int64_t before = r->best.evaluations;
    if (!settles || r->phase == MAKESPAN)
        walk(r, WALK_SHARE * built);
    if (!settles)
        return;
    r->owed += SETTLE_SHARE * built;
    if (r->owed > 0 && may_settle(r))
        settle(r);
    r->owed -= r->best.evaluations - before;
}

/* The phase had its share? */
static bool is_over(const struct weft_shop_restart *r)
{
    int64_t share = r->goal->capacity <= 0 ? FREE_SHARE : CAPACITY_SHARE;
    if (r->phase == LOOSE)
        share = r->capacity > 0 && r->index % 2 ? FREE_SHARE : LOOSE_SHARE;
    else if (r->phase == MEMORY || r->best.makespan == INFINITY)
        return false;
    return r->best.evaluations > r->goal->share / 100 * share;
}

void weft_shop_restart_run(struct weft_shop_restart *r, int64_t evaluations)
{
    r->until += evaluations;
    while (!stopped(r)) {
        int64_t before = r->best.evaluations;
        for (int i = 0; i < BUILDS_PER_TURN && !stopped(r); i++)
            try_rule(r);
        improve_turn(r, r->best.evaluations - before);
        if (is_over(r))
            enter(r, r->phase == LOOSE ? MAKESPAN : MEMORY);
    }
}
