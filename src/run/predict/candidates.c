/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layouts are priced. Of every layout it is known what it takes at least
 * (weft_pricer_least()), so of every one also a period that no plan with it
 * undercuts. A few layouts, the most promising of each size of mesh, are priced
 * and searched among; those with which no plan is nearly as good as the one
 * that is found are never priced, the others are, and what is found becomes
 * better meanwhile.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "run/predict/candidates_inside.h"

/* Layouts are left out that cannot be in a plan that takes less than this times
 * the best known: among 20 finalists simulations choose another plan than the
 * model, by whose error the model's best may be worse. */
static const double NEARLY = 1.05;

enum {
    PROBES = 2,   /* layouts that fit, of each call and size of mesh */
    TRIES = 6,    /* that are priced to find these */
    BATCH = 64,   /* layouts that are priced between two searches, at least */
    WALKED = 5000 /* evaluations of such a search */
};

static bool is_listed(const struct weft_candidates *list,
                      const struct weft_call_plan *plan)
{
    for (int32_t k = 0; k < list->n; k++)
        if (memcmp(&list->at[k].plan, plan, sizeof *plan) == 0)
            return true;
    return false;
}

int weft_candidate_add(struct weft_finding *f, int32_t call,
                       const struct weft_call_plan *at, struct weft_err *err)
{
    struct weft_candidates *list = &f->candidates[call];
    struct weft_call_plan fixed = *at;
    if (!weft_fixed_apply(&f->fixed, call, &fixed)
        || (fixed.zero == 3 && !weft_price_can(f->needs, call, &fixed))
        || (f->fixed.any && is_listed(list, &fixed)))
        return 0;
    if (!weft_finding_grow(&list->at, list->n, &list->room, sizeof *list->at))
        return weft_err_nomem(err, "layouts", sizeof *list->at);
    list->at[list->n++] = (struct weft_candidate){
        .plan = fixed, .least = weft_pricer_least(f->pricer, &fixed, call)};
    return 0;
}

/* ---- What is known so far ------------------------------------------------ */

/* The shortest plan that is known: its period, and what calls take of all
 * devices' time in it. */
struct shortest {
    double period, work[WEFT_MAX_CALLS];
};

/* Sets it, where layouts that are priced make a shorter one that fits. */
static int estimate(struct weft_finding *f, struct shortest *shortest,
                    struct weft_err *err)
{
    struct weft_search_problem p;
    struct weft_search_result r;
    struct weft_search *s = NULL;
    struct weft_search_how how = f->find->how;
    int64_t n = 0;
    how.method = WEFT_SEARCH_ALL;
    how.evaluations = WALKED;
    how.branches = 0;
    for (int32_t c = 1; c < f->needs->flow->n_calls; c++)
        if (weft_flow_placed(f->needs->flow, c) && f->n_variants[c] == 0)
            return 0;
    int rc = weft_finding_problem(f, &p, &n, err);
    if (!rc)
        rc = weft_search_create(&p, &s, err);
    if (!rc)
        rc = weft_search_run(s, &how, &r, err);
    if (!rc && r.fits && r.value.period < shortest->period) {
        shortest->period = r.value.period;
        for (int32_t i = 0; i < p.n_calls; i++) {
            const struct weft_option *o = &p.call[i].option[r.choice[i]];
            shortest->work[f->call_of[i]] = o->seconds
                                          * weft_mesh_size(&o->plan.mesh);
        }
    }
    weft_search_free(s);
    return rc;
}

/* What an option adds to bounds at least: of training that may be fused only
 * the work, as the pipelines of two models have less to wait for together. */
static struct weft_option least_of(struct weft_finding *f, int32_t call,
                                   const struct weft_option *o)
{
    struct weft_option least = *o;
    if (!weft_flow_trains(f->needs->flow, call) || !weft_finding_fuses(f))
        return least;
    double idle = fmin((1 - o->share) / WEFT_FINDING_BUBBLES, 1);
    least.seconds *= 1 - idle;
    least.share = 1;
    return least;
}

