/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Branch and bound: calls take options one after another, those first that
 * weigh most. What the options taken so far and the least of all others come to
 * in each mixture of bounds (inside.h) is a bound of everything below; it is
 * left out where that is no better than the best. Where there are too many
 * branches for that, whatever is below a lower limit is looked at instead, which
 * proves that limit; what is between it and the best is the gap.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/search/inside.h"

enum {
    ASK_EVERY = 1 << 12,
    BOUNDS = WEFT_SEARCH_CYCLES * WEFT_SEARCH_WEIGHTS
};

struct child {
    double bound;
    int32_t option;
};

struct branching {
    const struct weft_search *s;
    const struct weft_search_how *how;
    struct weft_search_result *best;
    int32_t order[WEFT_MAX_CALLS]; /* of calls */
    int32_t choice[WEFT_MAX_CALLS];
    struct child *child[WEFT_MAX_CALLS]; /* (n_options) of each depth */
    double
        *part[WEFT_MAX_CALLS]; /* (n_options, n_bounds) of a call's options:
                                     what each adds to a bound */
    int32_t n_bounds;
    int64_t n_taken;        /* options */
    double (*sum)[BOUNDS];  /* (n_calls + 1) of the options taken */
    double (*rest)[BOUNDS]; /* (n_calls + 1) least of the others */
    /* bytes that the options taken hold of all devices together, and the others
     * at least, (n_calls + 1) each */
    double held[WEFT_MAX_CALLS + 1], rest_held[WEFT_MAX_CALLS + 1];
    bool mirrors;     /* devices can be exchanged */
    double below;     /* what is not less is left out */
    int64_t branches; /* after so many it ends */
    double any_order; /* the lowest bound of choices that were played */
    double unplayed;  /* and of those with images that were not */
    bool cut;
};

static int compare(const void *a, const void *b)
{
    const struct child *x = a, *y = b;
    if (x->bound < y->bound || x->bound > y->bound)
        return x->bound < y->bound ? -1 : 1;
    return x->option < y->option ? -1 : 1;
}

/* The bounds of what begins with the options of the calls before depth d and
 * one of this call's. */
static void list_children(struct branching *b, int32_t d)
{
    int32_t c = b->order[d], n = b->s->p->call[c].n_options;
    const double *part = b->part[c];
    double base[BOUNDS];
    for (int32_t at = 0; at < b->n_bounds; at++)
        base[at] = b->sum[d][at] + b->rest[d + 1][at];
    for (int32_t i = 0; i < n; i++, part += b->n_bounds) {
        double most = 0;
        for (int32_t at = 0; at < b->n_bounds; at++)
            most = base[at] + part[at] > most ? base[at] + part[at] : most;
        b->child[d][i] = (struct child){most, i};
    }
    b->best->branches += n;
    qsort(b->child[d], (size_t) n, sizeof *b->child[d], compare);
}

static double held(const struct weft_option *o)
{
    return o->held * weft_mesh_size(&o->plan.mesh);
}

/* Whether the options taken, and one more, leave room for the others. */
static bool leaves_room(const struct branching *b, int32_t d,
                        const struct weft_option *o)
{
    const struct weft_search_problem *p = b->s->p;
    return b->held[d] + held(o) + b->rest_held[d + 1]
            <= p->device_bytes * p->n_nodes * p->n_devices
        && weft_search_bytes(b->s, b->choice, b->order, d + 1)
               <= p->device_bytes;
}

static void take(struct branching *b, int32_t d, int32_t option)
{
    int32_t c = b->order[d];
    b->held[d + 1] = b->held[d] + held(&b->s->p->call[c].option[option]);
    const double *part = b->part[b->order[d]]
                       + (int64_t) option * b->n_bounds;
    for (int32_t at = 0; at < b->n_bounds; at++)
        b->sum[d + 1][at] = b->sum[d][at] + part[at];
}

static bool fits(const struct branching *b)
{
    return b->best->value.bytes <= b->s->p->device_bytes;
}

