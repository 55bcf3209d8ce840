/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best order of a choice's calls. In the steady state job u of iteration i
 * begins at start[u] + i * period. What v waits for u of h iterations before
 * means start[v] + h * period >= start[u] + seconds[u]. Of two jobs that share
 * devices, v of K iterations later comes between u and the next u, for one
 * integer K: the orders are the choices of all K (cyclic job shops: Hanen and
 * Munier, 1995). For a given period, longest paths bound each K; those with one
 * value left are fixed, of the others each value is tried.
 */
#include <math.h>
#include <string.h>

#include "plan/search/inside.h"

enum { JOBS = 2 * WEFT_MAX_CALLS, PAIRS = 256, MOST_TRIES = 2000, FAR = 3 };
static const double rounding = 1e-9;

struct pair {
    int8_t u, v;
    bool fixed;
};

/* For a period: longest paths between starts, and orders not yet chosen. */
struct state {
    double path[JOBS][JOBS]; /* -INFINITY: none */
    struct pair pair[PAIRS];
};

struct orders {
    const struct weft_search_jobs *jobs;
    double period;
    int32_t n, n_pairs, tries;
};

/* start[v] >= start[u] + least; false: no start satisfies all. */
static bool add(const struct orders *o, struct state *s, int32_t u, int32_t v,
                double least)
{
    if (s->path[u][v] >= least)
        return true;
    for (int32_t i = 0; i < o->n; i++) {
        double to = s->path[i][u] + least;
        if (to <= -INFINITY)
            continue;
        for (int32_t j = 0; j < o->n; j++) {
            double whole = to + s->path[v][j];
            if (s->path[i][j] < whole)
                s->path[i][j] = whole;
        }
    }
    for (int32_t i = 0; i < o->n; i++)
        if (s->path[i][i] > rounding * o->period)
            return false;
    return true;
}

static bool fix(const struct orders *o, struct state *s, struct pair *p,
                int32_t k)
{
    const double *seconds = o->jobs->seconds;
    p->fixed = true;
    return add(o, s, p->u, p->v, seconds[p->u] - k * o->period)
        && add(o, s, p->v, p->u, seconds[p->v] - (1 - k) * o->period);
}

/* The K that paths leave to a pair. */
static void range_of(const struct orders *o, const struct state *s,
                     const struct pair *p, int32_t *lo, int32_t *hi)
{
    const double *seconds = o->jobs->seconds;
    double least = (seconds[p->u] + s->path[p->v][p->u]) / o->period;
    double most = 1 - (seconds[p->v] + s->path[p->u][p->v]) / o->period;
    *lo = least < -FAR ? -FAR : (int32_t) ceil(least - rounding);
    *hi = most > FAR ? FAR : (int32_t) floor(most + rounding);
}

/* 1: there is an order, whose starts are paths in *s; 0: there is none; -1:
 * too many were tried. */
static int find(struct orders *o, struct state *s)
{
    struct pair *widest = NULL;
    int32_t lo, hi, first = 0, last = 0;
    for (bool fixed = true; fixed;) {
        fixed = false;
        widest = NULL;
        for (int32_t i = 0; i < o->n_pairs; i++) {
            struct pair *p = &s->pair[i];
            if (p->fixed)
                continue;
            range_of(o, s, p, &lo, &hi);
            if (lo > hi || (lo == hi && !fix(o, s, p, lo)))
                return 0;
            fixed = fixed || lo == hi;
            if (lo == hi || (widest && last - first <= hi - lo))
                continue;
            widest = p;
            first = lo;
            last = hi;
        }
    }
    if (!widest)
        return 1;
    bool unknown = false;
    for (int32_t k = first; k <= last; k++) {
        struct state next = *s;
        if (++o->tries > MOST_TRIES)
            return -1;
        if (!fix(o, &next, &next.pair[widest - s->pair], k))
            continue;
        int found = find(o, &next);
        if (found > 0) {
            *s = next;
            return 1;
        }
        unknown = unknown || found < 0;
    }
    return unknown ? -1 : 0;
}

/* The same for a period; start_out (JOBS) or NULL: not wanted. */
static int feasible(const struct weft_search *s,
                    const struct weft_search_jobs *jobs, double period,
                    double *start_out)
{
    struct orders o = {
        .jobs = jobs, .period = period, .n = 2 * s->p->n_calls};
    struct state state;
    bool ok = true;
    int32_t n = s->p->n_calls;
    for (int32_t i = 0; i < o.n; i++)
        for (int32_t j = 0; j < o.n; j++)
            state.path[i][j] = i == j ? 0 : -INFINITY;
    for (int32_t c = 0; c < n; c++) {
        bool moves = jobs->seconds[n + c] > 0;
        int32_t t = s->trainer[c];
        ok = ok && jobs->seconds[c] <= period * (1 + rounding);
        for (uint32_t m = s->p->call[c].before; m; m &= m - 1)
            ok = ok
              && add(&o, &state, __builtin_ctz(m), c,
                     jobs->seconds[__builtin_ctz(m)]);
        if (t >= 0 && t != c)
            ok = ok
              && add(&o, &state, t, moves ? n + c : c,
                     jobs->seconds[t] - period);
        if (moves)
            ok = ok && add(&o, &state, n + c, c, jobs->seconds[n + c]);
    }
    for (int32_t u = 0; u < o.n && ok; u++)
        for (int32_t v = u + 1; v < o.n; v++)
            if ((jobs->meets[u] >> v & 1) && o.n_pairs < PAIRS)
                state.pair[o.n_pairs++] = (struct pair){(int8_t) u,
                                                        (int8_t) v, false};
    int found = ok ? find(&o, &state) : 0;
    for (int32_t j = 0; j < o.n && found > 0 && start_out; j++) {
        start_out[j] = 0;
        for (int32_t i = 0; i < o.n; i++)
            start_out[j] = fmax(start_out[j], state.path[i][j]);
    }
    return found;
}

bool weft_search_order(const struct weft_search *s, const int32_t *choice,
                       double below, struct weft_search_value *v,
                       double *start)
{
    struct weft_search_jobs jobs;
    double lo = v->bound, hi = v->period;
    weft_search_jobs(s, choice, &jobs);
    if (below > hi)
        below = hi;
    if (below <= lo)
        return false;
    int found = feasible(s, &jobs, below, NULL);
    if (found <= 0) {
        v->bound = found == 0 ? below : lo;
        return false;
    }
    hi = below;
    found = feasible(s, &jobs, lo, NULL);
    if (found > 0)
        hi = lo;
    for (bool known = found == 0; known && hi - lo > WEFT_SEARCH_NEAR * hi;) {
        double at = 0.5 * (lo + hi);
        found = feasible(s, &jobs, at, NULL);
        known = found >= 0;
        if (found > 0)
            hi = at;
        else if (found == 0)
            lo = at;
    }
    v->period = hi;
    v->bound = lo;
    if (start)
        feasible(s, &jobs, hi, start);
    return true;
}
