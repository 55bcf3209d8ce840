/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph's inference calls on finished samples: each packs them into
 * micro-batches of its own, which go to its replicas in turn; with inter-stage
 * fusion, to those whose devices generate no more.
 */
#include <string.h>

#include "base/alloc.h"
#include "plan/shares.h"
#include "run/iteration.h"
#include "run/predict/largest.h"
#include "run/predict/recorded.h"

static struct weft_where where_of(const struct weft_iteration *p,
                                  const struct weft_iteration_call *c)
{
    return (struct weft_where){.device = -1,
                               .chain = c->chain,
                               .call = c->call,
                               .iteration = p->iteration,
                               .micro_batch = c->n_flushed,
                               .layer = -1};
}

/* The number of calls that have begun and not ended with a model. */
static int32_t users(const struct weft_iteration *p,
                     const struct weft_run_model *model)
{
    int32_t n = 0;
    for (int32_t k = 0; k < p->n_calls; k++)
        n += p->call[k].begun && p->call[k].model == model;
    return n;
}

static int add_call(struct weft_iteration *p, int32_t call)
{
    struct weft_trainer *t = p->t;
    const struct weft_flow_call *f = &t->flow.call[call];
    struct weft_iteration_call *c = &p->call[p->n_calls++];
    int32_t input = weft_flow_field_of(&t->flow, f->reads,
                                       WEFT_FIELD_ROLLOUT);
    if (input < 0)
        input = weft_flow_field_of(&t->flow, f->reads, WEFT_FIELD_MISMATCH);
    const struct weft_iteration_set *set = &p->set[p->set_of[input]];
    bool text = input != set->field;
    size_t n = (size_t) p->n_all;
    *c = (struct weft_iteration_call){
        .call = call,
        .chain = WEFT_CHAIN_INFER + (p->n_calls - 1) % WEFT_N_INFER_CHAINS,
        .set = set,
        .model = &t->model[f->role],
        .input = input,
        .field = weft_flow_written(&t->flow, call),
        .length = text ? weft_alloc(n, sizeof *c->length) : NULL,
        .waiting = weft_alloc((size_t) set->n, sizeof *c->waiting),
        .load = weft_alloc((size_t) t->layout[call].plan.dp,
                           sizeof *c->load)};
    if (!c->waiting || !c->load || (text && !c->length))
        return weft_err_nomem(p->err, "inference", n * 4);
    c->begun = true;
    return users(p, c->model) > 1
             ? 0
             : weft_trainer_model_begin(p->t, c->model, p->iteration, p->err);
}

/* The call needs its weights no more. */
static void close_call(const struct weft_iteration *p,
                       struct weft_iteration_call *c)
{
    if (c->open)
        weft_g_view_close(&c->view);
    if (c->begun && users(p, c->model) == 1)
        weft_trainer_model_end(p->t, c->model, p->iteration);
    c->open = c->begun = false;
}

/* The devices of all calls: one more than the last one's number. */
static size_t count_devices(const struct weft_trainer *t)
{
    int32_t most = -1;
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        for (int32_t k = 0; k < t->layout[i].plan.dp; k++)
            for (int32_t s = 0; s < t->layout[i].plan.pp; s++)
                for (int32_t m = 0; m < t->layout[i].plan.tp; m++)
                    most = weft_max32(
                        most,
                        weft_g_layout_member(&t->layout[i], k, s, m)->device);
    return (size_t) most + 1;
}

int weft_iteration_calls_init(struct weft_iteration *p)
{
    const struct weft_dataflow *flow = &p->t->flow;
    int rc = 0;
    p->n_devices = count_devices(p->t);
    p->generating = weft_alloc(p->n_devices, sizeof *p->generating);
    if (!p->generating)
        return weft_err_nomem(p->err, "inference", p->n_devices);
    for (int32_t i = 1; i < flow->n_calls && !rc; i++)
        if (flow->call[i].kind == WEFT_INFER)
            rc = add_call(p, i);
    return rc;
}

void weft_iteration_calls_release(struct weft_iteration *p)
{
    for (int32_t k = 0; k < p->n_calls; k++) {
        close_call(p, &p->call[k]);
        weft_free(p->call[k].waiting);
        weft_free(p->call[k].load);
        weft_free(p->call[k].length);
    }
    weft_free(p->generating);
    p->generating = NULL;
    p->n_calls = 0;
}

