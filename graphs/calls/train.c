/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One optimizer step. Gradient groups are the leaves of a fixed binary tree. A
 * replica has a contiguous range of them, cut into micro-batches that its
 * stages compute by 1F1B. A stage accumulates the gradient of a leaf in one
 * chain over its samples; finished leaves are joined as a binary counter
 * counts, so that few sums wait at a time:
 *
 *     leaf    0   1   2   3        replica 0: (0+1)   replica 1: (2+3)
 *              \ /     \ /
 *               +       +          then the replicas' roots: (0+1) + (2+3)
 *
 * From ZeRO 2 on, a replica with several leaves sends each of them to the
 * owners of its shards before it begins the next one, together with those that
 * other replicas have finished by then. An owner adds what it receives in the
 * order of submission: were a leaf sent as soon as it is finished, an owner
 * would wait for it before it ends its own.
 */
#include <string.h>

#include "base/alloc.h"
#include "graphs/calls/deal.h"
#include "graphs/calls/pipeline.h"
#include "graphs/calls/update.h"
#include "plan/shares.h"

enum { MAX_ROOTS = 16 };

/* A sum over leaves lo .. lo + size - 1 that waits at a stage. */
struct root {
    int32_t lo, size;
    struct weft_params *set; /* NULL: no sample in these leaves */
};

/* One stage of one replica, whose subtasks are submitted in order. */
struct worker {
    bool *done; /* (2, micro-batches): forwards, backwards submitted */
    int32_t n_done;
    struct weft_params *free_set[MAX_ROOTS];
    int32_t n_free;
    struct weft_params *set;     /* gradient of the leaf in progress */
    struct root root[MAX_ROOTS]; /* from ZeRO 2 on one leaf, not yet sent */
    int32_t n_roots;
};

struct replica {
    struct weft_range leaves;
    struct weft_g_flight *flight; /* (n) */
    int32_t n;
    int32_t *leaf_end;     /* (leaves.n): flights up to the leaf's end */
    struct worker *worker; /* (pp) */
};

struct weft_g_step {
    struct weft_seq *seq;
    const struct weft_g_train *t;
    const struct weft_g_model *m;
    const struct weft_pack_sample *sample;
    struct weft_g_deal deal; /* samples to gradient groups */
    struct replica *replica; /* (dp) */
    struct weft_g_update *update;
    int32_t n_flights;
    int32_t left;                     /* subtasks not yet submitted */
    const struct weft_g_step *before; /* of the same model; NULL: none */
    bool finished;                    /* norm and AdamW are submitted */
    struct weft_tile *norm;           /* set when finished */
    struct weft_span *span; /* of the subtask in progress; NULL: none */
    struct weft_err *err;
};

static int replica_flights(struct weft_g_step *b, int32_t d, int32_t *first)
{
    struct replica *r = &b->replica[d];
    int rc = 0;
    for (int32_t k = 0; k < r->leaves.n && !rc; k++) {
        int32_t g = r->leaves.first + k, n;
        const int32_t *index = weft_g_deal_group(&b->deal, g, &n);
        int32_t parts = weft_g_deal_cut(&b->deal, g,
                                        b->m->home.plan.micro_batches,
                                        b->t->micro_batch_rows, first);
        for (int32_t i = 0; i < parts && !rc; i++) {
            rc = weft_g_flight_init(b->t, b->seq, d, g, b->n_flights++,
                                    first[i + 1] - first[i], index + first[i],
                                    b->sample, &r->flight[r->n], b->err);
            r->n++;
        }
        r->leaf_end[k] = r->n;
    }
    return rc;
}

static int replica_init(struct weft_g_step *b, int32_t d, int32_t n_samples,
                        int32_t *first)
{
    struct replica *r = &b->replica[d];
    const struct weft_g_grads *grads = b->t->grads;
    int32_t pp = b->m->home.plan.pp;
    r->leaves = weft_plan_share(&b->m->home.plan, grads->n_groups, d);
    r->flight = weft_alloc((size_t) n_samples, sizeof *r->flight);
    r->leaf_end = weft_alloc((size_t) r->leaves.n + 1, sizeof *r->leaf_end);
    r->worker = weft_alloc((size_t) pp, sizeof *r->worker);
    if (!r->flight || !r->leaf_end || !r->worker)
        return weft_err_nomem(b->err, "a mini-batch",
                              (size_t) n_samples * sizeof *r->flight);
    int rc = replica_flights(b, d, first);
    for (int32_t s = 0; s < pp && !rc; s++) {
        struct worker *w = &r->worker[s];
        w->done = weft_alloc(2 * (size_t) r->n + 1, sizeof *w->done);
        if (!w->done)
            return weft_err_nomem(b->err, "a mini-batch", 2 * (size_t) r->n);
        for (int32_t i = grads->n_sets[d] - 1; i >= 0; i--)
            w->free_set[w->n_free++] = &grads->set[d][i];
    }
    return rc;
}

