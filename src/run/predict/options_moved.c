/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans whose last samples move (inter-stage fusion), as a problem of the search:
 * no such plan has a shorter period than the choice that has its layouts.
 *
 *     generation   takes what no schedule undercuts, whoever generates which
 *                  samples, whatever moves when (plan/fusion/bound.h): seconds,
 *                  and work, on any of its devices; and a sample is there no
 *                  sooner than it is by itself. Or what it takes without moves,
 *                  where that is less.
 *     inference    takes the work that it has, whoever infers what: samples that
 *                  move free other devices for it
 *     training     takes what it takes without
 *
 * Prompts are taken to be as short as the shortest, and a device's memory to have
 * nothing beside the weights that generate and their KV caches. Layouts that
 * were left out take and hold what is known without pricing.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "codelets/work.h"
#include "plan/fusion/bound.h"
#include "run/predict/options_inside.h"
#include "run/predict/pricer_inside.h"
#include "lm/steps.h"

bool weft_finding_moves(const struct weft_finding *f)
{
    return weft_config_generates(f->config) && !f->needs->cluster
        && !f->stopped;
}

/* ---- What generation takes at least -------------------------------------- */

struct least {
    double seconds, work_s; /* work: of a device, in the mean */
    double came_s[WEFT_SEARCH_PARTS];
};

/* A call's samples, in the order of their lengths, and what they cost. */
struct job {
    struct weft_overlap_job job;
    struct weft_overlap_sample *sample;
    int32_t most; /* tokens of a text */
};

static int shorter(const void *a, const void *b)
{
    const struct weft_overlap_sample *x = a, *y = b;
    return (x->length > y->length) - (x->length < y->length);
}

/* Those of prices. */
static int list_samples(const struct weft_finding *f, int32_t call,
                        struct job *out, struct weft_err *err)
{
    const struct weft_trainer *t = f->pricer->t;
    const struct weft_config *c = f->config;
    int32_t n = f->pricer->samples[call].n, prompt = INT32_MAX;
    *out = (struct job){
        .sample = weft_alloc((size_t) n + 1, sizeof *out->sample)};
    if (!out->sample)
        return weft_err_nomem(err, "samples", (size_t) n);
    for (int32_t i = 0; i < t->n_prompts; i++)
        prompt = weft_min32(prompt, t->prompt[i].n_prompt);
    for (int32_t k = 0; k < n; k++) {
        int32_t length = weft_lengths_draw(f->find->simulate->lengths,
                                           c->seed, t->settings.warmup, k,
                                           c->rollout.max_new_tokens);
        out->sample[k] = (struct weft_overlap_sample){0, prompt, length, 0};
    }
    qsort(out->sample, (size_t) n, sizeof *out->sample, shorter);
    out->most = prompt + c->rollout.max_new_tokens;
    out->job = (struct weft_overlap_job){
        .n_samples = n,
        .sample = out->sample,
        .most = c->rollout.max_new_tokens,
        .shares_prefixes = c->rollout.prefix_sharing};
    return 0;
}

static double step_s(void *ctx, const struct weft_work_rows *rows)
{
    return weft_steps_s(ctx, rows);
}

/* Of samples in the order of their lengths: n have ended no sooner than the n-th
 * of them by itself. */
static int find_came(const struct weft_overlap_job *all, struct least *out,
                     struct weft_err *err)
{
    int rc = 0;
    for (int k = 0; k < WEFT_SEARCH_PARTS && !rc; k++) {
        struct weft_overlap_job one = *all;
        one.sample += (int64_t) (all->n_samples - 1) * k / WEFT_SEARCH_PARTS;
        one.n_samples = 1;
        rc = weft_overlap_bound(&one, &out->came_s[k], err);
    }
    return rc;
}

/* Of KV, in all layers. */
static double token_bytes(const struct weft_shape *s)
{
    const struct weft_range all = {0, s->n_blocks};
    return 2.0 * (double) weft_dtype_bytes(s->dtype) * s->n_layers
         * (double) weft_block_sums(s, all).kv;
}

/* What a replica's devices have beside its weights. */
static double kv_bytes(const struct weft_finding *f,
                       const struct weft_call_plan *at,
                       const struct weft_shape *s)
{
    double has = (double) f->needs->device_bytes * at->tp * at->pp;
    return has
         - (double) weft_shape_n_params(s)
               * (double) weft_dtype_bytes(s->dtype);
}