bool weft_iteration_keeps(const struct weft_iteration *p, int32_t call)
{
    const struct weft_dataflow *flow = &p->t->flow;
    return flow->call[call].kind == WEFT_INFER
        && !weft_flow_frozen(flow, call);
}

int weft_iteration_calls_keep(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    int rc = 0;
    for (int32_t i = 1; i < t->flow.n_calls && !rc; i++) {
        const struct weft_where where = {
            .device = -1,
            .priority = WEFT_PRIORITY_GENERATE, /* training waits */
            .call = i,
            .iteration = p->iteration,
            .micro_batch = -1,
            .layer = -1};
        if (weft_iteration_keeps(p, i) && weft_run_inserts(t, i))
            rc = weft_g_view_keep(t->seq, &where,
                                  &t->model[t->flow.call[i].role].tiles,
                                  &t->layout[i], &p->kept[i], p->err);
    }
    return rc;
}

/* Moves the weights to where the call needs them, before its first
 * micro-batch, if they were not kept there. */
static int open_view(struct weft_iteration *p, struct weft_iteration_call *c)
{
    struct weft_where where = where_of(p, c);
    struct weft_g_view *kept = &p->kept[c->call];
    if (c->open)
        return 0;
    c->open = true;
    if (kept->model) {
        c->view = *kept;
        *kept = (struct weft_g_view){.model = NULL};
        return 0;
    }
    return weft_g_view_open(p->t->seq, &where, &c->model->tiles,
                            &p->t->layout[c->call], &c->view, p->err);
}

static enum weft_g_infer_kind kind_of(enum weft_field_type type)
{
    return type == WEFT_FIELD_SCORE ? WEFT_INFER_SCORE
         : type == WEFT_FIELD_LOGP || type == WEFT_FIELD_OLD_LOGP
             ? WEFT_INFER_LOGPROB
             : WEFT_INFER_VALUE;
}

static int32_t length_of(const struct weft_iteration *p,
                         const struct weft_iteration_call *c, int32_t sample)
{
    return c->length ? c->length[sample] : p->sample[sample].n_total;
}

/* ---- Replicas ---------------------------------------------------------- */

static bool has_device(const struct weft_g_layout *layout, int32_t dp,
                       int32_t device)
{
    for (int32_t s = 0; s < layout->plan.pp; s++)
        for (int32_t k = 0; k < layout->plan.tp; k++)
            if (weft_g_layout_member(layout, dp, s, k)->device == device)
                return true;
    return false;
}

/* Whether replicas `a` and `b` of two layouts have a device together. */
static bool share_device(const struct weft_g_layout *of_a, int32_t a,
                         const struct weft_g_layout *of_b, int32_t b)
{
    for (int32_t s = 0; s < of_a->plan.pp; s++)
        for (int32_t k = 0; k < of_a->plan.tp; k++)
            if (has_device(of_b, b,
                           weft_g_layout_member(of_a, a, s, k)->device))
                return true;
    return false;
}

bool weft_iteration_shares(const struct weft_g_layout *a,
                           const struct weft_g_layout *b)
{
    for (int32_t i = 0; i < a->plan.dp; i++)
        for (int32_t k = 0; k < b->plan.dp; k++)
            if (share_device(a, i, b, k))
                return true;
    return false;
}

/* Finds which devices still generate, in p->generating; *freed_out: whether
 * others have been freed of their last samples. */
static void find_generating(const struct weft_iteration *p, bool *freed_out)
{
    memset(p->generating, 0, p->n_devices * sizeof *p->generating);
    *freed_out = false;
    for (int32_t k = 0; k < p->n_sets; k++) {
        const struct weft_g_generate *gen = &p->t->gen[p->set[k].call];
        for (int32_t i = 0; i < gen->n_instances; i++) {
            const struct weft_g_instance *x = &gen->instance[i];
            *freed_out = *freed_out || x->freed;
            if (x->freed || x->idle)
                continue;
            for (int32_t s = 0; s < gen->layout.plan.pp; s++)
                for (int32_t m = 0; m < gen->layout.plan.tp; m++)
                    p->generating[weft_g_layout_member(&gen->layout, x->dp, s,
                                                       m)
                                      ->device] = true;
        }
    }
}

