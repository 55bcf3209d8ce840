/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Annealing in a restart. A schedule that is short enough but holds too much
 * is annealed towards the capacity, each time more slowly, and at last window
 * by window. Where the capacity alone raises the bound, time and memory are
 * annealed together, and being late has a price.
 */
#include "schedule/search/restart.h"

#include <math.h>

enum {
    COOLING_STEP = 1024, /* trials at one temperature */
    /* further ones from the best so far, which together take as long as the
     * first */
    TRADES = 8,
    PATIENCE = 4, /* reheats that lead to nothing better */
    PATIENCE_LOOSE = 2,
    LOOSE_COOLING = 2, /* as many trials as the first at most */
    /* Windows are annealed where at most so many passes hold too much, until
     * so many of them in a row have found nothing better. */
    FEW = 32,
    PATIENCE_WINDOWS = 32,
    LEAST_WINDOW = 64, /* operations */
    TRIALS_PER_OP = 1000
};

/* Temperatures, in activations of the largest micro-batch. */
static const double COLD = 0.05, WARM = 2, HOT = 10;
/* Temperatures of trading time for memory, where a unit of time costs less
 * than an activation. */
static const double TRADE_COLD = 0.04, TRADE_COOL = 0.1, TRADE_WARM = 0.4;
/* The price of a unit of time, in multiples of 1 / time_per_activation. */
static const double CHEAP = 0.5, DEAR = 2;

/* Loads a sequence into the walk; false when no evaluations are left. */
static bool load(struct weft_jobshop_restart *r, const int32_t *sequence,
                 double capacity)
{
    return !weft_jobshop_restart_ended(r)
        && weft_jobshop_walk_load(&r->walk, sequence, capacity, false);
}

static void cool(struct weft_jobshop_restart *r,
                 struct weft_jobshop_metropolis *s, double from, double to,
                 int64_t trials)
{
    double each = pow(to / from, (double) COOLING_STEP / (double) trials);
    for (int64_t i = 0; i < trials && !weft_jobshop_metropolis_done(s)
                        && !weft_jobshop_restart_ended(r);
         i += COOLING_STEP, from *= each) {
        weft_jobshop_metropolis_run(s, &r->rng, from, COOLING_STEP);
        r->best.evaluations += COOLING_STEP;
    }
    r->best.swaps += s->n_swaps;
    weft_jobshop_walk_store(&r->walk, r->sequence);
}

/* Log-uniform. */
static double between(struct weft_jobshop_restart *r, double low, double high)
{
    return low * pow(high / low, weft_jobshop_uniform(&r->rng, 0, 1));
}

/* Cools from `hot` until few swaps are accepted. */
static double temperature(struct weft_jobshop_restart *r, double hot)
{
    return between(r, hot * pow(COLD / hot, 0.8), hot);
}

/* ---- Windows ----------------------------------------------------------- */

/* Writes the operations of a window into r->move: a stretch of time around a
 * place that holds too much. Returns how many they are. */
static int32_t open_window(struct weft_jobshop_restart *r)
{
    const struct weft_jobshop_walk *w = &r->walk;
    int32_t n_ops = w->shop->n_ops;
    double least = fmin(LEAST_WINDOW, n_ops);
    int32_t n = (int32_t) between(r, least, fmax(least, n_ops / 2));
    int32_t x = w->over[weft_jobshop_below(&r->rng, w->n_over)];
    int32_t from = w->node[x].place - weft_jobshop_below(&r->rng, n);
    from = weft_max32(0, weft_min32(from, n_ops - n));
    for (int32_t i = 0; i < n; i++)
        r->move[i] = w->order[from + i];
    return n;
}

/* Anneals one window of r->annealed after the other, leaves the rest of the
 * schedule alone (large-neighbourhood search, Shaw 1998), and keeps a result
 * that is no worse. When only a few places still hold too much, annealing the
 * whole schedule would break as much elsewhere as it mends. */
static double mend(struct weft_jobshop_restart *r, double deadline,
                   double capacity, double excess)
{
    struct weft_jobshop_walk *w = &r->walk;
    double asked = r->capacity;
    for (int idle = 0; idle < PATIENCE_WINDOWS && r->capacity == asked
                       && load(r, r->annealed, capacity) && w->n_over > 0;
         idle++) {
        struct weft_jobshop_metropolis s;
        weft_jobshop_metropolis_begin(&s, w, deadline, INFINITY);
        s.window = r->move;
        s.n_window = open_window(r);
        cool(r, &s, between(r, COLD, WARM), COLD,
             (int64_t) TRIALS_PER_OP * s.n_window);
        if (w->excess > excess)
            continue;
        if (w->excess < excess)
            idle = -1;
        excess = w->excess;
        weft_jobshop_restart_copy(r, r->annealed, r->sequence);
        if (w->n_over == 0)
            weft_jobshop_restart_keep(r, w->makespan);
    }
    return excess;
}

/* ---- Turns ------------------------------------------------------------- */

/* Anneals r->annealed, then the best result again and again, from a lower
 * temperature each time, until it fits. Returns the least excess that was
 * reached. */