/* ---- Leaves ------------------------------------------------------------ */

typedef void (*bundle_fn)(struct weft_g_step *b, int32_t d,
                          const struct weft_g_bundle *bundle,
                          const struct weft_params *set);

/* For the bundles of a stage, as one instruction of its group. */
static void for_each_bundle(struct weft_g_step *b, int32_t d, int32_t stage,
                            const struct weft_params *set, const char *op,
                            bundle_fn visit)
{
    weft_gang_begin(b->m->rt, op, NULL);
    for (int32_t i = 0; i < weft_g_n_bundles(b->m); i++) {
        struct weft_g_bundle bundle = weft_g_bundle_get(b->m, i);
        if (weft_g_bundle_stage(b->m, &bundle) == stage)
            visit(b, d, &bundle, set);
    }
    weft_gang_end(b->m->rt, op, -1, NULL);
}

static struct weft_where bundle_where(struct weft_g_step *b, int32_t d,
                                      const struct weft_g_bundle *bundle)
{
    const struct weft_g_member *m = weft_g_layout_member(
        &b->m->home, d, weft_g_bundle_stage(b->m, bundle), bundle->tp);
    struct weft_g_pass pass = b->replica[d].flight[0].pass;
    pass.where.layer = bundle->layer;
    pass.where.span = b->span;
    return weft_g_where_at(&pass, m);
}

static void zero(struct weft_g_step *b, int32_t d,
                 const struct weft_g_bundle *bundle,
                 const struct weft_params *set)
{
    struct weft_layer_tiles tiles = weft_g_bundle_tiles(b->m, bundle, set);
    struct weft_where where = bundle_where(b, d, bundle);
    weft_insert_zero(b->seq, &where, &tiles);
}

/* Copies the gradients of KV rows that several of a member's blocks hold to
 * all these blocks, before groups are added. */
static void share(struct weft_g_step *b, int32_t d,
                  const struct weft_g_bundle *bundle,
                  const struct weft_params *set)
{
    struct weft_range range = weft_plan_range(b->m->shape.n_blocks,
                                              b->m->home.plan.tp, bundle->tp);
    if (bundle->group != WEFT_GROUP_LAYER
        || !weft_k_shares_in_range(&b->m->shape, range))
        return;
    struct weft_where where = bundle_where(b, d, bundle);
    weft_insert_share_kv(b->seq, &where, &b->m->shape, range, set,
                         bundle->layer);
}

/* Sends leaves of all replicas' stages that wait, in the order of replicas,
 * which bounds how many wait at an owner. */
static void send_leaves(struct weft_g_step *b, int32_t stage)
{
    for (int32_t d = 0; d < b->m->home.plan.dp; d++) {
        struct worker *w = &b->replica[d].worker[stage];
        for (int32_t i = 0; i < w->n_roots; i++) {
            weft_g_update_give(b->update, d, stage, w->root[i].lo, 1,
                               w->root[i].set, true);
            w->free_set[w->n_free++] = w->root[i].set;
        }
        w->n_roots = 0;
    }
}

static void push_root(struct weft_g_step *b, int32_t d, int32_t stage,
                      struct root leaf)
{
    struct worker *w = &b->replica[d].worker[stage];
    bool joins = b->m->home.plan.zero < 2;
    if (!joins && !leaf.set) {
        weft_g_update_give(b->update, d, stage, leaf.lo, 1, NULL, false);
        return;
    }
    w->root[w->n_roots++] = leaf;
    while (joins && w->n_roots >= 2) {
        struct root *l = &w->root[w->n_roots - 2], *r = l + 1;
        if (l->size != r->size || l->lo % (2 * l->size) != 0)
            break;
        if (l->set && r->set) {
            weft_g_update_add(b->update, d, stage, l->set, r->set);
            w->free_set[w->n_free++] = r->set;
        } else if (r->set) {
            l->set = r->set;
        }
        l->size *= 2;
        w->n_roots--;
    }
}