/* Whether devices of a replica do. */
static bool generates(const struct weft_iteration *p,
                      const struct weft_g_layout *layout, int32_t dp)
{
    for (int32_t s = 0; s < layout->plan.pp; s++)
        for (int32_t k = 0; k < layout->plan.tp; k++)
            if (p->generating[weft_g_layout_member(layout, dp, s, k)->device])
                return true;
    return false;
}

/* Whether micro-batches wait for devices that are free: not where any device of
 * a place takes them, as then those that are free do, and not where replicas
 * have shares, which micro-batches are cut by. */
static bool holds(const struct weft_iteration *p,
                  const struct weft_g_layout *layout)
{
    const struct weft_trainer *t = p->t;
    return t->config.rollout.inter_stage_fusion && layout->plan.shares.n == 0
        && (t->job.place_per_device || !layout->any_device);
}

/* The replica that has had least of its share of micro-batches; in turn where
 * all are alike, or cut by the shares. Who has the next does not depend on
 * lengths: no replica has more of them than where all samples are longest, for
 * which records and memory are bounded. */
static int32_t replica_by_share(const struct weft_iteration_call *c,
                                const struct weft_call_plan *plan)
{
    bool alike = plan->shares.n == 0 || plan->micro_batches > 0;
    int32_t best = c->turn;
    for (int32_t k = 1; k < plan->dp && !alike; k++) {
        int32_t dp = (c->turn + k) % plan->dp;
        if ((double) c->load[dp] / weft_shares_of(&plan->shares, dp)
            < (double) c->load[best] / weft_shares_of(&plan->shares, best))
            best = dp;
    }
    return best;
}

/* The replica for the next micro-batch of n samples; -1: it waits. All have
 * them in turn or by their shares; with inter-stage fusion, the one that has had
 * fewest of those whose devices generate no more. While samples have not moved,
 * none gets more than its part, as others will be free soon. When all samples
 * have ended, nothing waits. */
static int32_t next_replica(const struct weft_iteration *p,
                            const struct weft_iteration_call *c, int32_t n,
                            bool last)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    int32_t dp = layout->plan.dp, best = -1;
    bool freed;
    if (!holds(p, layout))
        return replica_by_share(c, &layout->plan);
    find_generating(p, &freed);
    for (int32_t k = 0; k < dp; k++) {
        bool busy = generates(p, layout, k);
        bool more = freed || c->load[k] + n <= weft_ceil_div(c->set->n, dp);
        if ((last || (!busy && more))
            && (best < 0 || c->load[k] < c->load[best]))
            best = k;
    }
    return best;
}

/* Submits the first n that wait, by a replica. */
static int flush(struct weft_iteration *p, struct weft_iteration_call *c,
                 int32_t n, int32_t dp)
{
    struct weft_trainer *t = p->t;
    const struct weft_field *field = &t->flow.field[c->field];
    const struct weft_g_layout *layout = &t->layout[c->call];
    enum weft_g_infer_kind kind = kind_of(field->type);
    bool inserts = weft_run_inserts(t, c->call);
    int rc = inserts ? open_view(p, c) : 0;
    struct weft_g_infer_sample *sample = weft_alloc((size_t) n,
                                                    sizeof *sample);
    if (!sample)
        return weft_err_nomem(p->err, "inference",
                              (size_t) n * sizeof *sample);
    struct weft_tile_id id = {
        "sample", field->name, 0, -1, -1, weft_g_infer_out_place(layout, dp)};
    for (int32_t k = 0; k < n && !rc; k++) {
        int32_t i = c->waiting[k];
        const struct weft_sample *s = &p->sample[i];
        struct weft_tile **out = &p->extra[i].field[c->field];
        size_t values = kind == WEFT_INFER_SCORE
                          ? 1
                          : (size_t) (s->n_total - s->n_prompt);
        rc = weft_tile_create_temp(t->rt, &id, WEFT_MEM_SAMPLES,
                                   values * sizeof(float), out, p->err);
        sample[k] = (struct weft_g_infer_sample){
            .rollout = p->extra[i].field[c->input],
            .n_prompt = c->length ? c->length[i] : s->n_prompt,
            .n_total = length_of(p, c, i),
            .out = *out};
    }
    struct weft_where where = where_of(p, c);
    struct weft_g_rows most = {0};
    if (weft_run_bounds(t))
        most = weft_run_most_infer(t, c->call);
    if (!rc && inserts)
        weft_g_infer(t->seq, &where, &c->view, dp, kind,
                     weft_iteration_inv_temperature(&t->config), n, sample,
                     p->copies, weft_run_bounds(t) ? &most : NULL);
    c->n_waiting -= n;
    memmove(c->waiting, c->waiting + n,
            (size_t) c->n_waiting * sizeof *c->waiting);
    c->load[dp] += layout->plan.shares.n > 0 ? 1 : n;
    c->turn = (dp + 1) % layout->plan.dp;
    c->n_flushed++;
    weft_free(sample);
    return rc;
}

