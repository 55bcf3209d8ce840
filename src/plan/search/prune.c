/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that another one of the same call and mesh makes needless: whatever
 * else is chosen, no bound of the plan with the other one is worse, and it fits
 * as well. Its period may be, in rare cases, as where a call that ends sooner
 * is in the way of another (Graham, 1969).
 *
 * With the same degrees weights move alike, so it is enough to take no longer,
 * to need no more of its devices, to have no results later, and to need no more
 * memory. With other degrees moves from a training may take longer, by as much
 * as it is faster. Moves to a call may not, as a bound can have the move and
 * what other devices do then, but not that the call is faster. An option whose
 * weights have no copy as they lie like another call's may leave only for one
 * that has room for the copy. Where calls have a trunk only options that lie
 * alike are compared: with others the same weights may be there twice.
 */
#include <math.h>
#include <string.h>

#include "plan/search/inside.h"

/* Of calls with more, only options with the same degrees are compared. */
enum { MOST_NEIGHBOURS = 4096 };

/* The most that a move of a role that two calls have, between one option of the
 * first or the other and those of the second, takes longer with `a` than with
 * `b`. copies: the bytes are added that a copy takes where b needs none and a
 * does. */
static double longer(const struct weft_search *s, int32_t call,
                     const struct weft_option *a, const struct weft_option *b,
                     int32_t neighbour, double *copies)
{
    const struct weft_search_call *other = &s->p->call[neighbour];
    bool trains = s->p->call[call].trains;
    int32_t role = trains ? other->role : s->p->call[call].role;
    const struct weft_call_plan *of_a = weft_search_layout(s, call, a, role);
    const struct weft_call_plan *of_b = weft_search_layout(s, call, b, role);
    double most = 0, largest = 0;
    if (other->n_options > MOST_NEIGHBOURS)
        return INFINITY;
    for (int32_t i = 0; i < other->n_options; i++) {
        const struct weft_option *o = &other->option[i];
        const struct weft_call_plan *n = weft_search_layout(s, neighbour, o,
                                                            role);
        double with_a = trains ? weft_search_way(s, role, of_a, n)
                               : weft_search_way(s, role, n, of_a);
        double with_b = trains ? weft_search_way(s, role, of_b, n)
                               : weft_search_way(s, role, n, of_b);
        if (weft_plan_lies_alike(of_b, n)) {
            double copy = trains ? o->weights : a->weights;
            largest = copy > largest ? copy : largest;
        }
        most = with_a - with_b > most ? with_a - with_b : most;
    }
    *copies += largest;
    return most;
}

/* Whether results of a, which begins `slower` seconds after b, are never
 * later. */
static bool no_later(const struct weft_option *a, double slower,
                     const struct weft_option *b)
{
    bool ok = a->seconds + slower <= b->seconds;
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++)
        ok = ok
          && a->came[k] * a->seconds + slower <= b->came[k] * b->seconds;
    return ok;
}

/* Whether calls of the role need no copies of weights with a that they do not
 * need with b. With ZeRO 3 they have one whatever their layout, but where the
 * model has a trunk only while they run. */
static bool needs_no_more_copies(const struct weft_search_call *c,
                                 const struct weft_option *a,
                                 const struct weft_option *b)
{
    bool a_cuts = a->plan.zero >= 3, b_cuts = b->plan.zero >= 3;
    return weft_plan_lies_alike(&a->plan, &b->plan)
        && (!c->two || weft_plan_lies_alike(&a->with, &b->with))
        && (c->trunk > 0 ? a_cuts == b_cuts : a_cuts <= b_cuts);
}

/* Whether no device has more work with a. */
static bool works_no_more(const struct weft_option *a,
                          const struct weft_option *b)
{
    bool ok = a->share * a->seconds <= b->share * b->seconds;
    for (int32_t k = 0; k < WEFT_CLUSTER_KINDS; k++)
        ok = ok && weft_search_work(a, k) <= weft_search_work(b, k);
    return ok;
}

bool weft_search_dominates(const struct weft_search *s, int32_t call,
                           const struct weft_option *a,
                           const struct weft_option *b)
{
    const struct weft_search_call *c = &s->p->call[call];
    double slower = 0, copies = 0;
    if (!weft_search_same_mesh(&a->plan.mesh, &b->plan.mesh)
        || a->seconds > b->seconds || !works_no_more(a, b)
        || !no_later(a, 0, b) || a->held > b->held || a->active > b->active
        || a->weights > b->weights || (a->gang && !b->gang)
        || (!a->any_device && b->any_device))
        return false;
    if ((s->trainer[call] < 0 && c->trunk == 0)
        || needs_no_more_copies(c, a, b))
        return true;
    if (c->trunk > 0)
        return false;
    for (int32_t i = 0; i < s->p->n_calls; i++)
        if (i != call && s->trainer[i] == s->trainer[call]
            && (c->trains || i == s->trainer[call]))
            slower = fmax(slower, longer(s, call, a, b, i, &copies));
    return no_later(a, slower, b)
        && (c->trains ? a->held + copies <= b->held
                      : slower <= 0 && a->active + copies <= b->active);
}

/* Of n options on one mesh, those that are needed come first. Returns how
 * many. Of two that are as good the first stays. */
static int32_t prune(const struct weft_search *s, int32_t call,
                     struct weft_option *option, int32_t n)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct weft_option *o = &option[i];
        bool needed = true;
        for (int32_t k = 0; k < kept && needed; k++)
            needed = !weft_search_dominates(s, call, &option[k], o);
        for (int32_t k = i + 1; k < n && needed; k++)
            needed = !weft_search_dominates(s, call, &option[k], o)
                  || weft_search_dominates(s, call, o, &option[k]);
        if (needed)
            option[kept++] = *o;
    }
    return kept;
}

int weft_search_prune(struct weft_search_problem *p,
                      struct weft_option *const *option, struct weft_err *err)
{
    struct weft_search *s;
    int rc = weft_search_create(p, &s, err);
    if (rc)
        return rc;
    for (int32_t c = 0; c < p->n_calls; c++) {
        struct weft_option *o = option[c];
        int32_t kept = 0, n = p->call[c].n_options;
        for (int32_t i = 0, end; i < n; i = end) {
            for (end = i + 1; end < n
                              && weft_search_same_mesh(&o[i].plan.mesh,
                                                       &o[end].plan.mesh);)
                end++;
            int32_t needed = prune(s, c, o + i, end - i);
            memmove(o + kept, o + i, (size_t) needed * sizeof *o);
            kept += needed;
        }
        p->call[c].n_options = kept;
    }
    weft_search_free(s);
    return 0;
}
