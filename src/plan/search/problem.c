/* SPDX-License-Identifier: Apache-2.0 */
/* What is known before any option is chosen: cycles of calls, and the least
 * that each call adds to a bound. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/search/inside.h"

/* ---- Cycles ------------------------------------------------------------- */

struct path {
    struct weft_search *s;
    int32_t first;
    uint32_t seen, moves;
    int32_t height;
    int32_t maker, reader; /* the first that may overlap; -1: none */
};

/* Where calls overlap, a cycle for each part of results that is waited for: all
 * are bounds, and which is the longest depends on the options. */
static void keep(const struct path *p)
{
    struct weft_search *s = p->s;
    for (int32_t k = 0; k <= (p->reader < 0 ? 0 : WEFT_SEARCH_PARTS); k++)
        if (s->n_cycles < WEFT_SEARCH_CYCLES)
            s->cycle[s->n_cycles++] = (struct weft_search_cycle){
                p->seen, p->moves, 0, p->height, p->maker, p->reader, k};
}

/* Calls that read what `first` makes, or what is made of that, and that `last`
 * waits for; and `first`. */
static uint32_t between(const struct weft_search *s, int32_t first,
                        int32_t last)
{
    uint32_t after = 1u << first, before = s->p->call[last].before;
    for (int32_t k = 0; k < s->p->n_calls; k++)
        for (int32_t c = 0; c < s->p->n_calls; c++) {
            if (s->p->call[c].before & after)
                after |= 1u << c;
            if (before >> c & 1)
                before |= s->p->call[c].before;
        }
    return after & before;
}

/* From a training's end to its next begin, what follows from its weights is
 * done, whatever overlaps with what. */
static void keep_work(struct weft_search *s)
{
    for (int32_t c = 0; c < s->p->n_calls; c++) {
        int32_t t = s->trainer[c];
        uint32_t work = t >= 0 && t != c ? between(s, c, t) : 0;
        if (work && s->n_cycles < WEFT_SEARCH_CYCLES)
            s->cycle[s->n_cycles++] = (struct weft_search_cycle){
                1u << t, 1u << c, work, 1, -1, -1, 0};
    }
}

/* Follows all paths from call c on, over calls numbered from `first` on, which
 * come back there: each simple cycle once, from its lowest call. */
static void follow(struct path p, int32_t c)
{
    const struct weft_search *s = p.s;
    for (int32_t to = p.first; to < s->p->n_calls; to++) {
        bool now = s->p->call[to].before >> c & 1;
        bool later = s->trainer[to] == c; /* in the next iteration */
        if (!now && !later)
            continue;
        struct path q = p;
        if (now && q.reader < 0 && !s->p->call[to].trains) {
            q.maker = c;
            q.reader = to;
        }
        q.height += !now;
        q.moves |= now ? 0 : 1u << to;
        if (to == p.first && q.height > 0)
            keep(&q);
        if (to == p.first || (p.seen >> to & 1))
            continue;
        q.seen |= 1u << to;
        follow(q, to);
    }
}

/* The first is none, so that the bound of all devices together is there. */
static void find_cycles(struct weft_search *s)
{
    keep(&(struct path){.s = s, .height = 1, .maker = -1, .reader = -1});
    keep_work(s);
    for (int32_t c = 0; c < s->p->n_calls; c++)
        follow((struct path){.s = s,
                             .first = c,
                             .seen = 1u << c,
                             .maker = -1,
                             .reader = -1},
               c);
}

/* ---- Bounds ------------------------------------------------------------- */

double weft_search_length(const struct weft_search_cycle *cycle, int32_t call,
                          const struct weft_option *o)
{
    if (call == cycle->maker && cycle->part < WEFT_SEARCH_PARTS)
        return o->came[cycle->part] * o->seconds;
    if (call == cycle->reader)
        return (1 - (double) cycle->part / WEFT_SEARCH_PARTS) * o->seconds;
    return o->seconds;
}