/* An option with what a layout takes at least. */
static struct weft_option optimistic(struct weft_finding *f, int32_t call,
                                     const struct weft_candidate *c)
{
    bool generates = f->needs->flow->call[call].kind == WEFT_GENERATE;
    struct weft_priced priced = {.seconds = c->least.seconds,
                                 .busy_s = c->least.busy_s};
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++)
        priced.came[k] = generates ? 0 : 1;
    const struct weft_option o = weft_finding_option(f, call, &c->plan,
                                                     &priced);
    return least_of(f, call, &o);
}

/* All layouts that are priced or may be, each on one mesh: no plan undercuts
 * the least of this problem. option: (WEFT_MAX_CALLS), to be freed. */
static int open_problem(struct weft_finding *f, struct weft_search_problem *p,
                        struct weft_option **option, struct weft_err *err)
{
    weft_finding_set_problem(f, p);
    for (int32_t i = 0; i < p->n_calls; i++) {
        int32_t c = f->call_of[i], n = f->n_variants[c];
        const struct weft_candidates *list = &f->candidates[c];
        option[c] = weft_alloc((size_t) (n + list->n) + 1, sizeof **option);
        if (!option[c])
            return weft_err_nomem(err, "options", sizeof **option);
        for (int32_t k = 0; k < n; k++)
            option[c][k] = least_of(f, c, &f->variant[c][k]);
        for (int32_t k = 0; k < list->n; k++)
            if (!list->at[k].closed)
                option[c][n++] = optimistic(f, c, &list->at[k]);
        p->call[i].option = option[c];
        p->call[i].n_options = n;
        int rc = n > 0 ? 0 : weft_finding_check_priced(f, c, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Leaves out the layouts of a call, priced or not, that no plan has that is
 * nearly as short as `shortest`. */
static void leave_out(struct weft_finding *f, const struct weft_search *s,
                      int32_t i, double shortest)
{
    int32_t c = f->call_of[i], kept = 0;
    struct weft_candidates *list = &f->candidates[c];
    double most = NEARLY * shortest;
    for (int32_t k = 0; k < list->n; k++) {
        struct weft_candidate *at = &list->at[k];
        if (at->closed)
            continue;
        const struct weft_option o = optimistic(f, c, at);
        at->bound = weft_search_least(s, i, &o);
        at->closed = at->bound >= most;
        if (at->closed)
            f->left_out_s = fmin(f->left_out_s, at->bound);
    }
    for (int32_t k = 0; k < f->n_variants[c]; k++) {
        const struct weft_option o = least_of(f, c, &f->variant[c][k]);
        double bound = weft_search_least(s, i, &o);
        if (bound < most)
            f->variant[c][kept++] = f->variant[c][k];
        else
            f->left_out_s = fmin(f->left_out_s, bound);
    }
    f->n_variants[c] = kept;
}

/* Sets bounds, and leaves out what they allow. */
static int bound(struct weft_finding *f, double shortest,
                 struct weft_err *err)
{
    struct weft_option *option[WEFT_MAX_CALLS] = {NULL};
    struct weft_search_problem p;
    struct weft_search *s = NULL;
    int rc = open_problem(f, &p, option, err);
    if (!rc)
        rc = weft_search_create(&p, &s, err);
    for (int32_t i = 0; i < p.n_calls && !rc; i++)
        leave_out(f, s, i, shortest);
    weft_search_free(s);
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        weft_free(option[c]);
    return rc;
}

/* ---- The order ----------------------------------------------------------- */

/* How much each call may take of a device so that all fit together. */
static double share_of(const struct weft_finding *f)
{
    int32_t n = 0;
    for (int32_t c = 1; c < f->needs->flow->n_calls; c++)
        n += weft_flow_placed(f->needs->flow, c);
    return (double) f->needs->device_bytes / n;
}

/* Layers of the largest stage. */
static int32_t largest_stage(const struct weft_shape *s, int32_t pp)
{
    int32_t first[WEFT_MAX_STAGES + 1], most = 0;
    weft_plan_stages(s, pp, first);
    for (int32_t i = 0; i < pp; i++)
        most = weft_max32(most, first[i + 1] - first[i]);
    return most;
}

/* Whether a layout's weights, gradients and optimizer state are no more than so
 * many bytes of a device. */
static bool is_slim(const struct weft_finding *f, int32_t call,
                    const struct weft_call_plan *at, double bytes)
{
    const struct weft_shape *s =
        f->needs->shape[f->needs->flow->call[call].role];
    struct weft_shape stage = *s;
    stage.n_layers = largest_stage(s, at->pp);
    double n = (double) weft_shape_n_params(&stage) / at->tp;
    double least = n * (double) weft_dtype_bytes(s->dtype);
    if (weft_flow_trains(f->needs->flow, call))
        least += (double) weft_shape_n_trained(&stage) / at->tp
               * (4 + 12.0 / (at->zero > 0 ? at->dp : 1));
    return least <= bytes;
}

/* The open layout of a call that can be in the shortest plan; size: on meshes
 * of so many devices, 0: on all; slim: of those that are with so many bytes. */
static struct weft_candidate *best_of(struct weft_finding *f, int32_t call,
                                      int32_t size, double slim)
{
    struct weft_candidates *list = &f->candidates[call];
    struct weft_candidate *best = NULL;
    for (int32_t k = 0; k < list->n; k++) {
        struct weft_candidate *c = &list->at[k];
        if (!c->closed && (size == 0 || weft_mesh_size(&c->plan.mesh) == size)
            && (!best || c->bound < best->bound)
            && is_slim(f, call, &c->plan, slim))
            best = c;
    }
    return best;
}

/* Variants of a call that need no more of a device. */
static int32_t n_within(const struct weft_finding *f, int32_t call,
                        double bytes)
{
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_variants[call]; i++)
        n += f->variant[call][i].held + f->variant[call][i].active <= bytes;
    return n;
}

static int32_t n_fitting(const struct weft_finding *f, int32_t call)
{
    return n_within(f, call, (double) f->needs->device_bytes);
}

/* A layout of each call with which all fit together: where time is up before
 * more are priced, there is a plan. Where one needs too much with what it has
 * beside weights and the like, as activations, the next has so much less of
 * these. */
static int probe_slim(struct weft_finding *f, struct weft_err *err)
{
    int rc = 0;
    for (int32_t c = 1; c < f->needs->flow->n_calls; c++) {
        struct weft_candidate *at;
        double share = share_of(f), slim = share;
        for (int k = 0; k < TRIES && n_within(f, c, share) == 0 && !rc
                        && !f->stopped && (at = best_of(f, c, 0, slim));
             k++) {
            rc = weft_candidate_price(f, c, at, err);
            if (at->needs > share)
                slim *= share / at->needs;
        }
    }
    return rc;
}

/* Lists the most promising open layouts of a call, which are closed
 * meanwhile. */
static int take_best(struct weft_pricing *l, int32_t call, int32_t size,
                     int64_t n, struct weft_err *err)
{
    struct weft_candidate *at;
    int rc = 0;
    for (; n > 0 && !rc && (at = best_of(l->f, call, size, INFINITY)); n--) {
        rc = weft_pricing_add(l, call, at, err);
        at->closed = true;
    }
    return rc;
}

static void open_again(struct weft_pricing *l)
{
    for (int32_t i = 0; i < l->n; i++)
        l->at[i].c->closed = false;
}

/* Prices the first that probe() will come to. */
static int probe_ahead(struct weft_finding *f, struct weft_err *err)
{
    struct weft_pricing list = {.f = f};
    int rc = 0;
    for (int32_t c = 1; c < f->needs->flow->n_calls; c++)
        for (int32_t size = f->needs->n_nodes * f->n_devices; size > 0 && !rc;
             size--)
            rc = take_best(&list, c, size, PROBES, err);
    open_again(&list);
    if (!rc && f->find->how.n_threads > 1)
        rc = weft_pricing_ahead(&list, 0, err);
    f->stopped = f->stopped || atomic_load(&list.over);
    weft_free(list.at);
    return rc;
}

static int probe(struct weft_finding *f, struct weft_err *err)
{
    int rc = probe_slim(f, err);
    int32_t all = f->needs->n_nodes * f->n_devices;
    if (!rc && !f->stopped)
        rc = probe_ahead(f, err);
    for (int32_t c = 1; c < f->needs->flow->n_calls; c++) {
        for (int32_t size = all; size > 0; size--) {
            int32_t want = n_fitting(f, c) + PROBES;
            struct weft_candidate *at;
            for (int k = 0;
                 k < TRIES && n_fitting(f, c) < want && !rc && !f->stopped
                 && (at = best_of(f, c, size, INFINITY));
                 k++)
                rc = weft_candidate_price(f, c, at, err);
        }
    }
    return rc;
}

/* Prices n layouts, or a few more, of each call as large a part as it takes of
 * the shortest plan, the most promising first. */
static int price_batch(struct weft_finding *f, int32_t n,
                       const struct shortest *shortest, struct weft_err *err)
{
    double part[WEFT_MAX_CALLS] = {0}, all = 0;
    struct weft_pricing list = {.f = f};
    int rc = 0;
    for (int32_t c = 1; c < f->needs->flow->n_calls; c++) {
        int32_t open = weft_candidates_open(f, c);
        part[c] = isinf(shortest->period) ? open
                : open > 0                ? shortest->work[c]
                                          : 0;
        all += part[c];
    }
    for (int32_t c = 1; c < f->needs->flow->n_calls && !rc; c++)
        rc = take_best(&list, c, 0, (int64_t) ceil(n * part[c] / all), err);
    open_again(&list);
    if (!rc)
        rc = weft_pricing_run(&list, err);
    weft_free(list.at);
    return rc;
}

bool weft_candidates_bounded(const struct weft_finding *f)
{
    if (f->config->train.intra_stage_fusion)
        return false; /* the shortest plan without is none */
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        if (f->candidates[c].n > 0
            && f->candidates[c].at[0].least.seconds > 0)
            return true;
    return false;
}

int weft_candidates_probe(struct weft_finding *f, struct weft_err *err)
{
    int rc = bound(f, INFINITY, err);
    return rc ? rc : probe(f, err);
}

int weft_candidates_price(struct weft_finding *f, struct weft_err *err)
{
    bool bounded = weft_candidates_bounded(f);
    struct shortest shortest = {.period = INFINITY};
    int32_t batch = BATCH;
    int rc = 0;
    while (!rc && !f->stopped && weft_candidates_all_open(f) > 0) {
        double before = shortest.period;
        if (bounded)
            rc = estimate(f, &shortest, err);
        if (!rc)
            rc = bound(f, shortest.period, err);
        /* a search again is worth more layouts where the last found nothing */
        batch = shortest.period < before ? BATCH : 2 * batch;
        if (!rc && weft_candidates_all_open(f) > 0)
            rc = price_batch(f, bounded ? batch : weft_candidates_all_open(f),
                             &shortest, err);
    }
    return rc;
}

int weft_candidates_leave(struct weft_finding *f, struct weft_err *err)
{
    int rc = weft_candidates_all_open(f) > 0 ? bound(f, INFINITY, err) : 0;
    for (int32_t c = 0; c < WEFT_MAX_CALLS && !rc; c++)
        for (int32_t k = 0; k < f->candidates[c].n; k++)
            if (!f->candidates[c].at[k].closed)
                f->left_out_s = fmin(f->left_out_s,
                                     f->candidates[c].at[k].bound);
    return rc;
}