/* No choice counts that is not shorter. */
static double most(const struct branching *b)
{
    double period = fits(b) ? b->best->value.period : INFINITY;
    double known = b->how->known;
    return fmin(known > 0 && known < period ? known : period, b->below);
}

static void play(void *ctx, const int32_t *choice)
{
    struct branching *b = ctx;
    struct weft_search_value v = weft_search_value(b->s, choice);
    weft_search_consider(b->s, choice, &v, b->best);
}

/* Choices that cannot be better are not played. */
static void leaf(struct branching *b)
{
    double bound = weft_search_bound(b->s, b->choice);
    int32_t n = b->s->p->n_calls;
    if (bound >= most(b)
        || weft_search_bytes(b->s, b->choice, b->order, n)
               > b->s->p->device_bytes) {
        b->best->evaluations++;
        return;
    }
    b->any_order = fmin(b->any_order, bound);
    play(b, b->choice);
    if (b->mirrors && !weft_search_images(b->s, b->choice, play, b))
        b->unplayed = fmin(b->unplayed, bound);
}

static bool spent(struct branching *b)
{
    if (!b->cut && b->best->branches >= b->branches)
        b->cut = true;
    if (!b->cut && ++b->n_taken % ASK_EVERY == 0 && b->how->stop
        && b->how->stop(b->how->ctx))
        b->cut = b->best->stopped = true;
    return b->cut;
}

static void descend(struct branching *b, int32_t d)
{
    const struct weft_search *s = b->s;
    if (d == s->p->n_calls) {
        leaf(b);
        return;
    }
    int32_t c = b->order[d];
    const struct weft_search_call *call = &s->p->call[c];
    struct child *child = b->child[d];
    list_children(b, d);
    for (int32_t i = 0; i < call->n_options; i++) {
        if (child[i].bound >= most(b))
            return; /* and so are the others */
        if (spent(b))
            return;
        b->choice[c] = child[i].option;
        const struct weft_option *o = &call->option[child[i].option];
        if (b->mirrors
            && weft_search_is_mirrored(s, b->choice, b->order, d,
                                       &o->plan.mesh))
            continue;
        if (!leaves_room(b, d, o))
            continue;
        take(b, d, child[i].option);
        descend(b, d + 1);
    }
}

/* Calls that weigh most come first; ties: by number. */
static void set_order(struct branching *b)
{
    const struct weft_search *s = b->s;
    double weight[WEFT_MAX_CALLS] = {0};
    for (int32_t c = 0; c < s->p->n_calls; c++) {
        for (int32_t k = 0; k < s->n_cycles; k++)
            weight[c] += s->least[k][WEFT_SEARCH_WEIGHTS / 2][c];
        int32_t at = c;
        for (; at > 0 && weight[b->order[at - 1]] < weight[c]; at--)
            b->order[at] = b->order[at - 1];
        b->order[at] = c;
    }
    for (int32_t d = s->p->n_calls - 1; d >= 0; d--) {
        const struct weft_search_call *call = &s->p->call[b->order[d]];
        double least = INFINITY;
        for (int32_t i = 0; i < call->n_options; i++)
            least = fmin(least, held(&call->option[i]));
        b->rest_held[d] = b->rest_held[d + 1] + least;
        for (int32_t k = 0; k < s->n_cycles; k++)
            for (int32_t w = 0; w < WEFT_SEARCH_WEIGHTS; w++) {
                int32_t at = k * WEFT_SEARCH_WEIGHTS + w;
                b->rest[d][at] = b->rest[d + 1][at]
                               + s->least[k][w][b->order[d]];
            }
    }
}

static double root_bound(const struct branching *b)
{
    double most = 0;
    for (int32_t at = 0; at < b->s->n_cycles * WEFT_SEARCH_WEIGHTS; at++)
        most = b->rest[0][at] > most ? b->rest[0][at] : most;
    return most;
}

