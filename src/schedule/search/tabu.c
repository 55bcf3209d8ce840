/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks: tabu search. Of the swaps of neighbours on a critical path, the one
 * that promises most, never soon the reverse of one just done.
 *
 * Half of the walks never hold more than the capacity. The others may, at a
 * price, and then may also swap where too much is held; the price rises while
 * too much is held and falls while nothing is, so that the walk crosses the
 * capacity again and again (strategic oscillation, Glover and Laguna 1997).
 */
#include "schedule/search/restart.h"

#include <math.h>

enum {
    PATIENCE = 2000,       /* swaps in a row that find nothing better */
    PATIENCE_OVER = 10000, /* the same where holding too much has a price */
    PATIENCE_WALKS = 100
};

/* Limits of the price in multiples of time_per_activation, and its change per
 * swap. */
static const double LEAST_PRICE = 1e-4, MOST_PRICE = 100, PRICE_STEP = 1.03;

static int64_t *tabu(struct weft_jobshop_restart *r, int32_t u, int32_t v)
{
    uint32_t h = (uint32_t) u * 0x9e3779b1u ^ (uint32_t) v * 0x85ebca6bu;
    return &r->tabu[(h ^ h >> 15) % WEFT_JOBSHOP_TABU];
}

/* ---- Candidates -------------------------------------------------------- */

/* An operation whose end determines the start of x; -1 when x starts at 0. It
 * is the neighbour on the device only if no arc determines the start, or by a
 * coin flip. */
static int32_t critical_before(struct weft_jobshop_restart *r, int32_t x)
{
    const struct weft_jobshop_walk *w = &r->walk;
    const struct weft_jobshop *shop = w->shop;
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
            && y != before
            && (++n == 1 || weft_jobshop_below(&r->rng, n) == 0))
            before = y;
    }
    return before;
}

/* Writes the swaps of neighbours on a critical path into r->move. */
static int32_t collect_critical(struct weft_jobshop_restart *r)
{
    const struct weft_jobshop_walk *w = &r->walk;
    int32_t n = 0, x = -1;
    for (int32_t k = 0; k < w->n_ends && x < 0; k++)
        if (w->node[w->end[k]].head + w->node[w->end[k]].time == w->makespan)
            x = w->end[k];
    for (int32_t y; (y = critical_before(r, x)) >= 0; x = y)
        if (y == w->node[x].before && weft_jobshop_walk_may_swap(w, y, x))
            r->move[n++] = x;
    return n;
}

/* Adds swaps at places that hold too much and would hold less. */
static int32_t collect_over(struct weft_jobshop_restart *r, int32_t n)
{
    const struct weft_jobshop_walk *w = &r->walk;
    const struct weft_jobshop_op *op = w->shop->op;
    for (int32_t k = 0; k < w->n_over; k++) {
        int32_t u = w->over[k], v = w->node[u].after;
        if (v >= 0 && op[v].hold < op[u].hold
            && weft_jobshop_walk_may_swap(w, u, v))
            r->move[n++] = v;
    }
    return n;
}

/* The swap to do, of n_critical candidates and others; -1: none. */
static int32_t choose(struct weft_jobshop_restart *r, int32_t n_critical,
                      int32_t n)
{
    const struct weft_jobshop_walk *w = &r->walk;
    double least = INFINITY;
    int32_t best = -1, n_best = 0;
    for (int32_t k = 0; k < n; k++) {
        int32_t v = r->move[k], u = w->node[v].before;
        double t = weft_jobshop_walk_estimate(w, u, v);
        double more = weft_jobshop_walk_excess(w, u, v);
        if (k >= n_critical)
            t = fmax(t, w->makespan);
        if (*tabu(r, u, v) > r->iteration
            && (t >= r->best.makespan || w->n_over > 0 || more > 0))
            continue;
        if (more != 0)
            t += r->price * more;
        if (t > least
            || (t == least && weft_jobshop_below(&r->rng, ++n_best) != 0))
            continue;
        n_best = t < least ? 1 : n_best;
        least = t;
        best = v;
    }
    r->best.evaluations += n + 1;
    if (best < 0 && n > 0)
        best = r->move[weft_jobshop_below(&r->rng, n)];
    return best;
}