/* Ends the leaves whose last micro-batch is flight number `f`, and the leaves
 * without samples that follow them. f -1: those before the first flight. */
static void end_leaves(struct weft_g_step *b, int32_t d, int32_t stage,
                       int32_t f)
{
    struct replica *r = &b->replica[d];
    struct worker *w = &r->worker[stage];
    for (int32_t k = 0; k < r->leaves.n; k++) {
        int32_t begin = k > 0 ? r->leaf_end[k - 1] : 0;
        if (r->leaf_end[k] != f + 1)
            continue;
        struct root root = {r->leaves.first + k, 1, NULL};
        if (r->leaf_end[k] > begin) {
            for_each_bundle(b, d, stage, w->set, "share_kv", share);
            root.set = w->set;
            w->set = NULL;
        }
        push_root(b, d, stage, root);
    }
}

static void give_roots(struct weft_g_step *b)
{
    const struct weft_call_plan *plan = &b->m->home.plan;
    for (int32_t d = 0; d < plan->dp; d++)
        for (int32_t s = 0; s < plan->pp; s++) {
            const struct worker *w = &b->replica[d].worker[s];
            for (int32_t i = 0; i < w->n_roots; i++)
                weft_g_update_give(b->update, d, s, w->root[i].lo,
                                   w->root[i].size, w->root[i].set, false);
        }
}

/* Submits the end of the step, when all its subtasks are submitted. */
static void finish(struct weft_g_step *b)
{
    give_roots(b);
    b->norm = weft_g_update_finish(b->update);
    weft_g_gather_renew(b->t->gather);
    b->finished = true;
}

/* ---- Subtasks ---------------------------------------------------------- */

/* Whether all tasks that the subtask depends on are submitted. */
static bool is_ready(const struct weft_g_step *b,
                     const struct weft_g_subtask *u)
{
    const struct replica *r = &b->replica[u->dp];
    int32_t last = b->m->home.plan.pp - 1, n = r->n;
    const struct worker *w = &r->worker[u->stage];
    if (!u->backward && u->stage == 0)
        return !b->before || b->before->finished;
    if (!u->backward)
        return w[-1].done[u->micro_batch];
    if (u->micro_batch > 0 && !w->done[n + u->micro_batch - 1])
        return false; /* a gradient is one chain over micro-batches */
    return u->stage == last ? w->done[u->micro_batch]
                            : w[1].done[n + u->micro_batch];
}

static void submit_backward(struct weft_g_step *b,
                            const struct weft_g_subtask *u,
                            struct weft_g_flight *f)
{
    struct worker *w = &b->replica[u->dp].worker[u->stage];
    if (!w->set) {
        if (w->n_free == 0)
            send_leaves(b, u->stage);
        weft_assert(w->n_free > 0);
        w->set = w->free_set[--w->n_free];
        for_each_bundle(b, u->dp, u->stage, w->set, "zero", zero);
    }
    weft_g_flight_backward(b->t, f, u->stage, w->set, b->t->gather);
}

static void submit_subtask(struct weft_g_step *b,
                           const struct weft_g_subtask *u)
{
    struct replica *r = &b->replica[u->dp];
    struct worker *w = &r->worker[u->stage];
    struct weft_g_flight *f = &r->flight[u->micro_batch];
    w->done[(u->backward ? r->n : 0) + u->micro_batch] = true;
    w->n_done++;
    b->span = f->pass.where.span = u->span;
    if (u->backward)
        submit_backward(b, u, f);
    else
        weft_g_flight_forward(b->t, f, u->stage, b->sample, b->t->gather);
    b->span = f->pass.where.span = NULL;
    if (u->backward)
        end_leaves(b, u->dp, u->stage, u->micro_batch);
    if (--b->left == 0)
        finish(b);
}

struct submission {
    struct weft_g_step *const *step;
    int32_t n_steps;
};

/* The queue's next subtask, or NULL; skips those that do not exist. */
static const struct weft_g_subtask *next_subtask(const struct submission *s,
                                                 struct weft_g_queue *queue)
{
    for (; queue->next < queue->n; queue->next++) {
        const struct weft_g_subtask *u = &queue->subtask[queue->next];
        if (u->step < s->n_steps
            && u->micro_batch < s->step[u->step]->replica[u->dp].n)
            return u;
    }
    return NULL;
}

