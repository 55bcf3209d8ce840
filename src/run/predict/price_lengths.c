/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the responses are in a run that was made smaller to price a call.
 *
 * Generation ends with its longest replica, and its devices are busy as long as
 * replicas are in the mean. So the replica that takes longest is recorded, and
 * those behind it where more than one is. Which one that is, how long the
 * others take and when samples end is simulated step by step
 * (plan/fusion/overlap.h).
 *
 * Other calls share their samples equally. Of n samples of which m are recorded
 * each is as long as n / m are in the mean that follow one another by their
 * lengths: so replicas and steps have as many tokens as they have in the whole
 * run.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/min_tree.h"
#include "job/plan_needs.h"
#include "lm/steps.h"
#include "plan/fusion/overlap.h"
#include "run/predict/pricer_inside.h"

/* A set of samples, in the whole run and in the smaller one. */
struct set {
    const struct weft_pricer *p;
    int32_t first, n_all;   /* of the whole run */
    int32_t small_first, n; /* of the smaller one */
    int32_t *length;        /* (n) */
};

/* t: the smaller run. */
static struct set set_of(const struct weft_pricer *p,
                         const struct weft_trainer *t, int32_t field)
{
    const struct weft_dataflow *flow = &t->flow;
    struct set s = {.p = p,
                    .n_all = weft_run_samples_at(&p->t->config, flow, field),
                    .n = weft_run_samples_at(&t->config, flow, field)};
    for (int32_t f = 0; f < field; f++) {
        if (weft_flow_origin(flow, f) != f)
            continue;
        s.first += weft_run_samples_at(&p->t->config, flow, f);
        s.small_first += weft_run_samples_at(&t->config, flow, f);
    }
    return s;
}

/* The length of sample k of the whole run. */
static int32_t draw(const struct set *s, int32_t k)
{
    const struct weft_config *c = &s->p->t->config;
    return weft_lengths_draw(s->p->options->lengths, c->seed,
                             s->p->t->settings.warmup, s->first + k,
                             c->rollout.max_new_tokens);
}

/* ---- Samples that replicas share equally --------------------------------- */

struct drawn {
    int32_t length, sample;
};

static int by_length(const void *left, const void *right)
{
    const struct drawn *a = left, *b = right;
    return a->length != b->length
             ? (a->length > b->length) - (a->length < b->length)
             : (a->sample > b->sample) - (a->sample < b->sample);
}

/* The m-th shortest that is recorded stands for the m-th part of all. */
static int set_means(const struct set *s, struct weft_err *err)
{
    size_t n = (size_t) s->n_all + (size_t) s->n;
    struct drawn *all = weft_alloc(n, sizeof *all), *own = all + s->n_all;
    if (!all)
        return weft_err_nomem(err, "lengths", n * sizeof *all);
    for (int32_t k = 0; k < s->n_all; k++)
        all[k] = (struct drawn){draw(s, k), k};
    for (int32_t k = 0; k < s->n; k++)
        own[k] = (struct drawn){draw(s, k), k};
    qsort(all, (size_t) s->n_all, sizeof *all, by_length);
    qsort(own, (size_t) s->n, sizeof *own, by_length);
    for (int32_t m = 0; m < s->n; m++) {
        int64_t begin = (int64_t) s->n_all * m / s->n;
        int64_t end = (int64_t) s->n_all * (m + 1) / s->n;
        double sum = 0;
        for (int64_t k = begin; k < end; k++)
            sum += all[k].length;
        s->length[own[m].sample] = end > begin ? (int32_t) lround(
                                       sum / (double) (end - begin))
                                               : own[m].length;
    }
    weft_free(all);
    return 0;
}

/* ---- The longest replica ------------------------------------------------ */

/* What generation takes, step by step. Instances of a replica go through its
 * stages at the same time, each as if it were alone: the replica takes as long
 * as the longest, and its devices are busy with all. Instance i is of replica i
 * modulo their number. */
struct generated {
    int32_t replicas, instances;
    int32_t longest;                    /* the replica that takes longest */
    struct weft_overlap_sample *sample; /* (n_all) */
    double *end_s;                      /* (n_all) */
    double *instance_s;                 /* (instances) */
    int32_t *next;                      /* (instances) */
};

static int generated_init(struct generated *g, int32_t replicas, int32_t pp,
                          int32_t n, struct weft_err *err)
{
    size_t n_all = (size_t) n, instances = (size_t) replicas * (size_t) pp;
    *g = (struct generated){
        .replicas = replicas,
        .instances = (int32_t) instances,
        .sample = weft_alloc(n_all, sizeof *g->sample),
        .end_s = weft_alloc(n_all, sizeof *g->end_s),
        .instance_s = weft_alloc(instances, sizeof *g->instance_s),
        .next = weft_alloc(instances, sizeof *g->next)};
    return g->sample && g->end_s && g->instance_s && g->next
             ? 0
             : weft_err_nomem(err, "lengths", n_all * sizeof *g->sample);
}

