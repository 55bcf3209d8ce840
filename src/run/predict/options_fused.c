/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused training as options: a layout of each of two trained models on one
 * mesh, with what no schedule undercuts (fuse/least.h). These are another
 * problem for the search, in which both trainings are one call.
 *
 * A pair that takes no less than both models one after another is left out, as
 * no bound is worse where they are not fused: each waits no longer for its own
 * training, their devices have the same work, and weights move less, as other
 * calls' stages lie as those of training that is not fused.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "fuse/least.h"
#include "run/predict/options_inside.h"

bool weft_finding_fuses(struct weft_finding *f)
{
    const struct weft_dataflow *flow = f->needs->flow;
    int32_t n = 0;
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_trains(flow, c)) {
            if (n < 2)
                f->fused[n] = c;
            n++;
        }
    return n == 2 && !f->needs->cluster
        && (!f->config->train.schedule
            || f->config->train.intra_stage_fusion);
}

double weft_finding_busy_s(const struct weft_option *o)
{
    double idle = (1 - o->share) / WEFT_FINDING_BUBBLES;
    return o->seconds * (1 - fmin(idle, 1));
}

static struct weft_fuse_call fuse_call(const struct weft_finding *f,
                                       int32_t call,
                                       const struct weft_option *o,
                                       int32_t steps)
{
    int32_t groups = f->needs->gradient_groups;
    return (struct weft_fuse_call){
        .shape = f->needs->shape[f->needs->flow->call[call].role],
        .plan = &o->plan,
        .micro_batches = o->plan.micro_batches
                       * (int32_t) weft_ceil_div(groups, o->plan.dp),
        .busy_s = weft_finding_busy_s(o) / steps,
        .passes_s = fmin(o->passes_s, weft_finding_busy_s(o)) / steps};
}

/* Those that both pass their stages, cut into a number of micro-batches. */
static bool can_pair(const struct weft_option *a, const struct weft_option *b)
{
    return memcmp(&a->plan.mesh, &b->plan.mesh, sizeof a->plan.mesh) == 0
        && (a->plan.pp > 1 || b->plan.pp > 1) && a->plan.micro_batches > 0
        && b->plan.micro_batches > 0 && a->plan.zero <= 1 && b->plan.zero <= 1
        && weft_fuse_fits(&a->plan, &b->plan);
}

static bool same_degrees(const struct weft_call_plan *a,
                         const struct weft_call_plan *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->pp == b->pp;
}

/* Whether a pair makes another one on its mesh needless, with the same degrees,
 * with which weights move alike. */
static bool dominates(const struct weft_option *a,
                      const struct weft_option *b)
{
    return a->seconds <= b->seconds
        && a->share * a->seconds <= b->share * b->seconds
        && a->held <= b->held && a->active <= b->active;
}

/* Keeps a pair unless there is one as good, and loses those that it is better
 * than; `first`: of those with its degrees, which follow one another. */
static int keep(struct weft_finding *f, int32_t first,
                const struct weft_option *o, struct weft_err *err)
{
    struct weft_option *v = f->variant[0];
    int32_t n = first;
    for (int32_t i = first; i < f->n_variants[0]; i++)
        if (dominates(&v[i], o))
            return 0;
    for (int32_t i = first; i < f->n_variants[0]; i++)
        if (!dominates(o, &v[i]))
            v[n++] = v[i];
    f->n_variants[0] = n;
    return weft_finding_add(f, 0, o, err);
}

static int pair(struct weft_finding *f, const struct weft_option *a,
                const struct weft_option *b, int32_t first,
                struct weft_err *err)
{
    int32_t steps = f->steps;
    const struct weft_fuse_call call[2] = {
        fuse_call(f, f->fused[0], a, steps),
        fuse_call(f, f->fused[1], b, steps)};
    double both = a->seconds + b->seconds, seconds;
    double busy = weft_finding_busy_s(a) + weft_finding_busy_s(b);
    if (busy >= both)
        return 0;
    int rc = weft_fuse_least(call, steps, &seconds, err);
    if (rc || seconds >= both)
        return rc;
    struct weft_option o = {
        .plan = a->plan,
        .with = b->plan,
        .seconds = seconds,
        .share = 1 - WEFT_FINDING_BUBBLES * fmax(1 - busy / seconds, 0),
        .held = a->held + b->held,
        .active = a->active + b->active};
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++)
        o.came[k] = 1;
    o.plan.contiguous = o.with.contiguous = o.with.reversed = true;
    return keep(f, first, &o, err);
}