/* ---- One walk ---------------------------------------------------------- */

static void change_price(struct weft_jobshop_restart *r)
{
    r->price *= r->walk.n_over > 0 ? PRICE_STEP : 1 / PRICE_STEP;
    r->price = fmin(fmax(r->price, LEAST_PRICE * r->time_per_activation),
                    MOST_PRICE * r->time_per_activation);
}

static bool worth_keeping(const struct weft_jobshop_restart *r,
                          double makespan)
{
    bool lower = r->phase == WEFT_JOBSHOP_MEMORY
              || (r->phase == WEFT_JOBSHOP_LOOSE
                  && weft_jobshop_at_most(r->loose_makespan,
                                          r->goal->makespan));
    double shortest = weft_jobshop_restart_shortest(r);
    return lower ? weft_jobshop_at_most(makespan, shortest)
                 : !weft_jobshop_at_most(shortest, makespan);
}

/* Walks from the loaded schedule until it has not improved for a while. */
static void improve(struct weft_jobshop_restart *r)
{
    struct weft_jobshop_walk *w = &r->walk;
    double least = INFINITY, capacity = r->capacity;
    int32_t patience = w->strict ? PATIENCE : PATIENCE_OVER;
    r->price = r->time_per_activation;
    for (int32_t idle = 0; idle < patience; idle++) {
        if (w->makespan < least && w->n_over == 0) {
            least = w->makespan;
            idle = 0;
            if (least <= r->elite_makespan) {
                weft_jobshop_walk_store(w, r->sequence);
                weft_jobshop_restart_set_elite(r, least);
                if (worth_keeping(r, least))
                    weft_jobshop_restart_keep(r, least);
            }
        }
        if (r->capacity != capacity
            || (idle % 64 == 0 && weft_jobshop_restart_stopped(r)))
            break;
        change_price(r);
        int32_t n_critical = collect_critical(r);
        int32_t v = choose(r, n_critical, collect_over(r, n_critical));
        if (v < 0)
            break;
        int32_t u = w->node[v].before;
        if (weft_jobshop_walk_swap(w, u, v))
            r->best.swaps++;
        *tabu(r, v, u) = ++r->iteration + 8 + weft_jobshop_below(&r->rng, 16);
    }
    r->best.updates = w->n_updates;
}

/* ---- Where it begins --------------------------------------------------- */

/* Starts from the elite, perturbed by a few random swaps. */
static bool load_elite(struct weft_jobshop_restart *r, bool strict)
{
    struct weft_jobshop_walk *w = &r->walk;
    if (!weft_jobshop_walk_load(w, r->elite, r->capacity, strict)
        || (strict && !weft_jobshop_walk_repair(w)))
        return false;
    if (r->elite_makespan == INFINITY)
        return true;
    for (int32_t n = 2 + weft_jobshop_below(&r->rng, 16); n > 0; n--) {
        int32_t v = weft_jobshop_below(&r->rng, w->shop->n_ops);
        int32_t u = w->node[v].before;
        if (u >= 0 && weft_jobshop_walk_may_swap(w, u, v))
            weft_jobshop_walk_swap(w, u, v);
    }
    return true;
}

void weft_jobshop_restart_walk(struct weft_jobshop_restart *r)
{
    bool strict = r->capacity <= 0 || weft_jobshop_below(&r->rng, 2) == 0;
    bool elite = r->has_elite && weft_jobshop_below(&r->rng, 4) != 0;
    if (++r->elite_idle > PATIENCE_WALKS) {
        elite = false; /* begin elsewhere */
        r->elite_idle = 0;
        r->elite_makespan = INFINITY;
    }
    if ((elite && load_elite(r, strict))
        || (weft_jobshop_restart_build_better(r)
            && weft_jobshop_walk_load(&r->walk, r->sequence, r->capacity,
                                      strict)))
        improve(r);
    r->best.evaluations++;
}
