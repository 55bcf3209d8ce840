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

/* Training waits for all calls, so that on their devices the first call comes
 * first. If their micro-batches were in turn, as samples are, a tp group would
 * wait each time for the pipelines on its devices to be empty, and these then
 * for the group. But any device's micro-batches come behind those of others;
 * what trains as samples complete needs them from all calls; and a clock knows
 * best when it deals them. */
static int32_t turn_of(const struct weft_iteration *p,
                       const struct weft_iteration_call *c)
{
    if (c->any_device || p->t->config.train.as_completed
        || weft_iteration_paced(p, c))
        return 0;
    return WEFT_PRIORITY_TURNS - 1 - (int32_t) (c - p->call);
}

static struct weft_where where_of(const struct weft_iteration *p,
                                  const struct weft_iteration_call *c)
{
    bool ahead = p->iteration > p->t->iteration;
    return (struct weft_where){
        .device = -1,
        .priority = (ahead ? WEFT_PRIORITY_INFER_AHEAD : WEFT_PRIORITY_INFER)
                  + turn_of(p, c),
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
        .waiting = weft_alloc((size_t) set->n, sizeof *c->waiting)};
    if (!c->waiting || (text && !c->length))
        return weft_err_nomem(p->err, "inference", n * 4);
    int rc = weft_iteration_deal_call(p, c);
    if (rc)
        return rc;
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

int weft_iteration_calls_init(struct weft_iteration *p)
{
    const struct weft_dataflow *flow = &p->t->flow;
    int rc = weft_iteration_deal_init(p);
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
        weft_free(p->call[k].replica);
        weft_min_tree_release(&p->call[k].next);
        weft_free(p->call[k].length);
    }
    weft_iteration_deal_release(p);
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

/* Moves the weights to where the call needs them, if they were not kept there:
 * before its first micro-batch, or, where that waits for devices that generate,
 * when its first sample has ended, so that they come meanwhile. */
static int open_view(struct weft_iteration *p, struct weft_iteration_call *c)
{
    struct weft_where where = where_of(p, c);
    struct weft_g_view *kept = &p->kept[c->call];
    where.priority = WEFT_PRIORITY_SAMPLE; /* others wait for it */
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

/* ---- Micro-batches ------------------------------------------------------ */

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
    c->n_dealt += n;
    c->since_s = p->deal.now_s;
    memmove(c->waiting, c->waiting + n,
            (size_t) c->n_waiting * sizeof *c->waiting);
    weft_iteration_deal_give(p, c, dp, n);
    c->n_flushed++;
    weft_free(sample);
    return rc;
}

/* How many of those that wait are the next micro-batch: the first ones that
 * fit, `full`: with one more behind them that does not. No replica waits while
 * another one has more than its share. */
static int32_t n_next(const struct weft_iteration *p,
                      const struct weft_iteration_call *c, bool *full)
{
    const struct weft_call_plan *plan = &p->t->plan.call[c->call];
    int32_t parts = plan->micro_batches > 0 ? plan->micro_batches : 1;
    int64_t mine = weft_ceil_div(c->set->n, plan->dp), rows = 0;
    int32_t n = 0;
    if (plan->shares.n > 0)
        mine = weft_plan_share(plan, c->set->n, c->turn).n;
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

static double rows_of(const struct weft_iteration *p,
                      const struct weft_iteration_call *c, int32_t n)
{
    double rows = 0;
    for (int32_t k = 0; k < n; k++)
        rows += length_of(p, c, c->waiting[k]);
    return rows;
}

/* The next micro-batch of a call by the clock, and the replica that is free for
 * it first; false: there is none. It need not be full where a device has
 * nothing else to do and its samples have waited for as long as it takes; nor
 * in the end, when all that is left is for all. */
static bool next_paced(const struct weft_iteration *p,
                       const struct weft_iteration_call *c, bool last,
                       int32_t n_left, int32_t *n_out, int32_t *dp_out)
{
    int32_t dp = p->t->layout[c->call].plan.dp;
    bool full, idle;
    if (!weft_iteration_paced(p, c) || c->n_waiting == 0)
        return false;
    *n_out = n_next(p, c, &full);
    if (last)
        *n_out = weft_min32(*n_out, (int32_t) weft_ceil_div(n_left, dp));
    *dp_out = weft_iteration_free(p, c, &idle);
    if (*dp_out < 0 || full || last)
        return *dp_out >= 0;
    double takes = weft_iteration_takes(p, c, rows_of(p, c, *n_out));
    return idle && p->deal.now_s - c->since_s >= takes;
}

/* Submits micro-batches of all calls that are dealt by the clock, always of the
 * one that has most work left, while devices are free for them; last: all. */
static int deal(struct weft_iteration *p, bool last)
{
    weft_iteration_deal_last(p, last);
    for (;;) {
        struct weft_iteration_call *best = NULL;
        int32_t n_left = 0, n = 0, dp = 0;
        double most = -1;
        for (int32_t k = 0; k < p->n_calls; k++)
            n_left += weft_iteration_paced(p, &p->call[k])
                        ? p->call[k].n_waiting
                        : 0;
        for (int32_t k = 0; k < p->n_calls; k++) {
            struct weft_iteration_call *c = &p->call[k];
            int32_t own, own_dp;
            if (!next_paced(p, c, last, n_left, &own, &own_dp))
                continue;
            double left = weft_iteration_takes(p, c, rows_of(p, c, own))
                        * (c->set->n - c->n_dealt) / own;
            if (left <= most)
                continue;
            most = left;
            best = c;
            n = own;
            dp = own_dp;
        }
        if (!best)
            return 0;
        weft_iteration_deal_add(p, best, dp, rows_of(p, best, n));
        int rc = flush(p, best, n, dp);
        if (rc)
            return rc;
    }
}

/* Submits micro-batches that are full, while there are replicas for them; last:
 * all. Where a clock deals them, it is asked for those of all calls. */
static int dispatch(struct weft_iteration *p, struct weft_iteration_call *c,
                    bool last)
{
    int rc = 0;
    weft_iteration_deal_last(p, last);
    while (c->n_waiting > 0 && !rc && !weft_iteration_paced(p, c)) {
        bool full;
        int32_t n = n_next(p, c, &full);
        int32_t dp = full || last ? weft_iteration_replica(p, c, n) : -1;
        if (dp < 0)
            break;
        rc = flush(p, c, n, dp);
    }
    return rc;
}

int weft_iteration_call_add(struct weft_iteration *p,
                            struct weft_iteration_call *c, int32_t index)
{
    int rc = 0;
    if (c->n_waiting == 0)
        c->since_s = p->deal.now_s;
    c->waiting[c->n_waiting++] = index;
    if (p->t->plan.inter_stage_fusion && weft_run_inserts(p->t, c->call))
        rc = open_view(p, c);
    return rc ? rc : dispatch(p, c, false);
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
            rc = weft_iteration_call_add(p, &p->call[k], index);
    return rc;
}

/* Submits a micro-batch whose samples have waited for long enough; beside calls
 * that a clock deals, which does not know of the call, full ones that waited for
 * a device. */
static int flush_late(struct weft_iteration *p, struct weft_iteration_call *c)
{
    bool full;
    if (p->deal.paced)
        return dispatch(p, c, false);
    if (!weft_iteration_late(p, c))
        return 0;
    int32_t n = n_next(p, c, &full), dp = weft_iteration_replica(p, c, n);
    return dp < 0 ? 0 : flush(p, c, n, dp);
}

int weft_iteration_calls_turn(const struct weft_iteration_set *set,
                              const struct weft_rollout_turn *turn)
{
    struct weft_iteration *p = set->p;
    weft_iteration_deal_turn(set, turn);
    int rc = deal(p, false);
    for (int32_t k = 0; k < p->n_calls && !rc; k++)
        rc = flush_late(p, &p->call[k]);
    return rc;
}

int weft_iteration_calls_flush(struct weft_iteration *p)
{
    int rc = deal(p, true);
    for (int32_t k = 0; k < p->n_calls && !rc; k++)
        rc = dispatch(p, &p->call[k], true);
    return rc;
}

/* Ends the calls that read texts in tokens of their own, or the others. */
static int end_calls(struct weft_iteration *p, bool texts)
{
    int rc = deal(p, true);
    for (int32_t k = 0; k < p->n_calls && !rc; k++)
        if (texts == (p->call[k].length != NULL))
            rc = end(p, &p->call[k]);
    return rc;
}

/* What needs no text does not wait for the last ones. */
int weft_iteration_calls_end(struct weft_iteration *p)
{
    int rc = end_calls(p, false);
    if (!rc)
        rc = weft_iteration_retokenise_rest(p);
    return rc ? rc : end_calls(p, true);
}