static void generated_release(struct generated *g)
{
    weft_free(g->next);
    weft_free(g->instance_s);
    weft_free(g->end_s);
    weft_free(g->sample);
}

/* How many samples each instance begins with. */
static int32_t share_of(const struct set *s, int32_t n, int32_t instances)
{
    return (int32_t) weft_min64(weft_ceil_div(n, instances),
                                s->p->t->config.rollout.slots);
}

/* Deals samples to instances as a run does (replica_of() in run/tail.c): equal
 * shares, one after another, as far as slots last. One that waits begins in
 * the slot that is free first, in steps. */
static int deal(const struct set *s, const struct generated *g,
                struct weft_err *err)
{
    int32_t slots = s->p->t->config.rollout.slots, n = slots * g->instances;
    int32_t share = share_of(s, s->n_all, g->instances);
    struct weft_min_tree free_at;
    int rc = weft_min_tree_init(&free_at, (size_t) n);
    for (int32_t k = 0; k < s->n_all && !rc; k++) {
        struct weft_overlap_sample *sample = &g->sample[k];
        int32_t slot = k / share * slots + k % share;
        double from = 0;
        if (k / share >= g->instances) {
            from = weft_min_tree_least(&free_at);
            slot = weft_min_tree_first(&free_at, from);
        }
        weft_min_tree_set(&free_at, slot, from + sample->length);
        sample->instance = slot / slots;
    }
    weft_min_tree_release(&free_at);
    return rc ? weft_err_nomem(err, "slots", (size_t) n * 16) : 0;
}

static double step_s(void *ctx, const struct weft_work_rows *rows)
{
    return weft_steps_s(ctx, rows);
}

/* each: samples of a prompt. */
static int generate(const struct set *s, struct weft_steps *steps,
                    int32_t each, struct generated *g, struct weft_err *err)
{
    const struct weft_trainer *t = s->p->t;
    const struct weft_config *c = &t->config;
    const struct weft_migrate_costs costs = {
        .ctx = steps,
        .step_s = step_s,
        .read_rows = c->rollout.prefill_tokens,
        .token_bytes = 1,
        .memory_bytes = INT32_MAX}; /* there is room for all */
    const struct weft_overlap_job job = {.costs = &costs,
                                         .n_instances = g->instances,
                                         .slots = steps->slots,
                                         .n_samples = s->n_all,
                                         .sample = g->sample,
                                         .most = c->rollout.max_new_tokens};
    const struct weft_overlap_when never = {.share = 0};
    struct weft_overlapped out;
    bool shares = c->rollout.prefix_sharing && each > 1;
    int32_t last = 0;
    for (int32_t k = 0; k < s->n_all; k++)
        g->sample[k] = (struct weft_overlap_sample){
            0, t->max_prompt, draw(s, k), shares ? 1 + k / each : 0};
    int rc = deal(s, g, err);
    if (!rc)
        rc = weft_overlap_simulate(&job, &never, &out, g->end_s, err);
    for (int32_t k = 0; k < s->n_all && !rc; k++) {
        double *end_s = &g->instance_s[g->sample[k].instance];
        *end_s = fmax(*end_s, g->end_s[k]);
        last = g->end_s[k] > g->end_s[last] ? k : last;
    }
    g->longest = g->sample[last].instance % g->replicas;
    return rc;
}

/* By the costs of a replica of all layers. Records as many prompts as the
 * longest one has samples of, where it is recorded alone. */
static int find_longest(const struct set *s, int32_t call,
                        struct weft_trainer *t, struct generated *g,
                        struct weft_err *err)
{
    struct weft_config *c = &t->config;
    const struct weft_flow_call *of = &t->flow.call[call];
    const struct weft_shape *shape = s->p->needs->shape[of->role];
    int32_t each = of->greedy ? 1 : c->rollout.samples_per_prompt, n = 0;
    struct weft_g_layout layout = {.member = NULL};
    struct weft_steps steps = {.pass = NULL};
    struct weft_costs *costs = NULL;
    int rc = weft_simulate_costs(s->p->options, &t->job, &costs, err);
    if (!rc)
        rc = weft_g_layout_init(&t->job, shape, &t->plan, call, &layout, err);
    if (!rc)
        rc = weft_steps_init(costs, shape, &layout, 1, c->rollout.slots,
                             t->max_prompt + c->rollout.max_new_tokens,
                             &steps, err);
    if (!rc)
        rc = generate(s, &steps, each, g, err);
    for (int32_t k = 0; k < s->n_all && !rc; k++)
        n += g->sample[k].instance % g->replicas == g->longest;
    if (!rc && t->plan.call[call].dp == 1)
        c->rollout.prompts = (int32_t) weft_ceil_div(n, each);
    weft_steps_release(&steps);
    weft_g_layout_release(&layout);
    weft_costs_free(costs);
    return rc;
}