static void set_parts(struct branching *b, int32_t call)
{
    const struct weft_search_call *c = &b->s->p->call[call];
    double *part = b->part[call];
    for (int32_t i = 0; i < c->n_options; i++)
        for (int32_t k = 0; k < b->s->n_cycles; k++)
            for (int32_t w = 0; w < WEFT_SEARCH_WEIGHTS; w++)
                *part++ = weft_search_part(b->s, k, w, call, &c->option[i]);
}

static bool make_room(struct branching *b)
{
    int32_t n = b->s->p->n_calls;
    b->sum = weft_alloc((size_t) n + 1, sizeof *b->sum);
    b->rest = weft_alloc((size_t) n + 1, sizeof *b->rest);
    bool ok = b->sum && b->rest;
    for (int32_t d = 0; d < n; d++) {
        int32_t most = 0; /* the order is not known yet */
        for (int32_t c = 0; c < n; c++)
            most = b->s->p->call[c].n_options > most
                     ? b->s->p->call[c].n_options
                     : most;
        b->child[d] = weft_alloc((size_t) most, sizeof *b->child[d]);
        b->part[d] = weft_alloc((size_t) b->s->p->call[d].n_options
                                    * (size_t) b->n_bounds,
                                sizeof *b->part[d]);
        ok = ok && b->child[d] && b->part[d];
    }
    return ok;
}

/* Looks at all that may be less than `below`, and than the best, in so many
 * branches; whether these are enough, so that nothing else is. */
static bool prove(struct branching *b, double below, int64_t branches)
{
    b->below = below;
    b->branches = b->best->branches + branches;
    b->cut = false;
    descend(b, 0);
    if (!b->cut && most(b) < INFINITY)
        b->best->bound = fmax(b->best->bound, fmin(most(b), b->unplayed));
    return !b->cut;
}

/* Proves that nothing is better than the best or, where that takes too many
 * branches, that nothing is below a limit, the highest that can be. */
static void raise_bound(struct branching *b)
{
    const double near = 1e-3;
    int64_t end = b->best->branches + b->how->branches;
    if (prove(b, INFINITY, b->how->branches / 4))
        return;
    b->below = INFINITY;
    double high = most(b);
    while (high < INFINITY && high - b->best->bound > near * high
           && b->best->branches < end && !b->best->stopped) {
        double middle = (b->best->bound + high) / 2;
        if (!prove(b, middle, (end - b->best->branches + 1) / 2))
            high = middle;
        b->below = INFINITY;
        high = fmin(high, most(b));
    }
}

int weft_search_branch(const struct weft_search *s,
                       const struct weft_search_how *how,
                       struct weft_search_result *best, struct weft_err *err)
{
    struct branching b = {.s = s,
                          .how = how,
                          .best = best,
                          .n_bounds = s->n_cycles * WEFT_SEARCH_WEIGHTS,
                          .mirrors = weft_search_has_mirrors(s->p),
                          .any_order = INFINITY,
                          .unplayed = INFINITY};
    int rc = 0;
    if (!make_room(&b)) {
        rc = weft_err_nomem(err, "a search", sizeof b);
    } else {
        for (int32_t c = 0; c < s->p->n_calls; c++)
            set_parts(&b, c);
        set_order(&b);
        /* what was proven before stays so, with what was played for it */
        best->bound = fmax(best->bound, root_bound(&b));
        if (how->known > 0 && how->known < best->bound)
            best->bound = how->known;
        if (how->branches > 0 && !best->stopped)
            raise_bound(&b);
        if (s->p->left_out_s > 0 && s->p->left_out_s < best->bound)
            best->bound = s->p->left_out_s;
        best->any_order = fmin(best->any_order, b.any_order);
    }
    for (int32_t d = 0; d < s->p->n_calls; d++) {
        weft_free(b.child[d]);
        weft_free(b.part[d]);
    }
    weft_free(b.sum);
    weft_free(b.rest);
    return rc;
}
