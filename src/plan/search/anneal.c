/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy, and annealing: one call at a time takes another option. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/threads.h"
#include "plan/search/inside.h"

enum { ASK_EVERY = 1024, TRIALS = 200, GREEDY_OPTIONS = 20000 };

/* Gives each call in turn its best option, while the others keep theirs, until
 * nothing is better. Of very many options a call tries some. */
static void descend(const struct weft_search *s,
                    const struct weft_search_how *how, int32_t *choice,
                    struct weft_search_result *best)
{
    struct weft_search_value now = weft_search_value(s, choice);
    weft_search_consider(s, choice, &now, best);
    for (bool better = true; better && !best->stopped;) {
        better = false;
        for (int32_t c = 0; c < s->p->n_calls && !best->stopped; c++) {
            int32_t n = s->p->call[c].n_options, kept = choice[c];
            int32_t stride = n / GREEDY_OPTIONS + 1;
            for (int32_t i = 0; i < n; i += stride) {
                choice[c] = i;
                struct weft_search_value v = weft_search_unplayed(s, choice);
                if (!weft_search_better(s, &v, &now)
                    && !weft_search_counts(s, &v, best)) {
                    best->evaluations++;
                    continue;
                }
                weft_search_set_period(s, choice, &v);
                weft_search_consider(s, choice, &v, best);
                if (weft_search_better(s, &v, &now)) {
                    now = v;
                    kept = i;
                    better = true;
                }
            }
            choice[c] = kept;
            best->stopped = how->stop && how->stop(how->ctx);
        }
    }
}

void weft_search_greedy(const struct weft_search *s,
                        const struct weft_search_how *how,
                        struct weft_search_result *best)
{
    int32_t fast[WEFT_MAX_CALLS], small[WEFT_MAX_CALLS];
    for (int32_t c = 0; c < s->p->n_calls; c++) {
        const struct weft_search_call *call = &s->p->call[c];
        fast[c] = small[c] = 0;
        for (int32_t i = 1; i < call->n_options; i++) {
            const struct weft_option *o = &call->option[i];
            const struct weft_option *f = &call->option[fast[c]];
            const struct weft_option *m = &call->option[small[c]];
            if (o->seconds < f->seconds)
                fast[c] = i;
            if (o->held + o->active < m->held + m->active)
                small[c] = i;
        }
    }
    descend(s, how, fast, best);
    if (best->value.bytes > s->p->device_bytes)
        descend(s, how, small, best);
}

/* ---- Annealing ---------------------------------------------------------- */

struct walk {
    const struct weft_search *s;
    uint64_t seed, n_drawn;
    uint32_t restart;
    int32_t choice[WEFT_MAX_CALLS];
    struct weft_search_value now;
};

static double draw(struct walk *w)
{
    uint64_t n = w->n_drawn++;
    return (double) weft_rng_uniform(w->seed, WEFT_RNG_PLAN, w->restart,
                                     (uint32_t) (n >> 32), (uint32_t) n);
}

/* A number below n. */
static int32_t pick(struct walk *w, int32_t n)
{
    int32_t i = (int32_t) (draw(w) * n);
    return i < n ? i : n - 1;
}

/* What a walk makes less. What does not fit counts as no faster than the best
 * so far, and for more by how much it exceeds memory: otherwise a walk would
 * end among plans that are much faster than any that fits, and exceed memory a
 * little. */
static double cost(const struct weft_search *s,
                   const struct weft_search_value *v,
                   const struct weft_search_result *best)
{
    double over = v->bytes / s->p->device_bytes - 1;
    return over > 0 ? fmax(v->period, best->value.period) * (1 + 4 * over)
                    : v->period;
}

/* Another option for a call. */
static void change(struct walk *w, int32_t call)
{
    int32_t n = w->s->p->call[call].n_options, before = w->choice[call];
    if (n == 1)
        return;
    w->choice[call] = pick(w, n - 1);
    w->choice[call] += w->choice[call] >= before;
}

/* Changes one call of a walk's choice, or every second time two (which may then
 * take a half each, or one the memory that the other leaves). */
static void propose(struct walk *w)
{
    int32_t n = w->s->p->n_calls, c = pick(w, n), d = c;
    if (n > 1 && draw(w) < 0.5) {
        d = pick(w, n - 1);
        d += d >= c;
    }
    change(w, c);
    if (d != c)
        change(w, d);
}

/* How much more a proposal costs. */
static double try(struct walk *w, struct weft_search_result *best)
{
    const struct weft_search *s = w->s;
    struct weft_search_value before = w->now;
    propose(w);
    w->now = weft_search_value(s, w->choice);
    weft_search_consider(s, w->choice, &w->now, best);
    return cost(s, &w->now, best) - cost(s, &before, best);
}

/* Takes a proposal where the cost is less or, by chance, not much more. One
 * that costs too much by its bound already is not played, unless it could be
 * the best or a finalist. */