/* The samples of the longest replica, and of those behind it, are those of the
 * first one that is recorded, and of those behind it. */
static void take(const struct set *s, const struct generated *g,
                 int32_t recorded)
{
    int32_t instances = recorded * (g->instances / g->replicas);
    int32_t share = share_of(s, s->n, instances);
    for (int32_t i = 0; i < instances; i++)
        g->next[i] = 0;
    for (int32_t k = 0; k < s->n; k++) {
        int32_t i = k / share % instances, *at = &g->next[i];
        int32_t from = (g->longest + i % recorded) % g->replicas
                     + i / recorded * g->replicas;
        while (*at < s->n_all && g->sample[*at].instance != from)
            (*at)++;
        s->length[k] = *at < s->n_all ? g->sample[*at].length : 1;
        (*at)++;
    }
}

/* Seconds of all instances of n replicas from one on. */
static double sum_s(const struct generated *g, int32_t first, int32_t n)
{
    double sum = 0;
    for (int32_t r = 0; r < n; r++)
        for (int32_t i = (first + r) % g->replicas; i < g->instances;
             i += g->replicas)
            sum += g->instance_s[i];
    return sum;
}

static int ascending(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void tell(const struct set *s, const struct generated *g,
                 int32_t recorded, struct weft_price_lengths *out)
{
    size_t n = (size_t) s->n_all;
    out->simulated = true;
    out->busy = sum_s(g, 0, g->replicas) / g->replicas * recorded
              / sum_s(g, g->longest, recorded);
    qsort(g->end_s, n, sizeof *g->end_s, ascending);
    for (size_t k = 0; k < WEFT_SEARCH_PARTS; k++)
        out->came[k] = g->end_s[(n - 1) * k / WEFT_SEARCH_PARTS]
                     / g->end_s[n - 1];
}

/* ---- All ---------------------------------------------------------------- */

static int fill(const struct weft_pricer *p, const struct weft_trainer *t,
                int32_t call, const struct generated *g,
                struct weft_price_lengths *out, struct weft_err *err)
{
    const struct weft_dataflow *flow = &t->flow;
    size_t n = (size_t) weft_run_samples_all(&t->config, flow);
    out->response = weft_alloc(n, sizeof *out->response);
    if (!out->response)
        return weft_err_nomem(err, "lengths", n * sizeof *out->response);
    int rc = 0;
    for (int32_t f = 0; f < flow->n_fields && !rc; f++) {
        if (weft_flow_origin(flow, f) != f)
            continue;
        struct set s = set_of(p, t, f);
        s.length = out->response + s.small_first;
        if (g && weft_flow_writer(flow, f) == call) {
            take(&s, g, t->plan.call[call].dp);
            tell(&s, g, t->plan.call[call].dp, out);
        } else {
            rc = set_means(&s, err);
        }
    }
    return rc;
}

int weft_price_lengths_set(const struct weft_pricer *p, int32_t call,
                           int32_t replicas, struct weft_trainer *t,
                           struct weft_price_lengths *out,
                           struct weft_err *err)
{
    const struct weft_flow_call *of = &t->flow.call[call];
    *out = (struct weft_price_lengths){.response = NULL};
    if (!weft_config_generates(&t->config) || p->samples[call].alike)
        return 0;
    if (of->kind != WEFT_GENERATE || t->plan.call[call].dp == replicas)
        return fill(p, t, call, NULL, out, err);
    struct generated g;
    const struct set s = set_of(p, t,
                                weft_flow_origin_of_call(&t->flow, call));
    int rc = generated_init(&g, replicas, t->plan.call[call].pp, s.n_all,
                            err);
    if (!rc)
        rc = find_longest(&s, call, t, &g, err);
    if (!rc)
        rc = fill(p, t, call, &g, out, err);
    generated_release(&g);
    return rc;
}

void weft_price_lengths_release(struct weft_price_lengths *lengths)
{
    weft_free(lengths->response);
    *lengths = (struct weft_price_lengths){.response = NULL};
}