/* Submits the allocation of what the subtask receives. */
static void expect(const struct submission *s, const struct weft_g_subtask *u)
{
    struct weft_g_step *b = s->step[u->step];
    weft_g_flight_expect(b->t, &b->replica[u->dp].flight[u->micro_batch],
                         u->stage, u->backward);
}

/* Of the queues whose next subtask is ready, the one whose subtask has the
 * earliest planned start, or NULL. */
static struct weft_g_queue *first_queue(const struct submission *s,
                                        struct weft_g_queue *queue,
                                        int32_t n_queues)
{
    struct weft_g_queue *first = NULL;
    double start = 0;
    for (int32_t i = n_queues - 1; i >= 0; i--) {
        const struct weft_g_subtask *u = next_subtask(s, &queue[i]);
        if (u && (!first || u->start < start)
            && is_ready(s->step[u->step], u)) {
            first = &queue[i];
            start = u->start;
        }
    }
    return first;
}

/* Submits subtasks after those that they depend on, and every queue in its
 * order. Tasks of a device are thus inserted in the order of their
 * positions. */
static void submit_queues(const struct submission *s,
                          struct weft_g_queue *queue, int32_t n_queues)
{
    struct weft_g_queue *l;
    while ((l = first_queue(s, queue, n_queues)) != NULL) {
        const struct weft_g_subtask *u = &l->subtask[l->next++], *after;
        expect(s, u);
        after = next_subtask(s, l);
        if (after)
            expect(s, after);
        submit_subtask(s->step[u->step], u);
    }
}

/* Submits a step with a queue for every stage of every replica, in the order
 * of 1F1B. */
static int submit_1f1b(struct weft_g_step *b)
{
    const struct weft_call_plan *plan = &b->m->home.plan;
    int32_t n_queues = plan->dp * plan->pp, most = 0, at = 0;
    for (int32_t d = 0; d < plan->dp; d++)
        most = b->replica[d].n > most ? b->replica[d].n : most;
    size_t n = (size_t) n_queues, each = 2 * (size_t) most + 1;
    struct weft_g_queue *queue = weft_alloc(n, sizeof *queue);
    struct weft_g_subtask *subtask = weft_alloc(n * each, sizeof *subtask);
    struct weft_unit *order = weft_alloc(each, sizeof *order);
    int rc = queue && subtask && order ? 0 : WEFT_ENOMEM;
    for (int32_t d = 0; d < plan->dp && !rc; d++)
        for (int32_t s = 0; s < plan->pp; s++, at++) {
            struct weft_g_subtask *u = subtask + (size_t) at * each;
            int32_t count = b->replica[d].n;
            weft_plan_1f1b(plan->pp, s, count, order);
            for (int32_t i = 0; i < 2 * count; i++)
                u[i] = (struct weft_g_subtask){
                    .dp = d,
                    .stage = s,
                    .micro_batch = order[i].micro_batch,
                    .backward = order[i].backward,
                    .start = i};
            queue[at] = (struct weft_g_queue){u, 2 * count, 0};
        }
    if (!rc)
        submit_queues(&(struct submission){&b, 1}, queue, n_queues);
    else
        weft_err_nomem(b->err, "a mini-batch", n * each * sizeof *subtask);
    weft_free(queue);
    weft_free(subtask);
    weft_free(order);
    return rc;
}

/* ---- The step ---------------------------------------------------------- */

static int init(struct weft_g_step *b, int32_t n)
{
    size_t count = (size_t) n, dp = (size_t) b->t->grads->dp;
    int32_t *first = weft_alloc(count + 1, sizeof *first);
    int rc = 0;
    b->replica = weft_alloc(dp, sizeof *b->replica);
    if (!first || !b->replica)
        rc = weft_err_nomem(b->err, "a mini-batch", count * 8);
    if (!rc)
        rc = weft_g_deal_init(&b->m->shape, b->t->grads->n_groups, b->t->unit,
                              n, b->sample, &b->deal, b->err);
    for (size_t d = 0; d < dp && !rc; d++) {
        rc = replica_init(b, (int32_t) d, n, first);
        b->left += 2 * b->m->home.plan.pp * b->replica[d].n;
    }
    if (!rc)
        rc = weft_g_update_create(b->t, b->seq, &b->update, b->err);
    weft_free(first);
    return rc;
}