/* Of a layout; costs: of a job of all devices. */
static int find_least(const struct weft_finding *f, int32_t call,
                      const struct weft_call_plan *at,
                      struct weft_costs *costs, const struct job *of,
                      struct least *out, struct weft_err *err)
{
    const struct weft_shape *shape =
        f->needs->shape[f->needs->flow->call[call].role];
    struct weft_overlap_job job = of->job;
    struct weft_g_layout layout = {.member = NULL};
    struct weft_steps steps = {.pass = NULL};
    struct weft_plan plan;
    weft_plan_begin(f->needs, &plan);
    plan.call[call] = *at;
    int rc = weft_g_layout_init(&f->pricer->t->job, shape, &plan, call,
                                &layout, err);
    if (!rc)
        rc = weft_steps_init(costs, shape, &layout, at->pp,
                             f->config->rollout.slots, of->most, &steps, err);
    const struct weft_migrate_costs price = {
        .ctx = &steps,
        .step_s = step_s,
        .token_bytes = token_bytes(shape),
        .memory_bytes = kv_bytes(f, at, shape)};
    job.costs = &price;
    job.n_instances = at->dp;
    if (!rc)
        rc = weft_overlap_bound(&job, &out->seconds, err);
    if (!rc)
        rc = weft_overlap_work(&job, &out->work_s, err);
    out->work_s /= at->dp;
    if (!rc)
        rc = find_came(&job, out, err);
    weft_steps_release(&steps);
    weft_g_layout_release(&layout);
    weft_plan_release(&plan);
    return rc;
}

/* ---- Layouts -------------------------------------------------------------- */

/* What a call's layouts are made with that are those of plans whose samples
 * move. */
struct moving {
    const struct weft_finding *from;
    struct weft_costs *costs;       /* of all devices */
    struct job job[WEFT_MAX_CALLS]; /* of calls that generate */
    int32_t n_generate;             /* these calls */
    bool stopped;                   /* before all was known */
};

static int open_moving(const struct weft_finding *f, struct moving *out,
                       struct weft_err *err)
{
    *out = (struct moving){.from = f};
    int rc = weft_simulate_costs(f->find->simulate, &f->pricer->t->job,
                                 &out->costs, err);
    for (int32_t c = 1; c < f->needs->flow->n_calls && !rc; c++)
        if (f->needs->flow->call[c].kind == WEFT_GENERATE) {
            out->n_generate++;
            rc = list_samples(f, c, &out->job[c], err);
        }
    return rc;
}

static void close_moving(struct moving *m)
{
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        weft_free(m->job[c].sample);
    weft_costs_free(m->costs);
}

static bool generates(const struct moving *m, int32_t call)
{
    return m->from->needs->flow->call[call].kind == WEFT_GENERATE;
}

/* Nothing moves in a plan with this layout. */
static bool stays(const struct moving *m, int32_t call,
                  const struct weft_call_plan *at)
{
    return m->n_generate == 1 && generates(m, call) && at->dp == 1;
}

static void set_work(struct weft_option *o)
{
    o->seconds = weft_finding_busy_s(o);
    o->share = 1;
}

/* known: what it takes without moves is. */
static int relax_generation(struct moving *m, int32_t call, bool known,
                            struct weft_option *o, struct weft_err *err)
{
    const struct weft_search_how *how = &m->from->find->how;
    struct least l;
    m->stopped = m->stopped || (how->stop && how->stop(how->ctx));
    if (m->stopped)
        return 0;
    int rc = find_least(m->from, call, &o->plan, m->costs, &m->job[call], &l,
                        err);
    if (rc)
        return rc;
    double work_s = known ? fmin(l.work_s, o->share * o->seconds) : l.work_s;
    double seconds = known ? fmin(l.seconds, o->seconds) : l.seconds;
    seconds = fmax(seconds, work_s);
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++) {
        double came_s = known ? fmin(l.came_s[k], o->came[k] * o->seconds)
                              : l.came_s[k];
        o->came[k] = fmin(came_s / seconds, 1);
    }
    o->share = work_s / seconds;
    o->seconds = seconds;
    return 0;
}

/* Makes a layout one of a plan whose samples move. */
static int relax(struct moving *m, int32_t call, bool known,
                 struct weft_option *o, struct weft_err *err)
{
    if (m->from->needs->flow->call[call].kind == WEFT_INFER)
        set_work(o);
    return generates(m, call) && o->plan.dp > 1
             ? relax_generation(m, call, known, o, err)
             : 0;
}

/* Layouts that were priced. Pairs of training (0) are as they are. */
static int add_priced(struct moving *m, struct weft_finding *out,
                      struct weft_err *err)
{
    int rc = 0;
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        for (int32_t i = 0; i < m->from->n_variants[c] && !rc; i++) {
            struct weft_option o = m->from->variant[c][i];
            if (c > 0 && stays(m, c, &o.plan))
                continue;
            rc = c > 0 ? relax(m, c, true, &o, err) : 0;
            if (!rc)
                rc = weft_finding_add(out, c, &o, err);
        }
    return rc;
}

/* ---- Layouts that were left out -------------------------------------------- */

static bool is_priced(const struct weft_finding *f, int32_t call,
                      const struct weft_call_plan *at)
{
    for (int32_t i = 0; i < f->n_variants[call]; i++)
        if (memcmp(&f->variant[call][i].plan, at, sizeof *at) == 0)
            return true;
    return false;
}