/* All pairs with the degrees of two options. */
static int pair_degrees(struct weft_finding *f, int32_t i, int32_t j,
                        struct weft_err *err)
{
    const struct weft_option *a = f->variant[f->fused[0]];
    const struct weft_option *b = f->variant[f->fused[1]];
    int32_t n_a = f->n_variants[f->fused[0]];
    int32_t n_b = f->n_variants[f->fused[1]], first = f->n_variants[0];
    int rc = 0;
    for (int32_t x = i; x < n_a && !rc && !f->stopped; x++) {
        if (!same_degrees(&a[x].plan, &a[i].plan))
            continue;
        for (int32_t y = j; y < n_b && !rc; y++)
            if (same_degrees(&b[y].plan, &b[j].plan)
                && can_pair(&a[x], &b[y])) {
                f->n_pairs++;
                rc = pair(f, &a[x], &b[y], first, err);
            }
        f->stopped = weft_finding_stops(f);
    }
    return rc;
}

/* Whether no option before has the degrees. */
static bool is_first(const struct weft_option *v, int32_t i)
{
    for (int32_t k = 0; k < i; k++)
        if (same_degrees(&v[k].plan, &v[i].plan)
            && weft_mesh_size(&v[k].plan.mesh)
                   == weft_mesh_size(&v[i].plan.mesh))
            return false;
    return true;
}

int weft_finding_pair(struct weft_finding *f, struct weft_err *err)
{
    const struct weft_option *a = f->variant[f->fused[0]];
    const struct weft_option *b = f->variant[f->fused[1]];
    int rc = 0;
    for (int32_t i = 0; i < f->n_variants[f->fused[0]] && !rc; i++)
        for (int32_t j = 0; j < f->n_variants[f->fused[1]] && !rc
                            && is_first(a, i) && !f->stopped;
             j++)
            if (is_first(b, j)
                && weft_mesh_size(&a[i].plan.mesh)
                       == weft_mesh_size(&b[j].plan.mesh)
                && weft_fuse_fits(&a[i].plan, &b[j].plan))
                rc = pair_degrees(f, i, j, err);
    return rc;
}

/* ---- The problem -------------------------------------------------------- */

/* A set of calls when the second of the two is the first. */
static uint32_t without(uint32_t set, int32_t first, int32_t second)
{
    uint32_t below = (1u << second) - 1;
    if (set >> second & 1)
        set |= 1u << first;
    return (set & below) | (set >> 1 & ~below);
}

/* Options are copied, as those that are needed differ. */
static int copy_options(struct weft_finding *f, struct weft_search_problem *p,
                        struct weft_err *err)
{
    for (int32_t i = 0; i < p->n_calls; i++) {
        size_t n = (size_t) p->call[i].n_options;
        f->copy[i] = weft_alloc(n + 1, sizeof **f->copy);
        if (!f->copy[i])
            return weft_err_nomem(err, "options", n * sizeof **f->copy);
        memcpy(f->copy[i], p->call[i].option, n * sizeof **f->copy);
        p->call[i].option = f->copy[i];
    }
    return 0;
}

int weft_finding_fuse(struct weft_finding *f,
                      const struct weft_search_problem *plain,
                      struct weft_search_problem *out, struct weft_err *err)
{
    const struct weft_dataflow *flow = f->needs->flow;
    int32_t first = -1, second = -1, n = 0;
    *out = *plain;
    for (int32_t i = 0; i < plain->n_calls; i++) {
        first = f->call_of[i] == f->fused[0] ? i : first;
        second = f->call_of[i] == f->fused[1] ? i : second;
    }
    weft_assert(0 <= first && first < second);
    for (int32_t i = 0; i < plain->n_calls; i++) {
        struct weft_search_call *c = &out->call[n];
        if (i == second)
            continue;
        f->fused_call_of[n++] = f->call_of[i];
        *c = plain->call[i];
        c->behind = 0; /* a schedule of both leaves nothing behind */
        if (i == first) {
            c->option = f->option[0];
            c->n_options = f->n_options[0];
            c->two = true;
            c->second = flow->call[f->fused[1]].role;
            c->before |= plain->call[second].before;
        }
        c->before = without(c->before, first, second)
                  & ~(i == first ? 1u << first : 0);
    }
    out->n_calls = n;
    for (int32_t k = 0; k < out->n_together; k++)
        out->together[k] = without(out->together[k], first, second);
    int rc = copy_options(f, out, err);
    return rc ? rc : weft_search_prune(out, f->copy, err);
}