double weft_search_part(const struct weft_search *s, int32_t k, int32_t w,
                        int32_t call, const struct weft_option *o)
{
    const struct weft_search_cycle *cycle = &s->cycle[k];
    double weight = weft_search_weight(w);
    double all = (double) s->p->n_nodes * s->p->n_devices;
    double work = o->share * o->seconds * weft_mesh_size(&o->plan.mesh) / all;
    double part = (1 - weight) * work;
    if (cycle->calls >> call & 1)
        part += weight * weft_search_length(cycle, call, o) / cycle->height;
    if (cycle->work >> call & 1)
        part += weight * work;
    return part;
}

static void find_least(struct weft_search *s)
{
    for (int32_t k = 0; k < s->n_cycles; k++) {
        for (int32_t w = 0; w < WEFT_SEARCH_WEIGHTS; w++) {
            for (int32_t c = 0; c < s->p->n_calls; c++) {
                const struct weft_search_call *call = &s->p->call[c];
                double least = INFINITY;
                for (int32_t i = 0; i < call->n_options; i++) {
                    double part = weft_search_part(s, k, w, c,
                                                   &call->option[i]);
                    least = part < least ? part : least;
                }
                s->least[k][w][c] = least;
            }
        }
    }
}

static bool trains(const struct weft_search_call *call, int32_t role)
{
    return call->trains
        && (call->role == role || (call->two && call->second == role));
}

double weft_search_least(const struct weft_search *s, int32_t call,
                         const struct weft_option *o)
{
    double most = 0;
    for (int32_t k = 0; k < s->n_cycles; k++) {
        for (int32_t w = 0; w < WEFT_SEARCH_WEIGHTS; w++) {
            double sum = weft_search_part(s, k, w, call, o);
            for (int32_t c = 0; c < s->p->n_calls; c++)
                sum += c == call ? 0 : s->least[k][w][c];
            most = sum > most ? sum : most;
        }
    }
    return most;
}

int weft_search_create(const struct weft_search_problem *problem,
                       struct weft_search **out, struct weft_err *err)
{
    if (problem->n_calls < 1 || problem->n_calls > WEFT_MAX_CALLS)
        return weft_err_set(err, WEFT_EINVAL,
                            "a search is for 1 to %d calls, not %d",
                            WEFT_MAX_CALLS, problem->n_calls);
    for (int32_t c = 0; c < problem->n_calls; c++)
        if (problem->call[c].n_options < 1)
            return weft_err_set(err, WEFT_EINVAL,
                                "call %d has no option: nothing that it "
                                "could be given fits the cluster",
                                c);
    struct weft_search *s = weft_alloc(1, sizeof *s);
    if (!s)
        return weft_err_nomem(err, "a search", sizeof *s);
    s->p = problem;
    s->timing = problem->n_calls - 1;
    for (int32_t c = problem->n_calls - 1; c >= 0; c--)
        if (problem->call[c].trains)
            s->timing = c;
    for (int32_t c = 0; c < problem->n_calls; c++) {
        const struct weft_search_call *call = problem->call;
        int32_t at = c;
        for (; at > 0
               && call[s->by_priority[at - 1]].priority < call[c].priority;
             at--)
            s->by_priority[at] = s->by_priority[at - 1];
        s->by_priority[at] = c;
        s->moving |= (uint32_t) call[c].moves << c;
        s->trainer[c] = -1;
        for (int32_t t = 0; t < problem->n_calls; t++)
            if (trains(&call[t], call[c].role))
                s->trainer[c] = t;
    }
    find_cycles(s);
    find_least(s);
    *out = s;
    return 0;
}

void weft_search_free(struct weft_search *s)
{
    weft_free(s);
}

const struct weft_search_problem *weft_search_problem_of(
    const struct weft_search *s)
{
    return s->p;
}

/* ---- All methods -------------------------------------------------------- */

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * b;
}