static void step(struct walk *w, double temperature,
                 struct weft_search_result *best)
{
    const struct weft_search *s = w->s;
    struct walk other = *w;
    propose(&other);
    uint64_t drawn = other.n_drawn;
    double most = -temperature * log(draw(&other));
    struct weft_search_value v = weft_search_unplayed(s, other.choice);
    double more = cost(s, &v, best) - cost(s, &w->now, best);
    if (more <= most || weft_search_counts(s, &v, best)) {
        weft_search_set_period(s, other.choice, &v);
        weft_search_consider(s, other.choice, &v, best);
        more = cost(s, &v, best) - cost(s, &w->now, best);
    } else {
        best->evaluations++;
    }
    if (more <= most) {
        *w = other;
        w->now = v;
    }
    w->n_drawn = more > 0 ? drawn + 1 : drawn;
}

/* One restart: from the best before or, every second time, from anywhere. The
 * temperature begins where a mean step up is taken one time in three, but at a
 * tenth of the period at most (what exceeds memory makes the mean large), and
 * ends at a ten-thousandth of the period. */
static void walk(const struct weft_search *s, struct walk *w, int64_t n,
                 const struct weft_search_how *how,
                 struct weft_search_result *best)
{
    double up = 0;
    int32_t n_up = 0;
    for (int32_t c = 0; c < s->p->n_calls; c++)
        w->choice[c] = w->restart % 2 ? pick(w, s->p->call[c].n_options)
                                      : best->choice[c];
    w->now = weft_search_value(s, w->choice);
    for (int64_t i = 0; i < TRIALS && i < n; i++) {
        struct walk other = *w;
        double more = try(&other, best);
        w->n_drawn = other.n_drawn;
        up += more > 0 ? more : 0;
        n_up += more > 0;
    }
    double hot = n_up ? up / n_up : w->now.period, cold = 1e-4 * hot;
    if (hot > 0.1 * best->value.period)
        hot = 0.1 * best->value.period;
    if (cold > 1e-4 * best->value.period)
        cold = 1e-4 * best->value.period;
    for (int64_t i = 0; i < n - TRIALS; i++) {
        double t = hot * pow(cold / hot, (double) i / (double) n);
        step(w, t, best);
        if (i % ASK_EVERY == 0 && how->stop && how->stop(how->ctx)) {
            best->stopped = true;
            return;
        }
    }
}

/* Restarts begin with the same result and know nothing of one another. */
struct restarts {
    const struct weft_search *s;
    const struct weft_search_how *how;
    const struct weft_search_result *best;
    int32_t first, stride;
    struct weft_search_result *own;
};

static void restart(void *ctx, int64_t k)
{
    const struct restarts *r = ctx;
    int64_t i = r->first + k * r->stride;
    struct walk w = {
        .s = r->s, .seed = r->how->seed, .restart = (uint32_t) i};
    r->own[i] = *r->best;
    r->own[i].evaluations = 0;
    walk(r->s, &w, r->how->evaluations / r->how->restarts, r->how,
         &r->own[i]);
}

void weft_search_restart(const struct weft_search *s,
                         const struct weft_search_how *how,
                         const struct weft_search_result *best, int32_t first,
                         int32_t stride, struct weft_search_result *own)
{
    struct restarts r = {s, how, best, first, stride, own};
    weft_threads_run(how->n_threads,
                     weft_ceil_div(how->restarts - first, stride), restart,
                     &r);
}

/* What a restart has found counts, and its evaluations once. */
static void join(const struct weft_search *s,
                 const struct weft_search_result *own,
                 struct weft_search_result *best)
{
    int64_t evaluations = best->evaluations + own->evaluations;
    for (int32_t i = 0; i < own->n_finalists; i++)
        weft_search_consider(s, own->finalist[i].choice,
                             &own->finalist[i].value, best);
    weft_search_consider(s, own->choice, &own->value, best);
    best->evaluations = evaluations;
    best->stopped = best->stopped || own->stopped;
}

int weft_search_anneal(const struct weft_search *s,
                       const struct weft_search_how *how,
                       struct weft_search_result *best, struct weft_err *err)
{
    struct weft_search_how all = *how;
    struct weft_search_result *own;
    int rc = 0;
    all.restarts = how->restarts > 0 ? how->restarts : 4;
    if (how->evaluations < all.restarts || best->stopped)
        return 0;
    own = weft_alloc((size_t) all.restarts, sizeof *own);
    if (!own)
        return weft_err_nomem(err, "restarts",
                              (size_t) all.restarts * sizeof *own);
    if (how->spread)
        rc = how->spread(s, &all, best, own, err);
    else
        weft_search_restart(s, &all, best, 0, 1, own);
    for (int32_t i = 0; i < all.restarts && !rc; i++)
        join(s, &own[i], best);
    weft_free(own);
    return rc;
}