/* Adds those of a call, with what each takes and holds at least. */
static int add_left_out(struct moving *m, int32_t call,
                        struct weft_finding *out, struct weft_err *err)
{
    const struct weft_candidates *list = &m->from->candidates[call];
    const struct weft_shape *shape =
        out->needs->shape[out->needs->flow->call[call].role];
    double bytes = (double) weft_shape_n_params(shape)
                 * (double) weft_dtype_bytes(shape->dtype);
    int rc = 0;
    for (int32_t k = 0; k < list->n && !rc; k++) {
        const struct weft_candidate *c = &list->at[k];
        const struct weft_call_plan *at = &c->plan;
        const struct weft_priced least = {
            .seconds = fmax(c->least.seconds, DBL_MIN),
            .busy_s = c->least.busy_s,
            .came = {1, 1, 1, 1},
            .weights = at->offload ? 0 : bytes / at->tp / at->pp};
        if (c->lost || stays(m, call, at) || is_priced(m->from, call, at))
            continue;
        struct weft_option o = weft_finding_option(out, call, at, &least);
        rc = relax(m, call, false, &o, err);
        if (!rc)
            rc = weft_finding_add(out, call, &o, err);
    }
    return rc;
}

/* Training that may be fused: pairs are made of layouts that were priced. */
static bool pairs(struct weft_finding *f, int32_t call)
{
    return weft_flow_trains(f->needs->flow, call) && weft_finding_fuses(f);
}

/* No plan with a layout of training that was left out, where it may be fused, has
 * a shorter period; INFINITY: none was. all: the others of all calls, to which
 * they are added. Only the work of both models is sure. */
static int bound_pairs(struct moving *m, struct weft_finding *all,
                       double *out, struct weft_err *err)
{
    struct weft_search_problem p;
    struct weft_search *s = NULL;
    int32_t first[WEFT_MAX_CALLS];
    int rc = 0;
    weft_finding_set_problem(all, &p);
    for (int32_t i = 0; i < p.n_calls && !rc; i++) {
        int32_t c = all->call_of[i];
        first[i] = all->n_variants[c];
        if (pairs(all, c))
            rc = add_left_out(m, c, all, err);
        for (int32_t k = 0; k < all->n_variants[c] && pairs(all, c); k++)
            set_work(&all->variant[c][k]);
        p.call[i].option = all->variant[c];
        p.call[i].n_options = all->n_variants[c];
    }
    if (!rc)
        rc = weft_search_create(&p, &s, err);
    for (int32_t i = 0; i < p.n_calls && !rc; i++)
        for (int32_t k = first[i]; k < p.call[i].n_options; k++)
            *out = fmin(*out, weft_search_least(s, i, &p.call[i].option[k]));
    weft_search_free(s);
    return rc;
}

/* ---- The problem ----------------------------------------------------------- */

/* Shares all but layouts. */
static struct weft_finding like(const struct weft_finding *f)
{
    struct weft_finding out = *f;
    memset(out.variant, 0, sizeof out.variant);
    memset(out.option, 0, sizeof out.option);
    memset(out.copy, 0, sizeof out.copy);
    memset(out.n_variants, 0, sizeof out.n_variants);
    memset(out.n_options, 0, sizeof out.n_options);
    memset(out.variant_room, 0, sizeof out.variant_room);
    memset(out.option_room, 0, sizeof out.option_room);
    out.moved = NULL;
    out.moves = true;
    return out;
}

static bool has_all(const struct weft_finding *f)
{
    for (int32_t c = 1; c < f->needs->flow->n_calls; c++)
        if (weft_flow_placed(f->needs->flow, c) && f->n_variants[c] == 0)
            return false;
    return true;
}

/* Adds all layouts that such a plan can have. */
static int fill(struct moving *m, struct weft_finding *out,
                struct weft_err *err)
{
    struct weft_finding all = like(m->from);
    int rc = add_priced(m, out, err);
    for (int32_t c = 1; c < out->needs->flow->n_calls && !rc; c++)
        if (weft_flow_placed(out->needs->flow, c) && !pairs(out, c))
            rc = add_left_out(m, c, out, err);
    for (int32_t c = 1; c < WEFT_MAX_CALLS && has_all(out); c++)
        for (int32_t i = 0; i < out->n_variants[c] && !rc; i++)
            rc = weft_finding_add(&all, c, &out->variant[c][i], err);
    out->left_out_s = INFINITY;
    if (!rc && has_all(out))
        rc = bound_pairs(m, &all, &out->left_out_s, err);
    weft_finding_free_options(&all);
    return rc;
}

int weft_finding_move(struct weft_finding *f, struct weft_err *err)
{
    struct moving m;
    f->moved = weft_alloc(1, sizeof *f->moved);
    if (!f->moved)
        return weft_err_nomem(err, "layouts", sizeof *f->moved);
    *f->moved = like(f);
    int rc = open_moving(f, &m, err);
    if (!rc)
        rc = fill(&m, f->moved, err);
    f->moved->stopped = m.stopped;
    close_moving(&m);
    return rc;
}

bool weft_finding_can_move(const struct weft_finding *f)
{
    return f->moved && !f->moved->stopped && has_all(f->moved);
}