/* Plans with one value are likely one plan on other devices. */
static void keep_finalist(const struct weft_search *s, const int32_t *choice,
                          const struct weft_search_value *v,
                          struct weft_search_result *best)
{
    struct weft_search_finalist *f = best->finalist;
    int32_t n = best->n_finalists, at = n;
    while (at > 0 && v->period < f[at - 1].value.period)
        at--;
    if (at == WEFT_SEARCH_FINALISTS)
        return;
    for (int32_t i = 0; i < n; i++)
        if (near(f[i].value.period, v->period)
            && near(f[i].value.bytes, v->bytes))
            return;
    n -= n == WEFT_SEARCH_FINALISTS;
    memmove(f + at + 1, f + at, (size_t) (n - at) * sizeof *f);
    f[at].value = *v;
    memcpy(f[at].choice, choice,
           (size_t) s->p->n_calls * sizeof f[at].choice[0]);
    best->n_finalists = n + 1;
}

bool weft_search_counts(const struct weft_search *s,
                        const struct weft_search_value *v,
                        const struct weft_search_result *best)
{
    int32_t n = best->n_finalists;
    return weft_search_better(s, v, &best->value)
        || (v->bytes <= s->p->device_bytes
            && (n < WEFT_SEARCH_FINALISTS
                || v->period < best->finalist[n - 1].value.period));
}

void weft_search_consider(const struct weft_search *s, const int32_t *choice,
                          const struct weft_search_value *v,
                          struct weft_search_result *best)
{
    best->evaluations++;
    if (v->bytes <= s->p->device_bytes)
        keep_finalist(s, choice, v, best);
    if (!weft_search_better(s, v, &best->value))
        return;
    best->value = *v;
    memcpy(best->choice, choice,
           (size_t) s->p->n_calls * sizeof best->choice[0]);
}

/* A part of all that may be done is often enough to prove the best. */
enum { SOON = 8 };

/* Whether nothing shorter than what is known, of this problem or before, is
 * left. */
static bool is_proven(const struct weft_search *s,
                      const struct weft_search_how *how,
                      const struct weft_search_result *r)
{
    double most = r->value.bytes <= s->p->device_bytes ? r->value.period
                                                       : INFINITY;
    if (how->known > 0 && how->known < most)
        most = how->known;
    return most < INFINITY && r->bound >= most * (1 - WEFT_SEARCH_NEAR);
}

/* What a method does not have is not to be done. */
static struct weft_search_how only(const struct weft_search_how *how)
{
    enum weft_search_method m = how->method;
    struct weft_search_how all = *how;
    if (m != WEFT_SEARCH_ALL && m != WEFT_SEARCH_ANNEAL)
        all.evaluations = 0;
    if (m != WEFT_SEARCH_ALL && m != WEFT_SEARCH_BRANCHES)
        all.branches = 0;
    return all;
}

static struct weft_search_how some_of(const struct weft_search_how *how)
{
    struct weft_search_how few = *how;
    few.evaluations /= SOON;
    few.branches /= SOON;
    return few;
}

static int walk_and_prove(const struct weft_search *s,
                          const struct weft_search_how *how,
                          struct weft_search_result *best,
                          struct weft_err *err)
{
    int rc = weft_search_anneal(s, how, best, err);
    return rc ? rc : weft_search_branch(s, how, best, err);
}

const char *weft_search_method_name(enum weft_search_method method)
{
    static const char *const name[] = {"all", "greedy", "anneal", "branches",
                                       "exhaustive"};
    return name[method];
}

int weft_search_run(const struct weft_search *s,
                    const struct weft_search_how *how,
                    struct weft_search_result *out, struct weft_err *err)
{
    const struct weft_search_how all = only(how), few = some_of(&all);
    *out = (struct weft_search_result){.value = {INFINITY, 0, INFINITY},
                                       .any_order = INFINITY};
    weft_search_greedy(s, &all, out);
    int rc = walk_and_prove(s, &few, out, err);
    if (!rc && how->method == WEFT_SEARCH_EXHAUSTIVE)
        rc = weft_search_every(s, &all, out, err);
    else if (!rc && !out->stopped && !is_proven(s, &all, out))
        rc = walk_and_prove(s, &all, out, err);
    out->any_order = fmin(out->any_order, out->bound);
    out->fits = out->value.bytes <= s->p->device_bytes;
    return rc;
}