/* How many of those that wait are the next micro-batch: the first ones that fit,
 * `full`: with one more behind them that does not. No replica waits while
 * another one has more than its share. */
static int32_t n_next(const struct weft_iteration *p,
                      const struct weft_iteration_call *c, bool *full)
{
    const struct weft_call_plan *plan = &p->t->plan.call[c->call];
    int32_t parts = plan->micro_batches > 0 ? plan->micro_batches : 1;
    int64_t mine = weft_ceil_div(c->set->n, plan->dp), rows = 0;
    int32_t n = 0;
    if (plan->shares.n > 0)
        mine = weft_plan_share(plan, c->set->n, replica_by_share(c, plan)).n;
    int64_t most = weft_max64(1, weft_ceil_div(mine, parts));
    for (; n < c->n_waiting; n++) {
        rows += length_of(p, c, c->waiting[n]);
        if (n >= most
            || (plan->micro_batches == 0 && n > 0
                && rows > p->t->config.train.micro_batch_tokens))
            break;
    }
    *full = n < c->n_waiting;
    return n;
}

/* Submits micro-batches that are full, while there are replicas for them; last:
 * all. */
static int dispatch(struct weft_iteration *p, struct weft_iteration_call *c,
                    bool last)
{
    int rc = 0;
    while (c->n_waiting > 0 && !rc) {
        bool full;
        int32_t n = n_next(p, c, &full);
        int32_t dp = full || last ? next_replica(p, c, n, last) : -1;
        if (dp < 0)
            break;
        rc = flush(p, c, n, dp);
    }
    return rc;
}

static int add(struct weft_iteration *p, struct weft_iteration_call *c,
               int32_t index)
{
    c->waiting[c->n_waiting++] = index;
    return dispatch(p, c, false);
}

static int end(struct weft_iteration *p, struct weft_iteration_call *c)
{
    int rc = dispatch(p, c, true);
    close_call(p, c);
    return rc;
}

int weft_iteration_calls_add(struct weft_iteration *p, int32_t index)
{
    const struct weft_iteration_set *set = weft_iteration_set(p, index);
    int rc = 0;
    for (int32_t k = 0; k < p->n_calls && !rc; k++)
        if (!p->call[k].length && p->call[k].set == set
            && !p->extra[index].field[p->call[k].field])
            rc = add(p, &p->call[k], index);
    return rc;
}

int weft_iteration_calls_flush(struct weft_iteration *p)
{
    int rc = 0;
    for (int32_t k = 0; k < p->n_calls && !rc; k++)
        if (!p->call[k].length)
            rc = dispatch(p, &p->call[k], true);
    return rc;
}

int weft_iteration_calls_end(struct weft_iteration *p)
{
    int rc = 0;
    for (int32_t k = 0; k < p->n_calls && !rc; k++)
        if (!p->call[k].length)
            rc = end(p, &p->call[k]);
    return rc;
}

int weft_iteration_call_all(struct weft_iteration *p,
                            struct weft_iteration_call *c)
{
    int32_t first = c->set->first, n = c->set->n;
    int rc = 0;
    for (int32_t i = first; i < first + n && !rc; i++)
        if (!p->extra[i].encoded)
            rc = add(p, c, i);
    return rc ? rc : end(p, c);
}