static void step_free(struct weft_g_step *b)
{
    for (int32_t d = 0; b->replica && d < b->t->grads->dp; d++) {
        struct replica *r = &b->replica[d];
        for (int32_t i = 0; i < r->n; i++) {
            weft_g_flight_release(b->t, &r->flight[i]);
            weft_tile_release(r->flight[i].stats);
            weft_free(r->flight[i].index);
        }
        for (int32_t s = 0; r->worker && s < b->m->home.plan.pp; s++)
            weft_free(r->worker[s].done);
        weft_free(r->flight);
        weft_free(r->leaf_end);
        weft_free(r->worker);
    }
    weft_g_update_free(b->update);
    weft_tile_release(b->norm);
    weft_g_deal_release(&b->deal);
    weft_free(b->replica);
    weft_free(b);
}

/* Hands the statistics of all micro-batches over to the caller; returns how
 * many there are. */
static int32_t take_stats(struct weft_g_step *b, struct weft_g_stats *out)
{
    int32_t n = 0;
    for (int32_t d = 0; d < b->t->grads->dp; d++)
        for (int32_t i = 0; i < b->replica[d].n; i++) {
            struct weft_g_flight *f = &b->replica[d].flight[i];
            out[n++] = (struct weft_g_stats){f->stats, f->n, f->index};
            f->stats = NULL;
            f->index = NULL;
        }
    return n;
}

int weft_g_step_begin(struct weft_seq *seq, const struct weft_g_train *train,
                      int32_t n, const struct weft_pack_sample *sample,
                      struct weft_g_step **out, struct weft_err *err)
{
    struct weft_g_step *b = weft_alloc(1, sizeof *b);
    if (!b)
        return weft_err_nomem(err, "a mini-batch", sizeof *b);
    *b = (struct weft_g_step){.seq = seq,
                              .t = train,
                              .m = train->model,
                              .sample = sample,
                              .err = err};
    *out = b;
    int rc = init(b, n);
    const struct weft_call_plan *plan = &b->m->home.plan;
    for (int32_t d = 0; d < plan->dp && !rc; d++)
        for (int32_t s = 0; s < plan->pp; s++)
            end_leaves(b, d, s, -1);
    return rc;
}

int32_t weft_g_step_n(const struct weft_g_step *step, int32_t dp)
{
    return step->replica[dp].n;
}

double weft_g_step_cost(const struct weft_g_step *step, int32_t dp,
                        int32_t micro_batch, int64_t *n_rows_out)
{
    const struct weft_g_flight *f = &step->replica[dp].flight[micro_batch];
    double cost = 0;
    for (int32_t i = 0; i < f->n; i++)
        cost += step->deal.cost[f->index[i]];
    *n_rows_out = f->pass.n_rows;
    return cost;
}

void weft_g_step_watch(struct weft_g_step *step, struct weft_span *span)
{
    weft_g_update_watch(step->update, span);
}

int weft_g_step_submit(struct weft_g_step *const step[], int32_t n_steps,
                       struct weft_g_queue *queue, int32_t n_queues,
                       struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < n_steps; i++)
        for (int32_t k = 0; k < i; k++)
            if (step[k]->m == step[i]->m)
                step[i]->before = step[k];
    for (int32_t i = 0; i < n_steps && !queue && !rc; i++)
        rc = submit_1f1b(step[i]);
    if (queue)
        submit_queues(&(struct submission){step, n_steps}, queue, n_queues);
    for (int32_t i = 0; i < n_steps && !rc; i++)
        for (int32_t d = 0; d < step[i]->m->home.plan.dp; d++)
            for (int32_t s = 0; s < step[i]->m->home.plan.pp; s++)
                if (step[i]->replica[d].worker[s].n_done
                    != 2 * step[i]->replica[d].n)
                    return weft_err_set(
                        err, WEFT_EINVAL,
                        "the schedule leaves out work of %s, replica %d, "
                        "stage %d, or makes devices wait for one another",
                        step[i]->m->name, d, s);
    return rc;
}

void weft_g_step_end(struct weft_g_step *b, struct weft_g_stats *stats_out,
                     int32_t *n_stats_out, struct weft_tile **norm_out)
{
    weft_assert(b->finished);
    *norm_out = b->norm;
    b->norm = NULL;
    *n_stats_out = take_stats(b, stats_out);
    step_free(b);
}

void weft_g_step_abandon(struct weft_g_step *step)
{
    if (step)
        step_free(step);
}