static double anneal_from(struct weft_jobshop_restart *r, double deadline,
                          double capacity, int patience)
{
    double asked = r->capacity, from = temperature(r, HOT);
    double least = INFINITY;
    int64_t trials = r->cooling;
    struct weft_jobshop_walk *w = &r->walk;
    struct weft_jobshop_metropolis s;
    int32_t n_over = INT32_MAX;
    for (int i = 0; i < patience && r->capacity == asked && least > 0; i++) {
        if (!load(r, r->annealed, capacity))
            break;
        weft_jobshop_metropolis_begin(&s, w, deadline, INFINITY);
        s.focused = r->phase != WEFT_JOBSHOP_MEMORY;
        cool(r, &s, from, COLD, trials);
        if (w->excess < 0.8 * least)
            i = -1;
        if (w->excess < least) {
            least = w->excess;
            n_over = w->n_over;
            weft_jobshop_restart_copy(r, r->annealed, r->sequence);
        }
        weft_jobshop_restart_keep(r, w->makespan);
        from = temperature(r, WARM);
        trials = r->cooling / 2;
    }
    if (n_over > 0 && n_over <= FEW && r->capacity == asked)
        least = mend(r, deadline, capacity, least);
    return least;
}

static void slow_down(struct weft_jobshop_restart *r)
{
    r->cooling = weft_min64(2 * r->cooling, r->most_cooling);
}

/* Anneals memory alone; the makespan may not exceed the best one. */
static void anneal_memory(struct weft_jobshop_restart *r)
{
    double share = weft_jobshop_uniform(&r->rng, 0, 1);
    double more = fmax(0, r->capacity - r->goal->peak);
    if (weft_jobshop_below(&r->rng, 4) == 0)
        more = 0;
    weft_jobshop_restart_copy(r, r->annealed, r->best.sequence);
    anneal_from(r, r->best.makespan, r->capacity - share * share * more,
                PATIENCE);
    slow_down(r);
}

/* Anneals a short schedule that holds too much; if that does not lead to one
 * that fits, another schedule is taken next time. */
static void anneal_loose(struct weft_jobshop_restart *r)
{
    double makespan = r->loose_makespan, peak = r->loose_peak;
    weft_jobshop_restart_copy(r, r->annealed, r->loose);
    double excess = anneal_from(r, makespan, r->goal->capacity,
                                PATIENCE_LOOSE);
    if (r->phase != WEFT_JOBSHOP_LOOSE)
        return;
    if (excess < r->near_excess)
        weft_jobshop_restart_come_near(r, r->annealed, makespan, excess);
    if (r->loose_peak >= peak) {
        if (r->cooling < LOOSE_COOLING * r->first_cooling)
            slow_down(r);
        weft_jobshop_restart_begin(r);
    }
}

/* Anneals the schedule that came nearest to the capacity, within its deadline
 * or a later one. */
static void anneal_near(struct weft_jobshop_restart *r)
{
    double deadline = r->near_makespan;
    if (r->best.makespan < INFINITY && weft_jobshop_below(&r->rng, 4) == 0)
        deadline += weft_jobshop_uniform(&r->rng, 0, 1)
                  * (r->best.makespan - deadline);
    weft_jobshop_restart_copy(r, r->annealed, r->near);
    double excess = anneal_from(r, deadline, r->goal->capacity, PATIENCE);
    slow_down(r);
    if (r->phase != WEFT_JOBSHOP_MAKESPAN)
        return;
    if (excess < r->near_excess && deadline == r->near_makespan)
        weft_jobshop_restart_come_near(r, r->annealed, deadline, excess);
}

void weft_jobshop_restart_anneal(struct weft_jobshop_restart *r)
{
    if (r->phase == WEFT_JOBSHOP_MEMORY)
        anneal_memory(r);
    else if (r->phase == WEFT_JOBSHOP_MAKESPAN)
        anneal_near(r);
    else
        anneal_loose(r);
}

static void trade(struct weft_jobshop_restart *r, double from, int64_t trials)
{
    struct weft_jobshop_metropolis s;
    weft_jobshop_metropolis_begin(&s, &r->walk, r->goal->makespan,
                                  between(r, CHEAP, DEAR)
                                      / r->time_per_activation);
    s.focused = true;
    cool(r, &s, from, TRADE_COLD, trials);
    if (r->walk.n_over == 0)
        weft_jobshop_restart_keep(r, r->walk.makespan);
}

/* Trades start from the schedule nearest to the capacity; later ones from the
 * best, at a lower temperature and towards a shorter makespan. */
void weft_jobshop_restart_trade(struct weft_jobshop_restart *r)
{
    int64_t trials = r->cooling;
    slow_down(r);
    if (load(r, r->near, r->goal->capacity))
        trade(r, WARM, trials);
    for (int i = 0; i < TRADES && r->phase == WEFT_JOBSHOP_MAKESPAN
                    && r->best.makespan < INFINITY
                    && load(r, r->best.sequence, r->goal->capacity);
         i++)
        trade(r, between(r, TRADE_COOL, TRADE_WARM), trials / TRADES);
}
